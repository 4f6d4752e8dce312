#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace verbena::rc {
namespace {

constexpr uint64_t kPeriod = 65521;  // a prime: no power-of-two error in an address maps a pattern on itself

// Two periods, so that any period that begins inside the first is contiguous. Bulk copies keep tests that are
// compiled without optimisation fast.
const std::vector<std::byte>& table() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(2 * kPeriod);
    uint32_t state = 12345;
    for (uint64_t i = 0; i < kPeriod; ++i) {
      state = state * 1664525 + 1013904223;
      made[i] = made[i + kPeriod] = static_cast<std::byte>(state >> 24);
    }
    return made;
  }();
  return bytes;
}

template <typename Part>
void in_periods(uint64_t length, uint64_t seed, Part part) {
  const std::byte* from = table().data() + seed * 7919 % kPeriod;
  for (uint64_t done = 0; done < length; done += kPeriod)
    if (!part(done, from, std::min(kPeriod, length - done))) return;
}

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

Memory::Memory(uint64_t length, Backing backing) : length_(length) {
  mapped_ = std::max<uint64_t>((length + 4095) & ~uint64_t{4095}, 4096);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (backing == Backing::kShared) {
    flags = MAP_SHARED;
    fd_ = ::memfd_create("rc-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(mapped_)) != 0 ||
        ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
      fail("memfd");
  }
  void* data = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (data == MAP_FAILED) fail("mmap");
  data_ = static_cast<std::byte*>(data);
  if (mapped_ >= 4 << 20) ::madvise(data, mapped_, MADV_HUGEPAGE);  // else gigabytes are all page faults
}

Memory::~Memory() {
  if (hole_ > 0) ::munmap(data_, hole_);
  if (mapped_ > hole_end_) ::munmap(data_ + hole_end_, mapped_ - hole_end_);
  if (fd_ >= 0) ::close(fd_);
}

int Memory::unmap(uint64_t offset, uint64_t length) {
  if (::munmap(data_ + offset, length) != 0) return errno;
  hole_ = offset;
  hole_end_ = offset + ((length + 4095) & ~uint64_t{4095});
  return 0;
}

void fill_pattern(std::byte* data, uint64_t length, uint64_t seed) {
  in_periods(length, seed, [&](uint64_t at, const std::byte* from, uint64_t size) {
    std::memcpy(data + at, from, size);
    return true;
  });
}

int64_t pattern_mismatch(const std::byte* data, uint64_t length, uint64_t seed) {
  int64_t found = -1;
  in_periods(length, seed, [&](uint64_t at, const std::byte* from, uint64_t size) {
    if (std::memcmp(data + at, from, size) == 0) return true;
    const auto differs = std::mismatch(from, from + size, data + at);
    found = static_cast<int64_t>(at) + (differs.first - from);
    return false;
  });
  return found;
}

}  // namespace verbena::rc
