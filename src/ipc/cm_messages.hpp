// What a process's librdmacm and the agent's connection manager say to each other.
//
// A process has one CM connection, besides the one it attached by: Hello, then CmOpen, then commands, each
// answered in order by Done, by the answer named there, or by Refused with an errno. The agent holds what is
// a host's or must outlive a process: ports, listeners, connections, timers, MADs. The process does the rest
// by itself: which device and GID an address means, the queue pair's states, multicast.
//
// Ids are named by the process: a number that it has not used before, below kFirstChild. Those of connections
// that come in are named by the agent, from kFirstChild on.
//
// Events come on event channels. A channel is a SEQPACKET socketpair that the process made: it reads one end,
// which is the descriptor that the program sees, and gives the agent the other, of which it keeps a copy to
// leave events of its own (an address that was resolved) and to give it to the next agent after this one's
// death. So a channel's descriptor stays the same, and pollable, whatever becomes of the agent.
//
// After the agent's death the process opens anew, brings its channels, and declares its ids (CmCreate,
// CmBind, CmListen as before; CmResume for connections that had begun). Connecting ones that the new agent
// can't know end in an event.
#pragma once

#include <cstdint>

#include "ipc/messages.hpp"

namespace verbena::ipc {

inline constexpr uint32_t kFirstChild = 0x80000000;

// An IP address as a GID has it: IPv4 mapped into IPv6.
struct CmAddress {
  uint8_t bytes[16]{};
  uint16_t port = 0;       // host byte order
  uint16_t family = 0;     // AF_INET, AF_INET6; AF_UNSPEC: none
  uint32_t interface = 0;  // of a link-local address, or 0
};

enum class CmPortSpace : uint32_t { kTcp = 1, kUdp, kIb, kIpoib };

// Opens the CM connection of the process that has this slot. Refused as Introduce is. It ends with the slot:
// who has ids keeps its attachment, even without an open device.
struct CmOpen {
  static constexpr Kind kKind = Kind::kCmOpen;
  uint32_t own_slot = 0;
  uint32_t own_epoch = 0;
};

// Descriptor: the end of the channel into which the agent writes.
struct CmChannel {
  static constexpr Kind kKind = Kind::kCmChannel;
  uint32_t channel = 0;  // named by the process
};
// Ids whose events still go there end, as by CmDestroy: they are requests that the program was never handed.
struct CmCloseChannel {
  static constexpr Kind kKind = Kind::kCmCloseChannel;
  uint32_t channel = 0;
};

struct CmCreate {
  static constexpr Kind kKind = Kind::kCmCreate;
  uint32_t id = 0;
  uint32_t channel = 0;
  CmPortSpace space{};
};
// Ends whatever the id was doing: a listener's requests are rejected, a connection gets its DREQ, a request
// under way its REJ. Requests that a command has named meanwhile (accept, or CmMigrate of one that the
// program was handed) live on without their listener. No event of this id is written after the answer.
struct CmDestroy {
  static constexpr Kind kKind = Kind::kCmDestroy;
  uint32_t id = 0;
};
// Events of the id from now on go to another channel; children too, once they were handed out.
struct CmMigrate {
  static constexpr Kind kKind = Kind::kCmMigrate;
  uint32_t id = 0;
  uint32_t channel = 0;
};

// Takes a port of the id's space, port 0: a free one. EADDRINUSE, EADDRNOTAVAIL (no address of this host),
// EACCES (a port below 1024, by a process without CAP_NET_BIND_SERVICE). Answered by CmBound.
struct CmBind {
  static constexpr Kind kKind = Kind::kCmBind;
  uint32_t id = 0;
  uint8_t reuse = 0;        // RDMA_OPTION_ID_REUSEADDR
  uint8_t family_only = 0;  // RDMA_OPTION_ID_AFONLY: an IPv6 wildcard doesn't take IPv4
  uint16_t padding = 0;
  CmAddress address;  // all zero bytes: the wildcard
};
struct CmBound {
  static constexpr Kind kKind = Kind::kCmBound;
  uint32_t port = 0;
};
// EINVAL: not bound. `backlog`: connections that came in and were neither accepted nor rejected; 0: the most
// there can be. More are rejected.
struct CmListen {
  static constexpr Kind kKind = Kind::kCmListen;
  uint32_t id = 0;
  int32_t backlog = 0;
};

inline constexpr uint32_t kCmPrivateBytes = 256;

// What both ends tell each other of a queue pair, in a request, a reply or a datagram service's answer.
struct CmParameters {
  uint32_t qpn = 0;
  uint32_t first_psn = 0;  // with it the other end begins
  uint32_t qkey = 0;       // datagrams only
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t flow_control = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry_count = 0;
  uint8_t srq = 0;
  uint8_t mtu = 0;          // an ibv_mtu
  uint8_t ack_timeout = 0;  // an exponent, as ibv_qp_attr::timeout; the local ACK timeout that fits the path
  uint8_t qp_type = 0;      // an ibv_qp_type
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t private_length = 0;
  uint8_t private_data[kCmPrivateBytes]{};
};

// Sends a REQ, or a SIDR REQ in the UDP space (and for kIpoib). Comes out as kConnectResponse, kRejected,
// kUnreachable or kConnectError; for datagrams as kEstablished or kUnreachable (also if it was rejected).
struct CmConnect {
  static constexpr Kind kKind = Kind::kCmConnect;
  uint32_t id = 0;
  CmAddress local;  // port: the one bound, or 0: the agent picks one
  CmAddress remote;
  uint64_t service_id = 0;  // kIb space only; else made of space and port
  CmParameters parameters;
};
// The answer to a request that came in: REP, or SIDR REP.
struct CmAccept {
  static constexpr Kind kKind = Kind::kCmAccept;
  uint32_t id = 0;
  CmParameters parameters;
};
// The active side has its queue pair ready: RTU. Comes after kConnectResponse.
struct CmEstablish {
  static constexpr Kind kKind = Kind::kCmEstablish;
  uint32_t id = 0;
};
// Also of a reply that came (the active side's queue pair couldn't be made ready).
struct CmReject {
  static constexpr Kind kKind = Kind::kCmReject;
  uint32_t id = 0;
  uint16_t reason = 0;  // 0: consumer defined (28)
  uint8_t private_length = 0;
  uint8_t padding = 0;
  uint8_t private_data[kCmPrivateBytes]{};
};
// DREQ, or DREP where the other end asked first. EINVAL: neither connected nor being disconnected.
struct CmDisconnect {
  static constexpr Kind kKind = Kind::kCmDisconnect;
  uint32_t id = 0;
};
// The passive side's queue pair got a message before the RTU came: as good as that (rdma_notify).
struct CmNotify {
  static constexpr Kind kKind = Kind::kCmNotify;
  uint32_t id = 0;
};
// After an agent's death: a connection that was established. What the agent needs to disconnect it and to
// answer for it. `id` may be one that an earlier agent named.
struct CmResume {
  static constexpr Kind kKind = Kind::kCmResume;
  uint32_t id = 0;
  uint32_t channel = 0;
  CmPortSpace space{};
  uint32_t local_comm_id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  CmAddress local;
  CmAddress remote;
};

enum class CmEventKind : uint32_t {
  kConnectRequest = 1,  // id: the listener; child: the new id, which has `local` and `remote`
  kConnectResponse,     // a REP: make the queue pair ready, then CmEstablish or CmReject
  kConnectError,
  kUnreachable,   // status: -ETIMEDOUT; of datagrams also the SIDR status that came, as the kernel has it
  kRejected,      // status: the reason of IBA 12.6.7.2, positive
  kEstablished,   // RTU came; for datagrams: SIDR REP, with qpn and qkey
  kDisconnected,  // DREQ, DREP, or the peer process died
  kTimewaitExit,
  // Left by the process itself.
  kAddressResolved,
  kAddressError,
  kRouteResolved,
  kRouteError,
  kMulticastJoined,
  kMulticastError,
  kAddressChanged,
  kDeviceRemoved,
};

// On an event channel, agent (or the process itself) to process.
struct CmEvent {
  static constexpr Kind kKind = Kind::kCmEvent;
  CmEventKind event{};
  uint32_t id = 0;
  uint32_t child = 0;
  int32_t status = 0;
  uint32_t local_comm_id = 0;  // for CmResume
  uint32_t remote_comm_id = 0;
  CmAddress local;
  CmAddress remote;
  uint64_t context = 0;  // of the process's own events: what it likes
  CmParameters parameters;
};

}  // namespace verbena::ipc
