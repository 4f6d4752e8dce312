// A child of fork() that uses what it inherited.
#pragma once

#include <string>

#include "local_path/rig.hpp"

namespace verbena::local_path {

// Forks; the child calls everything it can reach, then opens a device of its own. "forked" and for each call
// " NAME=ANSWER", the last "own=0" if that worked; or how it died.
[[nodiscard]] std::string use_in_child(const Rig& rig, const Queue& queue, ibv_qp* pair, const Memory& memory,
                                       const Address& peer);

}  // namespace verbena::local_path
