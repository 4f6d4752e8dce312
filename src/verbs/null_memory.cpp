#include "verbs/null_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {
// The sink is a file of this size, mapped over and over.
constexpr size_t kSinkBytes = size_t{4} << 20;
constexpr size_t kSpan = kMaxMessageBytes;
static_assert(kSpan % kSinkBytes == 0);
}  // namespace

// Never unmapped: a peer may be writing there when the last null region goes.
base::Result<NullMemory> NullMemory::create() {
  constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* zeros = ::mmap(nullptr, kSpan, PROT_READ, kReserve, -1, 0);
  void* sink = zeros == MAP_FAILED ? MAP_FAILED : ::mmap(nullptr, kSpan, PROT_NONE, kReserve, -1, 0);
  if (sink == MAP_FAILED) return base::fail_errno("finding room for a null memory region");
  const base::UniqueFd file(::memfd_create("verbena-null", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), kSinkBytes) != 0)
    return base::fail_errno("making a null memory region");
  for (size_t at = 0; at < kSpan; at += kSinkBytes)
    if (::mmap(static_cast<std::byte*>(sink) + at, kSinkBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               file.get(), 0) == MAP_FAILED)
      return base::fail_errno("mapping a null memory region");
  NullMemory made;
  made.zeros_ = reinterpret_cast<uint64_t>(zeros);
  made.sink_ = reinterpret_cast<uint64_t>(sink);
  return made;
}

}  // namespace verbena::verbs
