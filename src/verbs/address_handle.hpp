// Where a datagram goes: what an address handle holds, and with queue pair and key what a request names.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/numbers.hpp"

namespace verbena::verbs {

struct AddressVector {
  std::array<uint8_t, 16> own_gid{};
  std::array<uint8_t, 16> peer_gid{};
  uint32_t interface = 0;  // the host's number of the one that has own_gid
  uint32_t domain = 0;     // the protection domain that the handle was made in
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  bool this_host = false;  // the peer's GID is one of this host's
};

// ibv_ah inside a block of ours. One serves any number of queue pairs of its domain.
struct AddressHandle {
  ibv_ah ibv{};
  AddressVector vector;

  static AddressHandle& from(ibv_ah* ah) { return *reinterpret_cast<AddressHandle*>(ah); }
};
static_assert(offsetof(AddressHandle, ibv) == 0);

// A copy of the vector: programs destroy handles right after the post that used them.
struct Datagram {
  AddressVector vector;
  base::Qpn target;
  uint32_t qkey = 0;
};

}  // namespace verbena::verbs
