// The control messages. Each is a plain struct of exactly the length it has here; a different length, an
// unknown kind or another version is bad input, which closes that connection and nothing else.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/fixed_text.hpp"

namespace verbena::ipc {

inline constexpr uint32_t kMagic = 0x6e627256;  // "Vrbn"
inline constexpr uint16_t kProtocolVersion = 4;

enum class Kind : uint16_t {
  kHello = 1,
  kWelcome,
  kAttach,
  kAttached,
  kDetach,
  kObserve,
  kDevicesChanged,
  kStop,
  kLease,
  kLeased,
  kDone,
  kRefused,
  kSocket,
  kIntroduce,
  kIntroduced,
  kLook,
  kLooked,
  kStray,
  // cm_messages.hpp
  kCmOpen,
  kCmChannel,
  kCmCloseChannel,
  kCmCreate,
  kCmDestroy,
  kCmMigrate,
  kCmBind,
  kCmBound,
  kCmListen,
  kCmConnect,
  kCmAccept,
  kCmEstablish,
  kCmReject,
  kCmDisconnect,
  kCmNotify,
  kCmResume,
  kCmEvent,
  // xrc_messages.hpp, spoken with the keeper
  kXrcOpenDomain,
  kXrcDomain,
  kXrcCloseDomain,
  kXrcServe,
  kXrcCreate,
  kXrcOpen,
  kXrcTarget,
  kXrcRelease,
  kXrcModify,
  kXrcQuery,
  kXrcAttributes,
  kXrcEvent,
};

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  Kind kind{};
};

// client: first message on every connection. Descriptor: the park, if `survivor` says that an earlier agent
// gave the client one.
struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  uint32_t survivor = 0;
  char spec[512]{};  // the devices wanted, in the text form of device_spec.hpp
};

// agent: the answer. Descriptor: the registry, read-only.
struct Welcome {
  static constexpr Kind kKind = Kind::kWelcome;
  uint32_t generation = 0;
  uint32_t view = 0;  // index in the registry
  uint32_t has_port = 0;
  uint32_t padding = 0;
  char tree[256]{};    // directory with the sysfs and /dev view
  char advice[384]{};  // a sentence for the person, or empty
};

// client: wants a slot, or its old one back. Descriptors: tables, rings, wake, and memory if `has_memory`
// says so; or none, where too many of the user's are in flight already (ETOOMANYREFS): then the agent fetches
// them by their numbers in the client. What wake and memory are stands at Introduced.
struct Attach {
  static constexpr Kind kKind = Kind::kAttach;
  uint32_t resume = 0;  // 1: slot and epoch are what an earlier agent gave
  uint32_t slot = 0;
  uint32_t epoch = 0;
  int32_t tables = -1;
  int32_t rings = -1;
  int32_t wake = -1;
  int32_t memory = -1;
  uint32_t has_memory = 0;         // 0: the process couldn't open its own memory, as in some sandboxes
  uint32_t trusts_containers = 0;  // 1: shares its memory with its user's processes in other pid namespaces
};

// agent. Descriptors: the park, and the slot's socket if the agent has the port.
struct Attached {
  static constexpr Kind kKind = Kind::kAttached;
  uint32_t slot = 0;
  uint32_t epoch = 0;
  uint32_t has_park = 0;
  uint32_t has_socket = 0;
};

// agent: the slot's socket, when the agent got the port only after the client attached. Descriptor: the
// socket.
struct SlotSocket {
  static constexpr Kind kKind = Kind::kSocket;
};

// client: gives its slot back. Answered by Done.
struct Detach {
  static constexpr Kind kKind = Kind::kDetach;
};

// client: keep my view while I live. Answered by Done.
struct Observe {
  static constexpr Kind kKind = Kind::kObserve;
};

// agent: look at the registry again.
struct DevicesChanged {
  static constexpr Kind kKind = Kind::kDevicesChanged;
};

// tool: end. Answered by Done, or Refused while processes are attached and `force` is 0.
struct Stop {
  static constexpr Kind kKind = Kind::kStop;
  uint32_t force = 0;
};

// another user's agent, on the port owner's socket: a slot range. count 0: any; else exactly that one again.
struct Lease {
  static constexpr Kind kKind = Kind::kLease;
  uint32_t first = 0;
  uint32_t count = 0;
};
struct Leased {
  static constexpr Kind kKind = Kind::kLeased;
  uint32_t first = 0;
  uint32_t count = 0;
};

// client: wants the process in `slot` as a peer, to reach its segments and memory. On any connection of the
// process that has `own_slot`; nothing comes of it but the answer.
struct Introduce {
  static constexpr Kind kKind = Kind::kIntroduce;
  uint32_t own_slot = 0;
  uint32_t own_epoch = 0;
  uint32_t slot = 0;
};
// agent. Descriptors: the peer's tables, which can't be mapped for writing; its rings; its wake, a socket
// into which a byte wakes the peer's helper thread and which hangs up when the peer is dead, has exec'ed or
// detached; its memory if `has_memory` says so: the peer's /proc/self/mem.
// Refused with EAGAIN: one of the two hasn't come back yet from an earlier agent; ESTALE: `own_slot` isn't
// the asker's; ESRCH: nobody has that slot; EPERM: the two are strangers to each other.
struct Introduced {
  static constexpr Kind kKind = Kind::kIntroduced;
  uint32_t epoch = 0;
  int32_t pid = 0;  // in the asker's pid namespace; 0: the peer isn't there
  uint32_t has_memory = 0;
  uint32_t padding = 0;
  uint64_t start_ticks = 0;  // of that pid, to tell the peer from a later process that gets its number
};

// tool: the tables of the process in `slot`, to read its counters. Answered by Looked, or Refused: ESRCH,
// EPERM where it is another user's.
struct Look {
  static constexpr Kind kKind = Kind::kLook;
  uint32_t slot = 0;
};
// agent. Descriptor: the tables, which can't be mapped for writing.
struct Looked {
  static constexpr Kind kKind = Kind::kLooked;
};

// client: a packet that the kernel gave it though it is for the process in `slot`, as happens where a sender
// merges packets for several. agent: the same, to that process. Not answered; lost where somebody doesn't
// read.
struct Stray {
  static constexpr Kind kKind = Kind::kStray;
  uint32_t slot = 0;
  uint32_t interface = 0;
  uint8_t from[16]{};
  uint8_t to[16]{};
  uint16_t source_port = 0;
  uint16_t segment = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint16_t length = 0;
  uint8_t bytes[4352]{};  // BTH to ICRC of a packet with a 4,096-byte payload, and to spare
};

struct Done {
  static constexpr Kind kKind = Kind::kDone;
};

struct Refused {
  static constexpr Kind kKind = Kind::kRefused;
  int32_t code = 0;  // an errno
  char sentence[508]{};
};

using base::set_text;
using base::text;

}  // namespace verbena::ipc
