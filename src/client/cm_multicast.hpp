// IP multicast groups on the slot's socket: joined once, however many ids want them.
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::client {

// One id's share in a group; the last one leaves it.
class GroupJoin {
 public:
  GroupJoin() = default;
  // On an interface (its index). ENODEV: this process has no socket on the RoCEv2 port.
  [[nodiscard]] static base::Result<GroupJoin> join(const ipc::CmAddress& group, uint32_t interface);
  GroupJoin(GroupJoin&& other) noexcept;
  GroupJoin& operator=(GroupJoin&& other) noexcept;
  ~GroupJoin();

 private:
  ipc::CmAddress group_;
  uint32_t interface_ = 0;
  bool joined_ = false;
};

}  // namespace verbena::client
