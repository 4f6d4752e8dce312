#include "arena/registry.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace verbena::arena {

namespace {

// Reader and writer may meet in a buffer: the reader then throws its copy away, but the meeting itself must
// be defined, so each word is an atomic access.
void copy_words(DeviceTable* to, const DeviceTable* from) {
  static_assert(sizeof(DeviceTable) % sizeof(uint64_t) == 0 && alignof(DeviceTable) >= alignof(uint64_t));
  auto* target = reinterpret_cast<uint64_t*>(to);
  auto* source = reinterpret_cast<uint64_t*>(const_cast<DeviceTable*>(from));
  for (size_t i = 0; i < sizeof(DeviceTable) / sizeof(uint64_t); ++i)
    std::atomic_ref(target[i]).store(std::atomic_ref(source[i]).load(std::memory_order_relaxed),
                                     std::memory_order_relaxed);
}

}  // namespace

std::string_view counter_name(Counter counter) {
  switch (counter) {
    case Counter::kAgentStarts:
      return "agent_starts";
    case Counter::kAttached:
      return "attached";
    case Counter::kDetached:
      return "detached";
    case Counter::kOwnersEnded:
      return "owners_ended";
    case Counter::kRefusedNoSlot:
      return "refused_no_slot";
    case Counter::kRefusedUid:
      return "refused_uid";
    case Counter::kBadMessages:
      return "bad_messages";
    case Counter::kPacketsRunt:
      return "packets_runt";
    case Counter::kPacketsUnclaimed:
      return "packets_unclaimed";
    case Counter::kDeviceChanges:
      return "device_changes";
    case Counter::kLeasesGranted:
      return "leases_granted";
    case Counter::kStrays:
      return "strays_passed_on";
    case Counter::kCount:
      break;
  }
  return "unknown";
}

base::Result<std::pair<base::UniqueFd, Registry>> Registry::create(const char* name) {
  base::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return base::fail_errno("creating the registry");
  // Sealed in size only: the next agent must be able to write. Others of this user map it read-only; other
  // users get a read-only descriptor and may not open it anew.
  if (::ftruncate(fd.get(), sizeof(RegistryLayout)) != 0 || ::fchmod(fd.get(), 0600) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return base::fail_errno("preparing the registry");
  auto mapping = map(fd.get(), sizeof(RegistryLayout), Access::kReadWrite);
  if (!mapping) return std::unexpected(mapping.error());
  Registry registry;
  registry.mapping_ = std::move(*mapping);
  registry.layout().layout = kRegistryLayout;
  registry.layout().magic.store(kRegistryMagic, std::memory_order_release);
  return std::pair(std::move(fd), std::move(registry));
}

base::Result<Registry> Registry::open(int fd, Access access) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return base::fail_errno("looking at the registry");
  if (static_cast<size_t>(st.st_size) != sizeof(RegistryLayout))
    return base::fail(EPROTO, "the registry is of another version of Verbena");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  // Without the size seals a truncation elsewhere would turn our reads into SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return base::fail(EPROTO, "the registry isn't sealed in size");
  auto mapping = map(fd, sizeof(RegistryLayout), access);
  if (!mapping) return std::unexpected(mapping.error());
  Registry registry;
  registry.mapping_ = std::move(*mapping);
  const auto& layout = registry.layout();
  if (layout.magic.load(std::memory_order_acquire) != kRegistryMagic || layout.layout != kRegistryLayout)
    return base::fail(EPROTO, "the registry is of another version of Verbena");
  return registry;
}

void Registry::count(Counter counter) const {
  layout().counters[static_cast<size_t>(counter)].fetch_add(1, std::memory_order_relaxed);
}

uint64_t Registry::counted(Counter counter) const {
  return layout().counters[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
}

std::shared_ptr<const DeviceTable> Registry::read_view(unsigned view) const {
  CHECK(view < kMaxViews);
  const ViewRecord& record = layout().views[view];
  // The writer fills the other buffer, then publishes. A copy is whole if no two publications passed
  // meanwhile.
  for (;;) {
    const uint64_t before = record.published.load(std::memory_order_acquire);
    if (before == 0 || (before & kDropped) != 0) return nullptr;
    // Not on the stack: 50 KiB, and threads of other people's programs have small ones.
    auto copy = std::make_shared<DeviceTable>();
    copy_words(copy.get(), &record.buffers[before & 1]);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (record.published.load(std::memory_order_relaxed) == before) {
      copy->device_count = std::min(copy->device_count, kMaxDevices);
      for (auto& device : copy->devices) device.port_count = std::min<uint8_t>(device.port_count, kMaxPorts);
      return copy;
    }
  }
}

void Registry::publish_view(unsigned view, const DeviceTable& table) const {
  CHECK(view < kMaxViews);
  ViewRecord& record = layout().views[view];
  const uint64_t next = (record.published.load(std::memory_order_relaxed) & ~kDropped) + 1;
  // Who copies from the buffer that is written now must see the publication that took it out of use.
  std::atomic_thread_fence(std::memory_order_release);
  copy_words(&record.buffers[next & 1], &table);
  record.published.store(next, std::memory_order_release);
}

void Registry::name_view(unsigned view, std::string_view spec) const {
  CHECK(view < kMaxViews && spec.size() < kMaxSpec);
  char(&field)[kMaxSpec] = layout().views[view].spec;
  std::memset(field, 0, sizeof field);
  std::memcpy(field, spec.data(), spec.size());
}

void Registry::drop_view(unsigned view) const {
  CHECK(view < kMaxViews);
  layout().views[view].published.fetch_or(kDropped, std::memory_order_release);
}

void Registry::log(base::Instant now, std::string_view sentence) const {
  const uint64_t number = layout().log_next.load(std::memory_order_relaxed) + 1;
  LogLine& line = layout().log[number % kLogLines];
  line.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  line.at_ns = now.ns;
  const size_t length = std::min<size_t>(sentence.size(), kLogText - 1);
  std::memset(line.text, 0, sizeof line.text);
  std::memcpy(line.text, sentence.data(), length);
  line.number.store(number, std::memory_order_release);
  layout().log_next.store(number, std::memory_order_release);
}

}  // namespace verbena::arena
