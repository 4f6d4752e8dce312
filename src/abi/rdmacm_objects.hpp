// RDMA CM's public structs inside blocks of ours, and what its calls share.
#pragma once

#include <rdma/rdma_cma.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "abi/abi.hpp"
#include "client/cm_route.hpp"
#include "client/cm_tie.hpp"

namespace verbena::abi {

struct EventChannel {
  rdma_event_channel rdma{};
  std::shared_ptr<client::CmTie> tie;
  std::shared_ptr<client::CmChannel> channel;
  std::atomic<uint32_t> waiters = 0;  // threads that wait in rdma_get_cm_event
  std::atomic<bool> closed = false;   // destroyed while there were some

  static EventChannel& from(rdma_event_channel* channel) { return *reinterpret_cast<EventChannel*>(channel); }
};
static_assert(offsetof(EventChannel, rdma) == 0);

// What an id has done so far. Each step needs an earlier one.
enum class CmStep : uint8_t {
  kIdle,
  kBound,
  kAddressResolved,
  kRouteResolved,
  kListening,
  kConnecting,  // asked a peer
  kRequested,   // a peer asked
  kAccepted,
  kConnected,
  kOver,  // disconnected, rejected, failed
};

struct Membership;  // rdmacm_multicast.cpp

struct CmId {
  rdma_cm_id rdma{};
  std::shared_ptr<client::CmTie> tie;
  uint32_t number = 0;       // at the agent; 0: not created there
  bool synchronous = false;  // calls wait for their event; the channel is the id's own
  CmStep step = CmStep::kIdle;
  bool passive = false;
  bool disconnect_seen = false;  // DISCONNECTED was handed out, or never will be
  bool connected_once = false;

  std::mutex mutex;
  std::condition_variable acknowledged;
  uint32_t events_handed_out = 0;    // under the tie's lock
  uint32_t events_acknowledged = 0;  // under mutex

  ipc::CmAddress local;
  ipc::CmAddress remote;
  client::GidPlace place;  // of the local address in rdma.verbs
  ibv_sa_path_rec path{};

  // Options.
  bool reuse_address = false;
  bool family_only = false;
  uint8_t traffic_class = 0;
  std::optional<uint8_t> ack_timeout;
  ibv_ece ece{};

  // The connection, as told and heard.
  uint32_t first_psn = 0;  // with it the other end begins
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 7;
  uint32_t qkey = 0;
  ipc::CmParameters peer;

  // Of a passive endpoint: what its children get.
  std::optional<ibv_qp_init_attr> child_attributes;
  ibv_pd* child_pd = nullptr;
  std::vector<std::byte> connect_data;  // rdma_addrinfo::ai_connect, before the caller's private data

  std::vector<std::unique_ptr<Membership>> memberships;

  CmId();
  ~CmId();
  static CmId& from(rdma_cm_id* id) { return *reinterpret_cast<CmId*>(id); }
  // EIO in the child of a fork().
  [[nodiscard]] base::Result<void> usable() const;
  [[nodiscard]] bool datagrams() const { return rdma.qp_type == IBV_QPT_UD; }
  // An event of the process's own.
  void leave(ipc::CmEventKind kind, int status = 0, uint64_t context = 0);
};
static_assert(offsetof(CmId, rdma) == 0);

// rdmacm_devices.cpp
struct CmDevice {
  ibv_context* context = nullptr;
  client::GidPlace place;
};
// The device that has the address among its GIDs, opened for the process. ENODEV: none.
[[nodiscard]] base::Result<CmDevice> device_of(const ipc::CmAddress& address);
// A device's protection domain for programs that name none; lives as long as the process.
[[nodiscard]] base::Result<ibv_pd*> default_pd(ibv_context* context);
// As well an XRC domain, which no file names. One whose keeper ended is followed by another.
[[nodiscard]] base::Result<ibv_xrcd*> default_xrcd(ibv_context* context);
// ENODEV: there is no device at all.
[[nodiscard]] base::Result<void> open_cm_devices();

// rdmacm_channel.cpp
[[nodiscard]] base::Result<EventChannel*> make_channel();
void free_channel(EventChannel* channel);
// The next event, without waiting. EAGAIN: there is none.
[[nodiscard]] base::Result<rdma_cm_event*> take_event(EventChannel& channel);
[[nodiscard]] base::Result<void> acknowledge(rdma_cm_event* event);

// rdmacm_events.cpp: what an event means to its id; nullptr: nothing that the program is told.
[[nodiscard]] rdma_cm_event* translate(client::CmTie& tie, const ipc::CmEvent& event);

// rdmacm_sync.cpp: a synchronous id waits for its event and keeps it in id->event; others go on.
[[nodiscard]] base::Result<void> complete(CmId& id);
void drop_kept_event(CmId& id);

// rdmacm_id.cpp
[[nodiscard]] base::Result<CmId*> make_id(rdma_event_channel* channel, void* context, rdma_port_space space,
                                          ibv_qp_type type);
[[nodiscard]] base::Result<void> destroy_id(CmId& id);
[[nodiscard]] base::Result<void> migrate(CmId& id, rdma_event_channel* channel);
[[nodiscard]] base::Result<ipc::CmPortSpace> port_space(rdma_port_space space);

// rdmacm_address.cpp
[[nodiscard]] base::Result<void> bind(CmId& id, const sockaddr* address);
[[nodiscard]] base::Result<void> resolve_address(CmId& id, const sockaddr* source,
                                                 const sockaddr* destination);
[[nodiscard]] base::Result<void> resolve_route(CmId& id);
// Takes the addresses of a request that came in, and the device they mean.
[[nodiscard]] base::Result<void> take_addresses(CmId& child, const ipc::CmEvent& request);

// rdmacm_qp.cpp
[[nodiscard]] base::Result<void> create_qp(CmId& id, ibv_pd* pd, ibv_qp_init_attr_ex* attributes);
[[nodiscard]] base::Result<void> create_qp(CmId& id, ibv_pd* pd, ibv_qp_init_attr* attributes);
void destroy_qp(CmId& id);
// The program's protection domain, or the device's default one. EINVAL: another device's, or none known yet.
[[nodiscard]] base::Result<ibv_pd*> domain_for(CmId& id, ibv_pd* given);
// The completion queue for receives that the id has of its own, made when first wanted.
[[nodiscard]] base::Result<ibv_cq*> own_receive_queue(CmId& id, uint32_t size);
void free_own_receive_queue(CmId& id);

// rdmacm_srq.cpp
void destroy_srq(CmId& id);

// rdmacm_qp_states.cpp
[[nodiscard]] base::Result<void> begin_qp(CmId& id);    // to INIT; of datagrams to RTS
[[nodiscard]] base::Result<void> connect_qp(CmId& id);  // to RTR and RTS
void fail_qp(CmId& id);                                 // to ERR
[[nodiscard]] ibv_ah_attr route_to_peer(const CmId& id);

// rdmacm_multicast.cpp
void leave_all_groups(CmId& id);
[[nodiscard]] base::Result<void> joined_group(CmId& id, uint64_t context, rdma_cm_event& event);

}  // namespace verbena::abi
