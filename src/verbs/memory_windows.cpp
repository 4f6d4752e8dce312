#include "verbs/memory_windows.hpp"

#include <fmt/format.h>

#include <vector>

#include "verbs/device_limits.hpp"
#include "verbs/key_check.hpp"

namespace verbena::verbs {

using engine::Verdict;

namespace {
constexpr uint32_t kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
}  // namespace

base::Result<uint32_t> MemoryWindows::add(ibv_mw_type type, uint32_t domain) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
    return base::fail(
        EINVAL, fmt::format("{} is no type of memory windows: there are IBV_MW_TYPE_1 and _2", int{type}));
  const std::lock_guard lock(regions_.mutex_);
  const uint32_t index = windows_.size() < static_cast<size_t>(kMaxMw) ? regions_.claim() : 0;
  if (index == 0)
    return base::fail(ENOMEM, fmt::format("{} memory windows are allocated already", windows_.size()));
  windows_[index] = {.type = type, .domain = domain};
  return regions_.next_key(index);
}

void MemoryWindows::remove(uint32_t key) {
  const uint32_t index = key >> 8;
  const std::lock_guard changing(changing_);
  close(index);
  const std::lock_guard lock(regions_.mutex_);
  detach(windows_[index]);
  windows_.erase(index);
  regions_.free_.push_back(index);
}

Verdict MemoryWindows::bind(const WindowBinding& wanted, const WindowUser& user) {
  const uint32_t index = wanted.key >> 8;
  const std::lock_guard changing(changing_);
  bool bound = false;
  {
    const std::lock_guard lock(regions_.mutex_);
    if (auto checked = check(wanted, user); checked != Verdict::kDone) return checked;
    bound = windows_[index].region != 0;
  }
  if (bound) close(index);
  const std::lock_guard lock(regions_.mutex_);
  Window& window = windows_[index];
  detach(window);
  if (wanted.length == 0) return Verdict::kDone;
  // Its region may have been deregistered since.
  if (auto checked = check_region(wanted, user.domain); checked != Verdict::kDone) return checked;
  open(window, wanted, user);
  return Verdict::kDone;
}

Verdict MemoryWindows::check(const WindowBinding& wanted, const WindowUser& user) const {
  const auto found = windows_.find(wanted.key >> 8);
  if (found == windows_.end() || found->second.type != wanted.type) return Verdict::kNotWindow;
  const Window& window = found->second;
  if (window.domain != user.domain) return Verdict::kWrongDomain;
  if (window.type == IBV_MW_TYPE_2 && window.region != 0) return Verdict::kBound;
  if (wanted.length == 0) return window.type == IBV_MW_TYPE_1 ? Verdict::kDone : Verdict::kBadBounds;
  return check_region(wanted, user.domain);
}

Verdict MemoryWindows::check_region(const WindowBinding& wanted, uint32_t domain) const {
  const uint32_t index = wanted.region >> 8;
  if (index == 0 || index >= arena::kMrEntries) return Verdict::kBadKey;
  const auto& entry = arena_.mr(index);
  const uint64_t word = entry.word.get();
  if (word == 0 || (word & 0xff) != (wanted.region & 0xff)) return Verdict::kBadKey;
  const uint32_t access = entry.access.get();
  if ((access & arena::kWindow) != 0) return Verdict::kBadKey;
  if (entry.domain.get() != domain) return Verdict::kWrongDomain;
  if ((access & IBV_ACCESS_MW_BIND) == 0) return Verdict::kNoAccess;
  if ((wanted.access & kWrites) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return Verdict::kNoAccess;
  const uint64_t offset = wanted.address - entry.iova.get();
  const uint64_t length = entry.length.get();
  return offset > length || wanted.length > length - offset ? Verdict::kBadBounds : Verdict::kDone;
}

void MemoryWindows::open(Window& window, const WindowBinding& wanted, const WindowUser& user) {
  const uint32_t parent = wanted.region >> 8;
  const auto& region = arena_.mr(parent);
  const uint64_t offset = wanted.address - region.iova.get();
  window.region = parent;
  ++regions_.windows_on_[parent];
  uint32_t open_to = 0;
  if (window.type == IBV_MW_TYPE_2) {
    window.queue_pair = user.queue_pair;
    open_to = user.queue_pair.value;
    ++bound_to_queue_pairs_;
  }
  regions_.tags_[wanted.key >> 8] = static_cast<uint8_t>(wanted.key);  // what has the place next has another
  auto& entry = arena_.mr(wanted.key >> 8);
  entry.iova.set((wanted.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wanted.address);
  entry.length.set(wanted.length);
  entry.address.set(region.address.get() + offset);
  entry.domain.set(user.domain);
  entry.access.set((wanted.access & kRights) | arena::kWindow);
  entry.mode.set((region.mode.get() & 0xff) | open_to << 8);
  entry.file.set(region.file.get());
  entry.inode.set(region.inode.get());
  entry.file_offset.set(region.file_offset.get() + offset);
  entry.word.release(++regions_.last_version_ << 8 | (wanted.key & 0xff));
}

void MemoryWindows::detach(Window& window) {
  if (window.region == 0) return;
  if (auto windows = regions_.windows_on_.find(window.region); --windows->second == 0)
    regions_.windows_on_.erase(windows);
  if (window.type == IBV_MW_TYPE_2) --bound_to_queue_pairs_;
  window.region = 0;
  window.queue_pair = {};
}

void MemoryWindows::close(uint32_t index) {
  arena_.mr(index).word.atomic().store(0);  // with its fence
  regions_.wait_for_accesses(index, "taking a memory window back");
}

Verdict MemoryWindows::check_invalid(uint32_t key, const WindowUser& user) const {
  if (!windows_.contains(key >> 8)) return Verdict::kNotWindow;
  return check_invalidation(arena_, key, user.domain, user.queue_pair.value);
}

Verdict MemoryWindows::invalidate(uint32_t key, const WindowUser& user) {
  const std::lock_guard changing(changing_);
  {
    const std::lock_guard lock(regions_.mutex_);
    if (auto checked = check_invalid(key, user); checked != Verdict::kDone) return checked;
  }
  close(key >> 8);
  const std::lock_guard lock(regions_.mutex_);
  detach(windows_[key >> 8]);
  return Verdict::kDone;
}

void MemoryWindows::invalidate_for_peer(uint32_t key, const WindowUser& user) {
  const std::lock_guard lock(regions_.mutex_);
  if (check_invalid(key, user) != Verdict::kDone) return;
  arena_.mr(key >> 8).word.atomic().store(0);
  detach(windows_[key >> 8]);
}

void MemoryWindows::forget(base::Qpn queue_pair) {
  if (bound_to_queue_pairs_.load() == 0) return;
  const std::lock_guard changing(changing_);
  std::vector<uint32_t> bound;
  {
    const std::lock_guard lock(regions_.mutex_);
    for (const auto& [index, window] : windows_)
      if (window.region != 0 && window.queue_pair == queue_pair) bound.push_back(index);
  }
  for (const uint32_t index : bound) {
    close(index);
    const std::lock_guard lock(regions_.mutex_);
    detach(windows_[index]);
  }
}

}  // namespace verbena::verbs
