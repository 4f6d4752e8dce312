// Multicast: which groups reach which queue pairs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verbs/device_limits.hpp"
#include "wire/port.hpp"

namespace verbena::wire {

base::Result<void> Port::attach(base::Qpn queue_pair, const net::Address& group,
                                std::span<const uint32_t> interfaces) {
  const std::lock_guard lock(receiving_);
  for (const auto& known : memberships_)
    if (known.queue_pair == queue_pair && known.group == group)
      return base::fail(EINVAL, fmt::format("QP 0x{:06x} is attached to {} already", queue_pair.value,
                                            net::to_text(group)));
  if (auto room = room_for(group); !room) return room;
  Membership membership{queue_pair, group, {}};
  base::Result<void> failed = base::fail(ENODEV, "the queue pair's port has no interface");
  for (const uint32_t interface : interfaces) {
    if (auto joined = net::GroupMembership::join(link_->fd(), group, interface); joined)
      membership.joins.push_back(std::move(*joined));
    else
      failed = std::unexpected(joined.error());
  }
  // Some interfaces can't: a tunnel, or one without that family.
  if (membership.joins.empty()) return failed;
  memberships_.push_back(std::move(membership));
  return {};
}

// What ibv_query_device promises, of this process.
base::Result<void> Port::room_for(const net::Address& group) const {
  int members = 0;
  std::set<std::array<uint8_t, 16>> groups;
  for (const auto& known : memberships_) {
    members += known.group == group ? 1 : 0;
    groups.insert(known.group.bytes);
  }
  if (members >= verbs::kMaxMcastQpAttach)
    return base::fail(ENOMEM, fmt::format("{} queue pairs are attached to {} already, as many as can be",
                                          members, net::to_text(group)));
  if (members == 0 && groups.size() >= static_cast<size_t>(verbs::kMaxMcastGrp))
    return base::fail(
        ENOMEM, fmt::format("{} multicast groups are joined already, as many as can be", groups.size()));
  return {};
}

base::Result<void> Port::detach(base::Qpn queue_pair, const net::Address& group) {
  const std::lock_guard lock(receiving_);
  const auto found = std::ranges::find_if(memberships_, [&](const Membership& known) {
    return known.queue_pair == queue_pair && known.group == group;
  });
  if (found == memberships_.end())
    return base::fail(EINVAL,
                      fmt::format("QP 0x{:06x} isn't attached to {}", queue_pair.value, net::to_text(group)));
  memberships_.erase(found);
  return {};
}

void Port::detach_all(base::Qpn queue_pair) {
  const std::lock_guard lock(receiving_);
  std::erase_if(memberships_, [&](const Membership& known) { return known.queue_pair == queue_pair; });
}

Drop Port::take_multicast(const net::Received& received) {
  Drop drop = Drop::kNoConnection;
  for (const auto& membership : memberships_) {
    Connection* connection = connections_[membership.queue_pair.value & 0xffff];
    if (membership.group != received.to || connection == nullptr || connection->route() != nullptr) continue;
    const Drop one = take_for(*connection, received);
    if (drop != Drop::kNone) drop = one;
  }
  return drop;
}

}  // namespace verbena::wire
