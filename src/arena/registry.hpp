// The registry: what a host's agent knows, in one memfd that outlives it. The next agent maps it and goes on;
// tools and clients map it read-only and need no call to look. Only the agent writes, and it may be killed at
// any instruction: each fact is one atomic word, or lies in a buffer that one word publishes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "arena/device_table.hpp"
#include "arena/segment.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/time.hpp"

namespace verbena::arena {

inline constexpr uint64_t kRegistryMagic = 0x7972676e65627256;  // "Vrbengry"
inline constexpr uint32_t kRegistryLayout = 1;
inline constexpr unsigned kMaxViews = 16;
inline constexpr unsigned kMaxObservers = 1024;
inline constexpr unsigned kMaxSpec = 512;
inline constexpr unsigned kLogLines = 64;
inline constexpr unsigned kLogText = 240;

enum class SlotState : uint8_t { kFree, kActive, kQuarantined, kLeased };

// All that decides who has a slot, in one word.
struct SlotWord {
  SlotState state = SlotState::kFree;
  uint32_t epoch = 0;  // 24 bits; grows with each owner, so that an old owner's claim is recognised as old
  uint32_t pid = 0;

  static SlotWord unpack(uint64_t word) {
    return {static_cast<SlotState>(word >> 56), static_cast<uint32_t>(word >> 32) & 0xffffff,
            static_cast<uint32_t>(word)};
  }
  [[nodiscard]] uint64_t pack() const {
    return static_cast<uint64_t>(state) << 56 | static_cast<uint64_t>(epoch & 0xffffff) << 32 | pid;
  }
};

// Written before the word that publishes them.
struct SlotRecord {
  std::atomic<uint64_t> word;
  std::atomic<uint64_t> start_ticks;    // of the owner, to tell it from a later process with its pid
  std::atomic<int64_t> reusable_at_ns;  // end of the quarantine
  std::atomic<uint32_t> view;
  std::atomic<uint32_t> uid;
};

// A process that looks through a view without holding a slot: `verbena run` and what it became by exec.
struct ObserverRecord {
  std::atomic<uint32_t> pid;  // 0: nobody
  std::atomic<uint32_t> view;
  std::atomic<uint64_t> start_ticks;
};

inline constexpr uint64_t kDropped = uint64_t{1} << 63;

struct ViewRecord {
  std::atomic<uint64_t> published;  // a count whose low bit says which buffer is good; 0 or kDropped: no view
  char spec[kMaxSpec];              // the device specification it shows, fixed while the view is there
  DeviceTable buffers[2];
};

enum class Counter : uint32_t {
  kAgentStarts,
  kAttached,
  kDetached,
  kOwnersEnded,
  kRefusedNoSlot,
  kRefusedUid,
  kBadMessages,
  kPacketsRunt,
  kPacketsUnclaimed,
  kDeviceChanges,
  kLeasesGranted,
  kStrays,
  kCount,
};
[[nodiscard]] std::string_view counter_name(Counter counter);

struct LogLine {
  std::atomic<uint64_t> number;  // 0 while it is being written
  int64_t at_ns;
  char text[kLogText];
};

struct RegistryLayout {
  std::atomic<uint64_t> magic;  // written last
  uint32_t layout;
  std::atomic<uint32_t> generation;  // of the agent: one more each time one takes over
  std::atomic<int32_t> agent_pid;
  std::atomic<uint32_t> has_group;  // a group of steered sockets lies in the park
  std::atomic<uint64_t>
      host_guid;                 // as the first agent made it: devices keep theirs while a process sees them
  std::atomic<uint32_t> leased;  //              // first << 16 | count: the slots we have of another user's
                                 //              agent; 0: all are ours
  uint64_t pid_namespace;        // in which the pids here have a meaning
  std::atomic<uint64_t> counters[64];
  SlotRecord slots[256];
  ObserverRecord observers[kMaxObservers];
  ViewRecord views[kMaxViews];
  std::atomic<uint64_t> log_next;
  LogLine log[kLogLines];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A mapped registry. Copyable handle semantics are not needed: one per process.
class Registry {
 public:
  Registry() = default;
  [[nodiscard]] static base::Result<std::pair<base::UniqueFd, Registry>> create(const char* name);
  // EPROTO: of another layout, or not a registry.
  [[nodiscard]] static base::Result<Registry> open(int fd, Access access);

  explicit operator bool() const { return static_cast<bool>(mapping_); }
  [[nodiscard]] RegistryLayout& layout() const { return *reinterpret_cast<RegistryLayout*>(mapping_.data()); }
  [[nodiscard]] SlotRecord& slot(base::Slot slot) const { return layout().slots[slot.value]; }

  void count(Counter counter) const;
  [[nodiscard]] uint64_t counted(Counter counter) const;

  // A consistent copy of a view's devices; nothing if there is no such view.
  [[nodiscard]] std::shared_ptr<const DeviceTable> read_view(unsigned view) const;
  void publish_view(unsigned view, const DeviceTable& table) const;
  // Names a view for `spec`; publish_view makes it visible.
  void name_view(unsigned view, std::string_view spec) const;
  void drop_view(unsigned view) const;

  // In a child of fork(), where the mapping doesn't exist.
  void forget() { mapping_.forget(); }

  void log(base::Instant now, std::string_view sentence) const;

 private:
  Mapping mapping_;
};

}  // namespace verbena::arena
