// What a process and the keeper of XRC domains (ADR 0014) say to each other: commands of the process, each
// answered in order by Done, by the answer named there, or by Refused with an errno; and events in between.
// What a connection opened or created is given up when it ends.
#pragma once

#include <cstdint>

#include "ipc/messages.hpp"

namespace verbena::ipc {

// ibv_open_xrcd. Answered by XrcDomain. EAGAIN: there is none, and `create` is 0; EINVAL: there is one, and
// `exclusive` is 1.
struct XrcOpenDomain {
  static constexpr Kind kKind = Kind::kXrcOpenDomain;
  uint32_t named = 0;  // 0: private, and the file below doesn't count
  uint32_t create = 0;
  uint32_t exclusive = 0;
  uint32_t padding = 0;
  uint64_t device = 0;  // of the file that names it
  uint64_t inode = 0;
};
struct XrcDomain {
  static constexpr Kind kKind = Kind::kXrcDomain;
  uint32_t id = 0;    // never 0
  uint32_t slot = 0;  // the keeper's
};
struct XrcCloseDomain {
  static constexpr Kind kKind = Kind::kXrcCloseDomain;
  uint32_t id = 0;
};

// A shared receive queue of the process's is in that domain: the keeper gets to know its owner.
struct XrcServe {
  static constexpr Kind kKind = Kind::kXrcServe;
  uint32_t domain = 0;
  uint32_t srq = 0;
};

// A target queue pair. Answered by XrcTarget.
struct XrcCreate {
  static constexpr Kind kKind = Kind::kXrcCreate;
  uint32_t domain = 0;
  char device[64]{};
};
// ibv_open_qp. Answered by XrcTarget. ENOENT: the domain has none of that number.
struct XrcOpen {
  static constexpr Kind kKind = Kind::kXrcOpen;
  uint32_t domain = 0;
  uint32_t qpn = 0;
};
struct XrcTarget {
  static constexpr Kind kKind = Kind::kXrcTarget;
  uint32_t qpn = 0;
  uint32_t state = 0;  // an ibv_qp_state
};
// One holder less; with the last the queue pair goes.
struct XrcRelease {
  static constexpr Kind kKind = Kind::kXrcRelease;
  uint32_t qpn = 0;
};

// Answered by XrcAttributes, as is XrcQuery. `attributes` is an ibv_qp_attr.
struct XrcModify {
  static constexpr Kind kKind = Kind::kXrcModify;
  uint32_t qpn = 0;
  int32_t mask = 0;
  uint8_t attributes[256]{};
};
struct XrcQuery {
  static constexpr Kind kKind = Kind::kXrcQuery;
  uint32_t qpn = 0;
};
struct XrcAttributes {
  static constexpr Kind kKind = Kind::kXrcAttributes;
  uint32_t qpn = 0;
  int32_t code = 0;  // of a XrcModify that was refused: an errno; the attributes are there all the same
  uint8_t attributes[256]{};
  char sentence[508]{};
};

// keeper, to all who hold the queue pair.
struct XrcEvent {
  static constexpr Kind kKind = Kind::kXrcEvent;
  uint32_t qpn = 0;
  int32_t type = 0;  // an ibv_event_type
};

}  // namespace verbena::ipc
