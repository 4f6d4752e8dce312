#include "local/process_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace verbena::local {

using engine::Copied;
using engine::Tail;
using verbs::Order;
using verbs::PieceCursor;
using verbs::ProofClock;
using verbs::Way;

namespace {

// Measured (Xeon 2.8 GHz, Linux 6.18; median ns, memory file against process_vm_*): one copy of 64 B 480
// against 590, of 4 KiB 530 against 610, of 8 KiB 810 against 740, of 64 KiB 5,640 against 3,110. Each cut or
// piece more costs the file another 400, process_vm_* 25: so the file is best for a single small copy only.
constexpr size_t kFileBest = 4096;
// When the proof is stale, a transfer up to this size goes through the file, which renews it by the way;
// beyond, asking first (450) and process_vm_* is cheaper.
constexpr size_t kFileRenews = 8192;
constexpr uint32_t kAliveMicroseconds = 50;

// 0 is the memory file's way to say that its address space is no more.
bool alive(int memory, const void* address) {
  char byte = 0;
  return ::pread(memory, &byte, 1, static_cast<off_t>(reinterpret_cast<uintptr_t>(address))) != 0;
}

ssize_t copy_range(int memory, Way way, std::span<const iovec> here, const void* there) {
  const auto position = static_cast<off_t>(reinterpret_cast<uintptr_t>(there));
  if (here.size() == 1)  // a list of one costs 100 ns more than none
    return way == Way::kThere ? ::pwrite(memory, here[0].iov_base, here[0].iov_len, position)
                              : ::pread(memory, here[0].iov_base, here[0].iov_len, position);
  const auto count = static_cast<int>(here.size());
  return way == Way::kThere ? ::pwritev(memory, here.data(), count, position)
                            : ::preadv(memory, here.data(), count, position);
}

}  // namespace

struct ProcessMemory::Transfer {
  Transfer(Way direction, std::span<const iovec> ours, std::span<const iovec> theirs, Tail tail)
      : way(direction),
        order(Order::of(direction == Way::kThere ? theirs : ours, tail)),
        here(ours),
        there(theirs) {}

  [[nodiscard]] bool one_copy() const {
    return here.contiguous() == order.total && there.contiguous() == order.total &&
           order.next_cut(0) == order.total;
  }

  Way way;
  Order order;
  PieceCursor here;
  PieceCursor there;
};

ProcessMemory::ProcessMemory(pid_t pid, base::UniqueFd memory) : pid_(pid), memory_(std::move(memory)) {}

void ProcessMemory::probe(uint64_t readable_address) {
  char byte = 0;
  const iovec local{&byte, 1};
  const iovec remote{reinterpret_cast<void*>(readable_address), 1};
  permitted_.store(::process_vm_readv(pid_, &local, 1, &remote, 1, 0) == 1, std::memory_order_relaxed);
}

Copied ProcessMemory::write(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  return copy(Transfer(Way::kThere, here, there, tail));
}

Copied ProcessMemory::read(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  return copy(Transfer(Way::kHere, here, there, tail));
}

Copied ProcessMemory::copy(Transfer transfer) {
  const size_t total = transfer.order.total;
  if (total == 0) return Copied::kAll;
  const uint64_t now = ProofClock::now();
  const bool fresh = ProofClock::within(seen_alive_.load(std::memory_order_relaxed), now, kAliveMicroseconds);
  const int memory = memory_.get();  // asked each time: its number may be a file of the program's by now
  if (memory < 0) return copy_by_pid_alone(transfer);

  bool by_pid = permitted() && !(total <= kFileBest && transfer.one_copy());
  if (!fresh) {
    ProofClock::calibrate();
    by_pid = by_pid && total > kFileRenews;
    if (by_pid && !alive(memory, transfer.there.address())) return Copied::kOwnerGone;
  }
  if (by_pid) {
    if (!fresh) seen_alive_.store(now, std::memory_order_relaxed);
    const int error =
        verbs::copy_by_kernel(pid_, transfer.way, transfer.here, transfer.there, transfer.order);
    if (error == 0) return Copied::kAll;
    // ESRCH may only mean that the owner's main thread has ended: the pid is of no use any more, the file is.
    if (error != EFAULT && error != ENOMEM) permitted_.store(false, std::memory_order_relaxed);
  }
  const Copied copied = copy_by_file(transfer, memory);
  if (!fresh && copied != Copied::kOwnerGone) seen_alive_.store(now, std::memory_order_relaxed);
  return copied;
}

Copied ProcessMemory::copy_by_file(Transfer& transfer, int memory) {
  std::array<iovec, verbs::kPiecesPerCall> local;
  // One contiguous range of the owner's per call. The kernel walks our list and makes a copy for each
  // element, so that cuts keep the order here too.
  while (transfer.here.contiguous() != 0) {
    const size_t range = transfer.there.contiguous();
    if (range == 0) return Copied::kFaultThere;
    const size_t count = transfer.here.fill(local, range, transfer.order);
    const ssize_t copied = copy_range(memory, transfer.way, {local.data(), count}, transfer.there.address());
    if (copied == 0) return Copied::kOwnerGone;
    if (copied < 0) {
      if (errno == EBADF) return copy_by_pid_alone(transfer);  // the program closed it a moment ago
      return errno == EFAULT ? Copied::kFaultHere : Copied::kFaultThere;
    }
    verbs::separate_calls();
    transfer.here.advance(static_cast<size_t>(copied));
    transfer.there.advance(static_cast<size_t>(copied));
  }
  return Copied::kAll;
}

Copied ProcessMemory::copy_by_pid_alone(Transfer& transfer) {
  if (!permitted()) return Copied::kOwnerGone;
  const int error = verbs::copy_by_kernel(pid_, transfer.way, transfer.here, transfer.there, transfer.order);
  if (error == 0) return Copied::kAll;
  if (error == ESRCH) return Copied::kOwnerGone;
  if (error != EFAULT) return Copied::kFaultThere;
  const bool source_is_here = transfer.way == Way::kThere;
  const bool source_fault = source_is_here ? !verbs::source_readable(::gettid(), transfer.here)
                                           : !verbs::source_readable(pid_, transfer.there);
  return source_fault == source_is_here ? Copied::kFaultHere : Copied::kFaultThere;
}

}  // namespace verbena::local
