#include "verbs/address_space.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "base/page_size.hpp"
#include "base/unique_fd.hpp"

namespace verbena::verbs {
namespace {

using base::page_size;

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// One line of /proc/self/maps.
struct MappedPart {
  uint64_t first = 0;
  uint64_t end = 0;
  bool readable = false;
  bool writable = false;
  bool shared = false;
  uint64_t offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

// Takes a number and the character after it from the front of a line.
std::optional<uint64_t> take_number(std::string_view& line, int radix, char after) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, radix);
  if (error != std::errc() || end == line.data() + line.size() || *end != after) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
  return value;
}

// "7f0000000000-7f0000001000 rw-s 00002000 00:01 1234   /memfd:name (deleted)"
std::optional<MappedPart> parse_line(std::string_view line) {
  MappedPart part;
  const auto first = take_number(line, 16, '-');
  const auto end = first ? take_number(line, 16, ' ') : std::nullopt;
  if (!end || line.size() < 5) return std::nullopt;
  part.readable = line[0] == 'r';
  part.writable = line[1] == 'w';
  part.shared = line[3] == 's';
  line.remove_prefix(5);
  const auto offset = take_number(line, 16, ' ');
  const auto major = offset ? take_number(line, 16, ':') : std::nullopt;
  const auto minor = major ? take_number(line, 16, ' ') : std::nullopt;
  // Anonymous memory's line may end with the inode, so that no space follows it.
  uint64_t inode = 0;
  if (!minor || std::from_chars(line.data(), line.data() + line.size(), inode).ec != std::errc())
    return std::nullopt;
  part.first = *first;
  part.end = *end;
  part.offset = *offset;
  part.device = makedev(static_cast<unsigned>(*major), static_cast<unsigned>(*minor));
  part.inode = static_cast<ino_t>(inode);
  return part;
}

// Calls `visit` for each part in order of address until it returns false.
template <typename Visit>
base::Result<void> visit_mappings(Visit visit) {
  const base::UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!maps) return base::fail_errno("reading /proc/self/maps to see what is registered");
  // A line's beginning is all we want; names, which may be long, are cut off.
  std::array<char, 128> line;
  size_t line_length = 0;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = ::read(maps.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::fail_errno("reading /proc/self/maps to see what is registered");
    if (got == 0) return {};
    for (const char c : std::string_view(buffer.data(), static_cast<size_t>(got))) {
      if (c != '\n') {
        if (line_length < line.size()) line[line_length++] = c;
        continue;
      }
      const auto part = parse_line({line.data(), line_length});
      line_length = 0;
      if (part && !visit(*part)) return {};
    }
  }
}

// The program's descriptor of a file, if it has one through which a peer could map it for writing.
int find_descriptor(dev_t device, ino_t inode, struct stat& found) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), ::closedir);
  if (!directory) return -1;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    if (::fstat(fd, &found) != 0 || found.st_dev != device || found.st_ino != inode) continue;
    if (!S_ISREG(found.st_mode)) continue;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) != 0 || (flags & O_ACCMODE) != O_RDWR) continue;
    const int seals = ::fcntl(fd, F_GET_SEALS);  // -1: a file that knows none
    if (seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) return -1;
    return fd;
  }
  return -1;
}

// What a file's mappings are counted in: huge pages come whole.
uint64_t mapping_unit(int fd) {
  struct statfs fs {};
  const bool huge = ::fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
  return huge ? static_cast<uint64_t>(fs.f_bsize) : page_size();
}

std::string range_text(uint64_t first, uint64_t end) { return fmt::format("{:#x} to {:#x}", first, end); }

}  // namespace

base::Result<Backing> inspect_range(uint64_t address, uint64_t length, bool writable) {
  if (length == 0) return Backing{};
  const uint64_t end = address + length;
  if (end < address || end > UINT64_MAX - (page_size() - 1))
    return base::fail(
        EINVAL, fmt::format("{} bytes from {:#x} on go past the end of the address space", length, address));
  uint64_t covered = address;       // accessible from `address` up to here
  std::optional<MappedPart> whole;  // the file mapping that all parts so far belong to
  std::optional<MappedPart> refused;
  bool one_file = true;
  const auto read = visit_mappings([&](const MappedPart& part) {
    if (part.end <= covered) return true;
    if (part.first > covered) return false;
    if (!(writable ? part.writable : part.readable)) {
      refused = part;
      return false;
    }
    // Parts of one mapping may have been split, by mprotect() or madvise(), and still be one piece of the
    // file.
    const uint64_t offset = part.offset + (covered - part.first);
    if (!whole) {
      whole = part;
      whole->offset = offset;
    }
    one_file = one_file && part.shared && part.device == whole->device && part.inode == whole->inode &&
               offset == whole->offset + (covered - address);
    covered = part.end;
    return covered < end;
  });
  if (!read) return std::unexpected(read.error());
  if (refused)
    return base::fail(
        EFAULT, fmt::format("memory {} can't be registered: {} isn't {}", range_text(address, end),
                            range_text(std::max(refused->first, address), std::min(refused->end, end)),
                            writable ? "writable; map it so, or register it for reading only" : "readable"));
  if (covered < end)
    return base::fail(EFAULT, fmt::format("memory {} can't be registered: nothing is mapped at {:#x}",
                                          range_text(address, end), covered));

  if (!one_file || whole->inode == 0) return Backing{};
  struct stat st {};
  const int fd = find_descriptor(whole->device, whole->inode, st);
  if (fd < 0) return Backing{};
  const uint64_t file_end = round_up(static_cast<uint64_t>(st.st_size), page_size());
  if (whole->offset + length > file_end)
    return base::fail(EFAULT,
                      fmt::format("memory {} can't be registered: its file ends after {} bytes, before "
                                  "the range does; make it longer with ftruncate",
                                  range_text(address, end), st.st_size));
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return Backing{.fd = fd,
                 .device = whole->device,
                 .inode = whole->inode,
                 .offset = whole->offset,
                 .fixed_size = seals >= 0 && (seals & F_SEAL_SHRINK) != 0};
}

base::Result<PeerMapping> map_peer_file(pid_t pid, const Backing& backing, uint64_t length) {
  if (!backing.mappable() || length == 0)
    return base::fail(EINVAL, fmt::format("process {} described no memory that could be mapped", pid));
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, backing.fd);
  const auto same = [&](const struct stat& st) {
    return S_ISREG(st.st_mode) && st.st_dev == backing.device && st.st_ino == backing.inode;
  };
  // Looked at before it is opened, for opening some kinds of files does something; and after, for the peer
  // may have put another in its place.
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    const int code = errno;
    const bool gone = code == ENOENT || code == ESRCH;
    return base::fail(gone ? ESTALE : code, fmt::format("looking at {}: {}", path, std::strerror(code)));
  }
  base::UniqueFd fd;
  if (same(st)) {
    fd.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd) return base::fail_errno(fmt::format("opening {}, the memory of a peer", path));
  }
  if (!fd || ::fstat(fd.get(), &st) != 0 || !same(st))
    return base::fail(ESTALE, fmt::format("{} isn't the registered memory any more", path));

  // Its word for it isn't enough: memory that can be cut off would be our end, not its.
  if (const int kept = ::fcntl(fd.get(), F_GET_SEALS);
      backing.fixed_size && (kept < 0 || (kept & F_SEAL_SHRINK) == 0))
    return base::fail(ESTALE, fmt::format("{} isn't sealed against shrinking, as its owner says", path));

  const uint64_t unit = mapping_unit(fd.get());
  const uint64_t before = backing.offset % unit;
  const uint64_t file_end = round_up(static_cast<uint64_t>(st.st_size), unit);
  if (length > file_end || backing.offset > file_end - length)
    return base::fail(EFAULT, fmt::format("{} has {} bytes, too few for {} from {} on", path, st.st_size,
                                          length, backing.offset));
  const uint64_t size = round_up(before + length, unit);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                      static_cast<off_t>(backing.offset - before));
  if (data == MAP_FAILED) return base::fail_errno(fmt::format("mapping {} bytes of {}", size, path));
  ::madvise(data, size, MADV_DONTFORK);
  return PeerMapping(arena::Mapping(static_cast<std::byte*>(data), size), before, length);
}

}  // namespace verbena::verbs
