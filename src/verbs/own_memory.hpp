// Copies inside our own process that can't crash it: the program may have unmapped or write-protected memory
// it registered, and signal handlers are the program's own (DESIGN 2.7). Either the kernel copies
// (process_vm_* on ourselves answers EFAULT where a load or store would end the process), or memory that was
// proven accessible a moment ago is copied plainly. The cutting into pieces is shared with local/, which
// copies to other processes.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/processor.hpp"
#include "engine/memory_accessor.hpp"
#include "engine/more_payloads.hpp"
#include "verbs/mapping.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace verbena::verbs {

// Where a transfer is cut into separate copies so that nothing becomes visible after its last byte. A copy
// alone promises no order: memcpy() and the kernel's string instructions may store an end before a middle.
struct Order {
  size_t total = 0;
  size_t body = 0;   // bytes before the tail; all of them where any order will do
  uint8_t cuts = 0;  // bit i: a new copy begins at byte i of the tail, for a cache line begins there

  [[nodiscard]] static Order of(std::span<const iovec> destination, engine::Tail tail);
  // The first cut past `offset`, or the end.
  [[nodiscard]] size_t next_cut(size_t offset) const {
    if (offset < body) return body;
    const unsigned later = cuts & ~((2U << (offset - body)) - 1);
    return later == 0 ? total : body + static_cast<size_t>(std::countr_zero(later));
  }
};

// A place in a list of pieces.
class PieceCursor {
 public:
  explicit PieceCursor(std::span<const iovec> pieces) : rest_(pieces) { skip_empty(); }

  [[nodiscard]] std::byte* address() const { return static_cast<std::byte*>(rest_[0].iov_base) + within_; }
  // Bytes up to the end of the piece; 0 at the end of the list.
  [[nodiscard]] size_t contiguous() const { return rest_.empty() ? 0 : rest_[0].iov_len - within_; }
  // The next pieces, cut as `order` says, at most `limit` bytes of them; how many elements were written.
  [[nodiscard]] size_t fill(std::span<iovec> out, size_t limit, const Order& order) const;
  void advance(size_t bytes);

 private:
  void skip_empty();

  std::span<const iovec> rest_;
  size_t within_ = 0;  // bytes of rest_[0] already done
  size_t done_ = 0;
};

// Pieces that go in one system call. Its lists are on the stack of the program's thread, which may be small;
// longer lists take several calls.
inline constexpr size_t kPiecesPerCall = 64;
#if defined(__x86_64__)
// Copies in one call are made in the order of the list, and x86 keeps the order of separate string stores.
inline constexpr bool kOneCallKeepsOrder = true;
#else
inline constexpr bool kOneCallKeepsOrder = false;
#endif
// After a call, where one call doesn't keep the order.
inline void separate_calls() {
  if (!kOneCallKeepsOrder) std::atomic_thread_fence(std::memory_order_release);
}

enum class Way : uint8_t { kThere, kHere };  // where the bytes go

// process_vm_* between our memory and that of the process `pid`: 0 or an errno, with both cursors at the
// first byte that wasn't copied.
[[nodiscard]] int copy_by_kernel(pid_t pid, Way way, PieceCursor& here, PieceCursor& there,
                                 const Order& order);
// After EFAULT: whether the bytes to be copied can be read, from which follows the side that faulted. Only
// sources are ever tried: trying a destination would mean to write it, against the program's own stores.
[[nodiscard]] bool source_readable(pid_t pid, const PieceCursor& source);

// The owner is our own process.
class OwnMemory final : public engine::MemoryAccessor {
 public:
  [[nodiscard]] engine::Copied write(std::span<const iovec> here, std::span<const iovec> there,
                                     engine::Tail tail) override;
  [[nodiscard]] engine::Copied read(std::span<const iovec> here, std::span<const iovec> there,
                                    engine::Tail tail) override;
};

// Time for proofs, cheap and coarse: the TSC where it runs evenly, else the monotonic clock. Nothing waits to
// calibrate: until it has run for a millisecond, 1,000 ticks pass for a microsecond, which errs on the short
// side.
class ProofClock {
 public:
  [[nodiscard]] static uint64_t now() {
#if defined(__x86_64__)
    if (source_.load(std::memory_order_relaxed) == Source::kTsc) return __rdtsc();
#endif
    return slow_now();
  }
  // Whether `then` is less than that long ago. Clocks that went backwards make it false.
  [[nodiscard]] static bool within(uint64_t then, uint64_t now, uint32_t microseconds) {
    return now - then < uint64_t{ticks_per_us_.load(std::memory_order_relaxed)} * microseconds;
  }
  // Called beside system calls, where a clock reading more doesn't matter.
  static void calibrate();
  [[nodiscard]] static uint32_t ticks_per_us() { return ticks_per_us_.load(std::memory_order_relaxed); }

 private:
  enum class Source : uint8_t { kUndecided, kTsc, kClock };
  [[nodiscard]] static uint64_t slow_now();

  static inline std::atomic<Source> source_ = Source::kUndecided;
  static inline std::atomic<uint32_t> ticks_per_us_ = 1000;
};

// How long a proof is believed. Long enough for a burst of messages, or for a question and its answer over a
// network, which takes 20 times as long where the processor is emulated, as do proofs; shorter than an idle
// moment. Before it is initialised no proof is believed, which does no harm.
inline const uint32_t kProofMicroseconds = base::emulated() ? 400 : 20;

// How long that its pages may be accessed, if only the kernel says in between that they are still mapped:
// that is known without a look at each of them.
inline constexpr uint32_t kPermissionMicroseconds = 1'000;

// And how long if the kernel says who may access the mapping, and that it isn't of a file (mapping.hpp). Only
// few things keep pages of such a one away: guards inside it (MADV_GUARD_INSTALL), a userfaultfd that wants
// SIGBUS, a protection key that only another thread holds, broken memory.
inline constexpr uint32_t kPagesMicroseconds = 50'000;

// Which pages of a memory region were seen to be accessible, and when. One per region, or any finer; any
// thread may use it.
class ProofStamp {
 public:
  [[nodiscard]] bool covers(const void* data, size_t length, Access access,
                            uint32_t microseconds = kProofMicroseconds) const {
    const uint32_t turn = turn_.load(std::memory_order_acquire);
    const uintptr_t low = low_.load(std::memory_order_relaxed);
    const uintptr_t high = high_.load(std::memory_order_relaxed);
    const uint64_t when = when_.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (turn % 2 != 0 || turn_.load(std::memory_order_relaxed) != turn) return false;
    const auto first = reinterpret_cast<uintptr_t>(data);
    if (access == Access::kWrite && (low & kWritable) == 0) return false;
    if (first < (low & ~kWritable) || first > high || high - first < length) return false;
    return believed(when, microseconds);
  }
  void renew(const void* data, size_t length, Access access, uint64_t when);
  void clear() { renew(nullptr, 0, Access::kRead, 0); }

  // Memory is no longer registered, and may soon be something else: nothing that was proven of any is
  // believed any more.
  static void forget_all() { forgotten_.store(ProofClock::now(), std::memory_order_relaxed); }
  [[nodiscard]] static bool believed(uint64_t when, uint32_t microseconds) {
    return when > forgotten_.load(std::memory_order_relaxed) &&
           ProofClock::within(when, ProofClock::now(), microseconds);
  }

 private:
  static inline std::atomic<uint64_t> forgotten_ = 0;  // when
  static constexpr uintptr_t kWritable = 1;            // in low_, whose page address leaves the bit free

  std::atomic<uint32_t> turn_ = 0;  // odd while it is being renewed
  std::atomic<uintptr_t> low_ = 0;
  std::atomic<uintptr_t> high_ = 0;
  std::atomic<uint64_t> when_ = 0;
};

// What was last seen of the mapping that a burst's memory lies in. One thread's.
class MappingProof {
 public:
  // As mapping_at(), neighbours together, but not asked again while it is believed and covers those bytes.
  [[nodiscard]] std::optional<Mapping> look(uintptr_t address, size_t length, Access access);
  // When that was.
  [[nodiscard]] uint64_t when() const { return seen_->when; }

 private:
  struct Seen {
    std::optional<Mapping> mapping;
    Access access;
    uint64_t when;
  };
  std::optional<Seen> seen_;
};

// Proofs for what the next message is likely to need, made while nothing comes, so that it needn't wait for
// them. Each thread's own.
class StandingProofs {
 public:
  // That was proven by this thread because a message waited. The stamp lives as long as the process.
  static void remember(ProofStamp& stamp, const void* data, size_t length, Access access);
  // Something came: the program is at it, and more will follow.
  static void go_on();
  // Nothing came. For a moment after the last time that something did.
  static void renew();

 private:
  struct Place {
    ProofStamp* stamp = nullptr;
    const void* data = nullptr;
    size_t length = 0;
    uint64_t remembered = 0;  // when
  };
  Place places_[2];  // by Access
  unsigned renewals_ = 0;

  static thread_local StandingProofs current_;
};

// At most 8 bytes: aligned words whole, lower addresses first.
void store_ascending(std::byte* to, const std::byte* from, size_t length);

// While it lives, ThreadSanitizer isn't told what this thread reads and writes: an adapter's accesses to the
// program's memory are nobody's race but the program's, which may give two receives the same buffer.
class AsAdapter {
 public:
#if defined(__SANITIZE_THREAD__)
  AsAdapter() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~AsAdapter() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  AsAdapter() {}
  ~AsAdapter() {}
#endif
  AsAdapter(const AsAdapter&) = delete;
  AsAdapter& operator=(const AsAdapter&) = delete;
};

// memcpy() with the promise of engine::Tail.
inline void copy_in_order(void* to, const void* from, size_t length, engine::Tail tail) {
  const AsAdapter as_adapter;
  if (tail == engine::Tail::kAnyOrder) {
    std::memcpy(to, from, length);
    return;
  }
  constexpr size_t kTail = 8;
  const size_t body = length > kTail ? length - kTail : 0;
  if (body != 0) std::memcpy(to, from, body);
  std::atomic_thread_fence(std::memory_order_release);
  auto* end = static_cast<std::byte*>(to) + body;
  const auto* rest = static_cast<const std::byte*>(from) + body;
  if (length >= kTail && reinterpret_cast<uintptr_t>(end) % kTail == 0) {
    using Word [[gnu::may_alias]] = uint64_t;
    Word word = 0;
    std::memcpy(&word, rest, kTail);
    __atomic_store_n(reinterpret_cast<Word*>(end), word, __ATOMIC_RELEASE);
  } else {
    store_ascending(end, rest, length - body);
  }
}

// Payloads of `each` bytes behind each other, at most so many; how many there were.
size_t copy_payloads(std::byte* to, size_t each, size_t most, engine::Tail tail,
                     engine::MorePayloads& payloads);

// Faults it in as an access would, without touching a byte. False: it isn't there, or nobody can tell.
[[nodiscard]] bool accessible(const void* data, size_t length, Access access);

// The same for what is accessed again and again, at less cost where `stamp` and `proof` remember it. As of
// when: it is to be believed from then on.
[[nodiscard]] std::optional<uint64_t> accessible_again(const void* data, size_t length, Access access,
                                                       ProofStamp& stamp, MappingProof& proof);

// What place() and fetch() do when the stamp doesn't cover the program's memory: prove it, copy, renew. What
// follows, up to `proof_end`, is proven with it where it can be: a long message comes in many pieces.
[[nodiscard]] bool prove_and_copy(void* to, const void* from, size_t length, engine::Tail tail, Access access,
                                  ProofStamp& stamp, uintptr_t proof_end);

// Small payloads between memory of ours, which is certain, and the program's. False: the program's memory
// isn't there, or may not be accessed so; what was copied until then is undefined.
[[nodiscard]] inline bool place(void* program, const void* ours, size_t length, engine::Tail tail,
                                ProofStamp& stamp, uintptr_t proof_end = 0) {
  if (!stamp.covers(program, length, Access::kWrite))
    return prove_and_copy(program, ours, length, tail, Access::kWrite, stamp, proof_end);
  copy_in_order(program, ours, length, tail);
  return true;
}
[[nodiscard]] inline bool fetch(void* ours, const void* program, size_t length, ProofStamp& stamp,
                                uintptr_t proof_end = 0) {
  if (!stamp.covers(program, length, Access::kRead))
    return prove_and_copy(ours, program, length, engine::Tail::kAnyOrder, Access::kRead, stamp, proof_end);
  const AsAdapter as_adapter;
  std::memcpy(ours, program, length);
  return true;
}

}  // namespace verbena::verbs
