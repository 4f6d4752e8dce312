#include "verbs/protection_domain.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {

bool ProtectionDomain::hold() {
  uint32_t users = users_.load(std::memory_order_relaxed);
  do {
    if (users == kClosed) return false;
  } while (!users_.compare_exchange_weak(users, users + 1, std::memory_order_acq_rel));
  return true;
}

void ProtectionDomain::release() {
  const uint32_t users = users_.fetch_sub(1, std::memory_order_acq_rel);
  CHECK(users != 0 && users != kClosed);
}

base::Result<std::shared_ptr<ProtectionDomain>> ProtectionDomains::allocate(std::string_view device) {
  if (by_handle_.size() >= static_cast<size_t>(kMaxPd))
    return base::fail(ENOMEM,
                      fmt::format("{} protection domains exist, the limit of a process: free some", kMaxPd));
  // Handles rotate, so that a stale one is more likely refused than mistaken for a new domain's.
  do {
    ++last_handle_;
  } while (last_handle_ == 0 || by_handle_.contains(last_handle_));
  auto domain = std::make_shared<ProtectionDomain>(std::string(device), last_handle_);
  by_handle_.emplace(last_handle_, domain);
  return domain;
}

base::Result<std::shared_ptr<ProtectionDomain>> ProtectionDomains::find(std::string_view device,
                                                                        uint32_t handle) const {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end() || found->second->device() != device)
    return base::fail(ENOENT, fmt::format("{} has no protection domain with handle {}", device, handle));
  return found->second;
}

base::Result<void> ProtectionDomain::close() {
  uint32_t users = 0;
  if (users_.compare_exchange_strong(users, kClosed, std::memory_order_acq_rel)) return {};
  if (users == kClosed)
    return base::fail(ENOENT, fmt::format("protection domain {} was deallocated before", handle_));
  return base::fail(
      EBUSY, fmt::format("protection domain {} still has {} objects: destroy them first", handle_, users));
}

base::Result<void> ProtectionDomains::deallocate(ProtectionDomain& domain) {
  if (auto closed = domain.close(); !closed) return closed;
  by_handle_.erase(domain.handle());
  return {};
}

}  // namespace verbena::verbs
