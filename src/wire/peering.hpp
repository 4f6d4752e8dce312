// What two connected queue pairs agreed on, as one of them sees it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "net/link.hpp"
#include "roce/opcode.hpp"
#include "verbs/responder.hpp"

namespace verbena::wire {

struct Peering {
  roce::Service service = roce::Service::kRc;  // or kXrc; UC doesn't look at it
  base::Qpn own;
  base::Qpn target;
  net::Route route;
  base::Psn first_expected;  // rq_psn
  uint32_t mtu = 1024;
  unsigned fetches_granted = 1;  // max_dest_rd_atomic; RC
  uint32_t domain = 0;
  uint64_t peer_gid[2] = {};
};

[[nodiscard]] inline verbs::RequesterIdentity identity_of(const Peering& peering, base::Slot ours,
                                                          ibv_qp_type type) {
  return {.qpn = peering.target,
          .incarnation = 0,
          .first_psn = peering.first_expected.value,
          .gid = {peering.peer_gid[0], peering.peer_gid[1]},
          .accessor = ours,
          .type = type,
          .by_network = true};
}

}  // namespace verbena::wire
