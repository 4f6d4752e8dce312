#include "verbs/mapping.hpp"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "base/no_cancel.hpp"
#include "base/page_size.hpp"
#include "base/unique_fd.hpp"

namespace verbena::verbs {
namespace {

// A number of 32 bits that belongs to an address space: a child has none of its parent's.
class OwnWord {
 public:
  explicit OwnWord(std::atomic<uint64_t>& word) : word_(word) {}
  [[nodiscard]] std::optional<uint32_t> get() const {
    const uint64_t value = word_.load(std::memory_order_acquire);
    if ((value & ~uint64_t{UINT32_MAX}) != kMark) return std::nullopt;
    return static_cast<uint32_t>(value);
  }
  void set(uint32_t number) { word_.store(kMark | number, std::memory_order_release); }

 private:
  // The page may lie where the program had registered memory and unmapped it, and a peer still writes.
  static constexpr uint64_t kMark = 0x9d3f'62c1ULL << 32;
  std::atomic<uint64_t>& word_;
};

struct OwnPage {
  std::atomic<uint64_t> pid;
  std::atomic<uint64_t> maps;
};

// Empty again after fork(), however that was called. Null: there can be none.
OwnPage* own_page() {
  static std::atomic<OwnPage*> kept = nullptr;
  OwnPage* known = kept.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  void* page = ::mmap(nullptr, base::page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, base::page_size(), MADV_WIPEONFORK) == 0) {
    auto* made = static_cast<OwnPage*>(page);
    if (kept.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
  }
  ::munmap(page, base::page_size());
  return known;
}

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

// Tells of the mappings of the address space in which it was opened.
struct Maps {
  uint32_t number;
  base::GuardedFd file;
  mutable std::atomic<bool> mute = false;  // it has refused to answer once
};

// The parent's is leaked in a child: another of its threads may have been using it. Null: there is none.
const Maps* own_maps() {
  static std::atomic<const Maps*> opened = nullptr;
  static std::atomic<uint32_t> numbers = 0;
  OwnPage* page = own_page();
  if (page == nullptr) return nullptr;
  OwnWord ours(page->maps);
  const Maps* known = opened.load(std::memory_order_acquire);
  if (known != nullptr && ours.get() == known->number) return known;
  const base::NoCancel no_cancel;
  base::GuardedFd file(base::high(base::UniqueFd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC))));
  auto made = std::make_unique<Maps>(++numbers, std::move(file));
  // Another thread's is as good.
  if (!opened.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return known;
  ours.set(made->number);
  return made.release();
}

}  // namespace

std::optional<Mapping> mapping_at(uintptr_t address, Access access) {
  const Maps* maps = own_maps();
  if (maps == nullptr || maps->mute.load(std::memory_order_relaxed)) return std::nullopt;
  const int fd = maps->file.get_often();
  if (fd < 0) return std::nullopt;
  Query query{.flags = access == Access::kWrite ? kWritable : kReadable, .address = address};
  // As it is: the program may have an ioctl() of its own.
  if (::syscall(SYS_ioctl, fd, kProcmapQuery, &query) == 0)
    return Mapping{query.first, query.end,
                   query.inode != 0 || query.device_major != 0 || query.device_minor != 0};
  if (errno == ENOENT) return Mapping{};
  if (errno != EINTR) maps->mute.store(true, std::memory_order_relaxed);
  return std::nullopt;
}

pid_t own_pid() {
  OwnPage* page = own_page();
  if (page == nullptr) return ::getpid();
  OwnWord word(page->pid);
  if (const auto pid = word.get()) return static_cast<pid_t>(*pid);
  const pid_t pid = ::getpid();
  word.set(static_cast<uint32_t>(pid));
  return pid;
}

}  // namespace verbena::verbs
