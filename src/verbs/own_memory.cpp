#include "verbs/own_memory.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/page_size.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace verbena::verbs {
namespace {

using engine::Copied;
using engine::Tail;

constexpr size_t kTail = 8;
constexpr uintptr_t kCacheLine = 64;

using base::page_size;

enum class Proof : uint8_t { kAccessible, kFault, kCantTell };

// Faults pages in as an access would, without touching a byte.
Proof prove(const void* data, size_t length, Access access) {
  const int advice = access == Access::kWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const auto first = reinterpret_cast<uintptr_t>(data) & ~(page_size() - 1);
  const size_t span = reinterpret_cast<uintptr_t>(data) + length - first;
  if (::madvise(reinterpret_cast<void*>(first), span, advice) == 0) return Proof::kAccessible;
  if (errno != EINVAL) return Proof::kFault;
  // A mapping that forbids it, or a kernel older than 5.14: there even our own stack is refused.
  static std::atomic<int> supported = -1;
  int known = supported.load(std::memory_order_relaxed);
  if (known < 0) {
    const auto stack = reinterpret_cast<uintptr_t>(&known) & ~(page_size() - 1);
    known = ::madvise(reinterpret_cast<void*>(stack), page_size(), MADV_POPULATE_READ) == 0 ? 1 : 0;
    supported.store(known, std::memory_order_relaxed);
  }
  return known == 1 ? Proof::kFault : Proof::kCantTell;
}

// Where a sandbox forbids process_vm_*: look, then copy. Where the kernel can't look either, trust.
Copied copy_by_proof(Way way, PieceCursor here, PieceCursor there, const Order& order) {
  for (size_t done = 0; done < order.total;) {
    const size_t length = std::min({here.contiguous(), there.contiguous(), order.next_cut(done) - done});
    if (length == 0) return Copied::kFaultThere;
    const bool here_ok =
        prove(here.address(), length, way == Way::kHere ? Access::kWrite : Access::kRead) != Proof::kFault;
    if (!here_ok) return Copied::kFaultHere;
    const bool there_ok =
        prove(there.address(), length, way == Way::kThere ? Access::kWrite : Access::kRead) != Proof::kFault;
    if (!there_ok) return Copied::kFaultThere;
    const bool in_tail = done >= order.body;
    std::byte* to = way == Way::kThere ? there.address() : here.address();
    const std::byte* from = way == Way::kThere ? here.address() : there.address();
    copy_in_order(to, from, length, in_tail ? Tail::kLast : Tail::kAnyOrder);
    std::atomic_thread_fence(std::memory_order_release);
    done += length;
    here.advance(length);
    there.advance(length);
  }
  return Copied::kAll;
}

Copied copy_in_own(Way way, std::span<const iovec> here_pieces, std::span<const iovec> there_pieces,
                   Tail tail) {
  const Order order = Order::of(way == Way::kThere ? there_pieces : here_pieces, tail);
  PieceCursor here(here_pieces);
  PieceCursor there(there_pieces);
  pid_t pid = own_pid();
  int error = copy_by_kernel(pid, way, here, there, order);
  if (error == ESRCH) {
    // The main thread has ended by itself, and the process's number went with it. This thread's is as good.
    here = PieceCursor(here_pieces);
    there = PieceCursor(there_pieces);
    pid = ::gettid();
    error = copy_by_kernel(pid, way, here, there, order);
  }
  if (error == 0) return Copied::kAll;
  if (error != EFAULT) return copy_by_proof(way, PieceCursor(here_pieces), PieceCursor(there_pieces), order);
  const bool source_is_here = way == Way::kThere;
  const bool source_fault = !source_readable(pid, source_is_here ? here : there);
  return source_fault == source_is_here ? Copied::kFaultHere : Copied::kFaultThere;
}

}  // namespace

Order Order::of(std::span<const iovec> destination, Tail tail) {
  Order order;
  for (const iovec& piece : destination) order.total += piece.iov_len;
  order.body = order.total;
  if (tail == Tail::kAnyOrder) return order;
  size_t left = std::min(kTail, order.total);
  order.body = order.total - left;
  for (auto piece = destination.rbegin(); left != 0; ++piece) {
    const size_t part = std::min(left, piece->iov_len);
    const uintptr_t first = reinterpret_cast<uintptr_t>(piece->iov_base) + piece->iov_len - part;
    const uintptr_t line = (first + kCacheLine - 1) & ~(kCacheLine - 1);
    left -= part;
    if (line - first < part) order.cuts |= static_cast<uint8_t>(1U << (left + (line - first)));
  }
  return order;
}

void PieceCursor::skip_empty() {
  while (!rest_.empty() && rest_[0].iov_len == within_) {
    rest_ = rest_.subspan(1);
    within_ = 0;
  }
}

size_t PieceCursor::fill(std::span<iovec> out, size_t limit, const Order& order) const {
  PieceCursor at = *this;
  const size_t end = limit < order.total - done_ ? done_ + limit : order.total;
  size_t count = 0;
  while (count < out.size() && at.done_ < end && at.contiguous() != 0) {
    const size_t cut = order.next_cut(at.done_);
    const size_t length = std::min({at.contiguous(), cut - at.done_, end - at.done_});
    out[count++] = {at.address(), length};
    at.advance(length);
    if (!kOneCallKeepsOrder && at.done_ == cut) break;
  }
  return count;
}

void PieceCursor::advance(size_t bytes) {
  done_ += bytes;
  while (bytes != 0) {
    const size_t step = std::min(bytes, contiguous());
    within_ += step;
    bytes -= step;
    skip_empty();
  }
}

int copy_by_kernel(pid_t pid, Way way, PieceCursor& here, PieceCursor& there, const Order& order) {
  std::array<iovec, kPiecesPerCall> local;
  std::array<iovec, kPiecesPerCall> remote;
  // The kernel makes one copy per overlap of a local and a remote element, in order: cutting one list is
  // enough, and an element more in ours costs a few ns where one in theirs costs another look-up of the page.
  const Order uncut{.total = order.total, .body = order.total};
  while (here.contiguous() != 0) {
    const size_t local_count = here.fill(local, order.total, order);
    const size_t remote_count = there.fill(remote, order.total, uncut);
    const ssize_t copied =
        way == Way::kThere
            ? ::process_vm_writev(pid, local.data(), local_count, remote.data(), remote_count, 0)
            : ::process_vm_readv(pid, local.data(), local_count, remote.data(), remote_count, 0);
    if (copied < 0) return errno;
    if (copied == 0) return EFAULT;
    separate_calls();
    here.advance(static_cast<size_t>(copied));
    there.advance(static_cast<size_t>(copied));
  }
  return 0;
}

bool source_readable(pid_t pid, const PieceCursor& source) {
  if (source.contiguous() == 0) return true;
  // More than the first byte: some CPUs' copies stop short of the page that faulted.
  std::array<std::byte, kCacheLine> seen;
  const iovec local{seen.data(), std::min(seen.size(), source.contiguous())};
  const iovec remote{source.address(), local.iov_len};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(local.iov_len);
}

Copied OwnMemory::write(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  return copy_in_own(Way::kThere, here, there, tail);
}

Copied OwnMemory::read(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  return copy_in_own(Way::kHere, here, there, tail);
}

uint64_t ProofClock::slow_now() {
#if defined(__x86_64__)
  if (source_.load(std::memory_order_relaxed) == Source::kUndecided) {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool even = __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1U << 8) != 0;
    int mode = PR_TSC_ENABLE;  // a program may have made rdtsc fatal, as tools that replay executions do
    const bool allowed = ::prctl(PR_GET_TSC, &mode) != 0 || mode == PR_TSC_ENABLE;
    source_.store(even && allowed ? Source::kTsc : Source::kClock, std::memory_order_relaxed);
    if (even && allowed) return __rdtsc();
  }
#endif
  timespec ts{};
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

void ProofClock::calibrate() {
#if defined(__x86_64__)
  enum State : uint8_t { kNew, kStarting, kStarted, kDone };
  static std::atomic<uint8_t> state = kNew;
  static std::atomic<uint64_t> first_ns = 0;
  static std::atomic<uint64_t> first_ticks = 0;
  uint8_t seen = state.load(std::memory_order_acquire);
  if (seen == kDone || seen == kStarting || source_.load(std::memory_order_relaxed) != Source::kTsc) return;
  const auto raw_ns = [] {
    timespec ts{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
  };
  if (seen == kNew) {
    if (!state.compare_exchange_strong(seen, kStarting, std::memory_order_acq_rel)) return;
    // Clock before ticks here, ticks before clock below: a thread interrupted in between makes microseconds
    // too short, which is safe.
    first_ns.store(raw_ns(), std::memory_order_relaxed);
    first_ticks.store(__rdtsc(), std::memory_order_relaxed);
    state.store(kStarted, std::memory_order_release);
    return;
  }
  const uint64_t ticks = __rdtsc() - first_ticks.load(std::memory_order_relaxed);
  const uint64_t ns = raw_ns() - first_ns.load(std::memory_order_relaxed);
  if (ns < 1'000'000) return;
  const double per_us = static_cast<double>(ticks) * 1000.0 / static_cast<double>(ns);
  ticks_per_us_.store(static_cast<uint32_t>(std::clamp(per_us, 1000.0, 20'000.0)), std::memory_order_relaxed);
  state.store(kDone, std::memory_order_release);
#endif
}

void ProofStamp::renew(const void* data, size_t length, Access access, uint64_t when) {
  uint32_t turn = turn_.load(std::memory_order_relaxed);
  // Another thread is at it: its proof is as good as ours.
  if (turn % 2 != 0 || !turn_.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel)) return;
  std::atomic_thread_fence(std::memory_order_release);
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t low = first & ~(page_size() - 1);
  const uintptr_t high = (first + length + page_size() - 1) & ~(page_size() - 1);
  low_.store(access == Access::kWrite ? low | kWritable : low, std::memory_order_relaxed);
  high_.store(high, std::memory_order_relaxed);
  when_.store(when, std::memory_order_relaxed);
  turn_.store(turn + 2, std::memory_order_release);
}

namespace {

// Neighbours that differ in names or policies only are as good as one.
std::optional<Mapping> mapping_of(uintptr_t address, size_t length, Access access) {
  auto mapping = mapping_at(address, access);
  while (mapping && mapping->end > address && !mapping->covers(address, length)) {
    const auto next = mapping_at(mapping->end, access);
    if (!next || next->first != mapping->end) break;
    mapping->end = next->end;
    mapping->file = mapping->file || next->file;
  }
  return mapping;
}

}  // namespace

std::optional<Mapping> MappingProof::look(uintptr_t address, size_t length, Access access) {
  const bool known = seen_ && seen_->mapping && seen_->access == access &&
                     seen_->mapping->covers(address, length) &&
                     ProofStamp::believed(seen_->when, kProofMicroseconds);
  if (!known) {
    const uint64_t when = ProofClock::now();
    seen_ = {mapping_of(address, length, access), access, when};
  }
  return seen_->mapping;
}

thread_local StandingProofs StandingProofs::current_;

void StandingProofs::remember(ProofStamp& stamp, const void* data, size_t length, Access access) {
  current_.places_[static_cast<size_t>(access)] = {&stamp, data, length, ProofClock::now()};
  current_.renewals_ = 0;
}

void StandingProofs::go_on() { current_.renewals_ = 0; }

void StandingProofs::renew() {
  constexpr unsigned kMost = 64;
  const uint32_t aging = kProofMicroseconds / 2;
  if (current_.renewals_ >= kMost) return;
  for (const Access access : {Access::kRead, Access::kWrite}) {
    Place& place = current_.places_[static_cast<size_t>(access)];
    if (place.stamp == nullptr || place.stamp->covers(place.data, place.length, access, aging)) continue;
    if (!ProofStamp::believed(place.remembered, UINT32_MAX)) {
      place = {};
      continue;
    }
    const uint64_t when = ProofClock::now();
    ++current_.renewals_;
    if (accessible(place.data, place.length, access))
      place.stamp->renew(place.data, place.length, access, when);
    else
      place = {};
  }
}

void store_ascending(std::byte* to, const std::byte* from, size_t length) {
  const auto store = [&]<typename T>(T word) {
    using Word [[gnu::may_alias]] = T;
    std::memcpy(&word, from, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
  };
  while (length != 0) {
    const size_t alignment = size_t{1} << std::countr_zero(reinterpret_cast<uintptr_t>(to) | kTail);
    const size_t size = std::min(alignment, std::bit_floor(length));
    if (size == 8)
      store(uint64_t{});
    else if (size == 4)
      store(uint32_t{});
    else if (size == 2)
      store(uint16_t{});
    else
      store(uint8_t{});
    to += size;
    from += size;
    length -= size;
  }
}

size_t copy_payloads(std::byte* to, size_t each, size_t most, engine::Tail tail,
                     engine::MorePayloads& payloads) {
  size_t count = 0;
  for (; count < most; ++count) {
    const auto payload = payloads.next();
    if (payload.empty()) break;
    copy_in_order(to + count * each, payload.data(), each, tail);
  }
  return count;
}

bool accessible(const void* data, size_t length, Access access) {
  return prove(data, length, access) == Proof::kAccessible;
}

std::optional<uint64_t> accessible_again(const void* data, size_t length, Access access, ProofStamp& stamp,
                                         MappingProof& proof) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  if (stamp.covers(data, length, access, kPagesMicroseconds)) {
    const auto mapping = proof.look(first, length, access);
    const bool recently = stamp.covers(data, length, access, kPermissionMicroseconds);
    if (mapping && mapping->covers(first, length) && (recently || !mapping->file)) return proof.when();
    if (!mapping && recently) {
      const uint64_t when = ProofClock::now();
      const uintptr_t page = first & ~(page_size() - 1);
      // With MS_ASYNC nothing is written; it fails where something isn't mapped.
      // Not by the C library's, which is a cancellation point (adr/0016).
      if (::syscall(SYS_msync, page, first + length - page, MS_ASYNC) == 0) return when;
      return std::nullopt;
    }
  }
  const uint64_t when = ProofClock::now();
  ProofClock::calibrate();
  if (!accessible(data, length, access)) return std::nullopt;
  stamp.renew(data, length, access, when);
  return when;
}

bool prove_and_copy(void* to, const void* from, size_t length, Tail tail, Access access, ProofStamp& stamp,
                    uintptr_t proof_end) {
  if (length == 0) return true;
  const uint64_t when = ProofClock::now();
  ProofClock::calibrate();
  const void* program = access == Access::kWrite ? to : from;
  const auto first = reinterpret_cast<uintptr_t>(program);
  if (proof_end > first + length && prove(program, proof_end - first, access) == Proof::kAccessible) {
    copy_in_order(to, from, length, tail);
    stamp.renew(program, proof_end - first, access, when);
    return true;
  }
  switch (prove(program, length, access)) {
    case Proof::kAccessible:
      copy_in_order(to, from, length, tail);
      break;
    case Proof::kFault:
      return false;
    case Proof::kCantTell: {
      const iovec ours{access == Access::kWrite ? const_cast<void*>(from) : to, length};
      const iovec theirs{const_cast<void*>(program), length};
      if (copy_in_own(access == Access::kWrite ? Way::kThere : Way::kHere, {&ours, 1}, {&theirs, 1}, tail) !=
          Copied::kAll)
        return false;
    }
  }
  stamp.renew(program, length, access, when);
  return true;
}

}  // namespace verbena::verbs
