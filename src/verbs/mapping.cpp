#include "verbs/mapping.hpp"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "base/unique_fd.hpp"

namespace verbena::verbs {
namespace {

// PROCMAP_QUERY of linux/fs.h, which headers older than 6.11 don't have.
struct Query {
  uint64_t size = sizeof(Query);
  uint64_t flags = 0;
  uint64_t address = 0;
  uint64_t first = 0;
  uint64_t end = 0;
  uint64_t mapping_flags = 0;
  uint64_t page_bytes = 0;
  uint64_t offset = 0;
  uint64_t inode = 0;
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint32_t name_bytes = 0;
  uint32_t build_id_bytes = 0;
  uint64_t name = 0;
  uint64_t build_id = 0;
};
static_assert(sizeof(Query) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, Query);
constexpr uint64_t kReadable = 1;
constexpr uint64_t kWritable = 2;

// A descriptor of the mappings of one address space: that of who opened it.
struct Maps {
  pid_t pid;
  base::GuardedFd file;
};

// A child has an address space of its own, and its parent's descriptor; who closes descriptors that it
// doesn't know gets no answers from then on. What was opened before is leaked: another thread may use it.
const Maps& own_maps() {
  static std::atomic<const Maps*> opened = nullptr;
  const pid_t pid = own_pid();
  const Maps* known = opened.load(std::memory_order_acquire);
  if (known != nullptr && known->pid == pid) return *known;
  auto made = std::make_unique<Maps>(
      pid, base::GuardedFd(base::high(base::UniqueFd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)))));
  if (opened.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

std::optional<Mapping> mapping_at(uintptr_t address, Access access) {
  const int fd = own_maps().file.get_often();
  if (fd < 0) return std::nullopt;
  Query query{.flags = access == Access::kWrite ? kWritable : kReadable, .address = address};
  // As it is: the program may have an ioctl() of its own.
  if (::syscall(SYS_ioctl, fd, kProcmapQuery, &query) == 0)
    return Mapping{query.first, query.end, query.inode != 0};
  if (errno == ENOENT) return Mapping{};
  return std::nullopt;
}

// It is kept in a page that is empty again after fork(), however that was called: with the parent's pid a
// child would write into its parent. The mark beside it is there because the page may lie where the program
// had registered memory and unmapped it, and a peer still writes.
pid_t own_pid() {
  constexpr uint64_t kMark = 0x9d3f'62c1ULL << 32;
  static std::atomic<std::atomic<uint64_t>*> kept = nullptr;
  std::atomic<uint64_t>* word = kept.load(std::memory_order_acquire);
  if (word == nullptr) {
    void* page = ::mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return ::getpid();
    if (::madvise(page, page_size(), MADV_WIPEONFORK) != 0) {
      ::munmap(page, page_size());
      return ::getpid();
    }
    word = static_cast<std::atomic<uint64_t>*>(page);
    std::atomic<uint64_t>* none = nullptr;
    if (!kept.compare_exchange_strong(none, word, std::memory_order_acq_rel)) {
      ::munmap(page, page_size());
      word = none;
    }
  }
  const uint64_t value = word->load(std::memory_order_relaxed);
  if ((value & ~uint64_t{UINT32_MAX}) == kMark) return static_cast<pid_t>(value & UINT32_MAX);
  const pid_t pid = ::getpid();
  word->store(kMark | static_cast<uint32_t>(pid), std::memory_order_relaxed);
  return pid;
}

}  // namespace verbena::verbs
