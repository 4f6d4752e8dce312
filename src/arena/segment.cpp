#include "arena/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

namespace verbena::arena {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

int seals_of(Sharing sharing) {
  return sharing == Sharing::kOwnerWrites ? kSizeSeals | F_SEAL_FUTURE_WRITE : kSizeSeals;
}

}  // namespace

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

base::Result<Mapping> map(int fd, size_t size, Access access) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return base::fail_errno(fmt::format("mapping {} bytes of shared memory", size));
  ::madvise(data, size, MADV_DONTFORK);
  return Mapping(static_cast<std::byte*>(data), size);
}

base::Result<Segment> create_sealed(const char* name, size_t size, Sharing sharing) {
  // Past this limit ftruncate() doesn't fail, it kills (SIGXFSZ), though a memfd is no file that fills a
  // disk.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
    return base::fail(
        EFBIG,
        fmt::format("a shared segment of {} MiB is larger than this process may make files (ulimit -f)",
                    size >> 20));
  base::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return base::fail_errno("creating a shared segment");
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0)
    return base::fail_errno("sizing a shared segment");
  // Map before sealing: F_SEAL_FUTURE_WRITE spares mappings that exist.
  auto mapping = map(fd.get(), size, Access::kReadWrite);
  if (!mapping) return std::unexpected(mapping.error());
  if (::fcntl(fd.get(), F_ADD_SEALS, seals_of(sharing) | F_SEAL_SEAL) != 0)
    return base::fail_errno("sealing a shared segment");
  return Segment{std::move(fd), std::move(*mapping)};
}

base::Result<size_t> check_sealed(int fd, Sharing sharing, size_t max_size) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return base::fail_errno("a segment isn't a memfd");
  if ((seals & seals_of(sharing)) != seals_of(sharing))
    return base::fail(EPERM, fmt::format("a segment lacks its seals (has {:#x})", seals));
  struct stat st {};
  if (::fstat(fd, &st) != 0) return base::fail_errno("looking at a segment");
  if (st.st_size <= 0 || static_cast<size_t>(st.st_size) > max_size)
    return base::fail(EINVAL, fmt::format("a segment of {} bytes is out of bounds", st.st_size));
  return static_cast<size_t>(st.st_size);
}

}  // namespace verbena::arena
