#include "net/pcapng.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace verbena::net {
namespace {

// Block types, options and link types as the pcapng specification numbers them.
constexpr uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr uint32_t kInterfaceDescription = 1;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrder = 0x1a2b3c4d;
constexpr uint32_t kRawIp = 101;
constexpr uint16_t kApplication = 4;
constexpr uint16_t kName = 2;
constexpr uint16_t kTimeResolution = 9;
constexpr uint16_t kFlags = 2;

constexpr size_t kFlushBytes = 256 * 1024;

size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }
size_t option_bytes(size_t value) { return 4 + padded(value); }
constexpr size_t kEndOfOptions = 4;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A write past RLIMIT_FSIZE doesn't fail, it kills (SIGXFSZ).
uint64_t file_size_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

base::Result<std::unique_ptr<Pcapng>> Pcapng::create(const std::string& path, uint64_t max_bytes) {
  // Without O_NONBLOCK a FIFO that nobody reads would hold the program up.
  base::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file) return base::fail_errno("creating the capture file " + path);
  struct stat st {};
  // A pipe whose reader leaves would kill the program (SIGPIPE).
  if (::fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode))
    return base::fail(EINVAL, "the capture " + path + " isn't a regular file");
  std::unique_ptr<Pcapng> capture(new Pcapng(std::move(file), std::min(max_bytes, file_size_limit())));
  capture->write_heading();
  if (capture->ended_) return base::fail(EIO, "writing to the capture file " + path + " failed");
  return capture;
}

void Pcapng::write_heading() {
  const std::lock_guard lock(mutex_);
  const auto application = bytes_of("Verbena");
  const auto section = static_cast<uint32_t>(28 + option_bytes(application.size()) + kEndOfOptions);
  put(kSectionHeader);
  put(section);
  put(kByteOrder);
  put(1);           // version 1.0: the major number is the low half
  put(0xffffffff);  // the section's length isn't known
  put(0xffffffff);
  put_option(kApplication, application);
  put(0);
  put(section);

  const auto name = bytes_of("verbena");
  const std::byte nanoseconds{9};
  const auto interface =
      static_cast<uint32_t>(20 + option_bytes(name.size()) + option_bytes(1) + kEndOfOptions);
  put(kInterfaceDescription);
  put(interface);
  put(kRawIp);
  put(0);  // packets are never cut
  put_option(kName, name);
  put_option(kTimeResolution, {&nanoseconds, 1});
  put(0);
  put(interface);
  write_out();
}

void Pcapng::add(Direction direction, uint64_t ns, std::span<const std::byte> headers,
                 std::span<const std::byte> rest) {
  const std::lock_guard lock(mutex_);
  const size_t length = headers.size() + rest.size();
  const auto flags = static_cast<uint32_t>(direction);
  const auto block = static_cast<uint32_t>(32 + padded(length) + option_bytes(sizeof flags) + kEndOfOptions);
  if (written_ + pending_.size() + block > max_bytes_) ended_ = true;
  if (ended_) {
    ++missing_;
    return;
  }
  put(kEnhancedPacket);
  put(block);
  put(0);  // the only interface
  put(static_cast<uint32_t>(ns >> 32));
  put(static_cast<uint32_t>(ns));
  put(static_cast<uint32_t>(length));
  put(static_cast<uint32_t>(length));
  pending_.insert(pending_.end(), headers.begin(), headers.end());
  pending_.insert(pending_.end(), rest.begin(), rest.end());
  pending_.resize(padded(pending_.size()));  // all before it is whole words
  put_option(kFlags, std::as_bytes(std::span(&flags, 1)));
  put(0);
  put(block);
  ++pending_packets_;
  if (pending_.size() >= kFlushBytes) write_out();
}

void Pcapng::flush() {
  const std::lock_guard lock(mutex_);
  write_out();
}

uint64_t Pcapng::packets() const {
  const std::lock_guard lock(mutex_);
  return packets_ + pending_packets_;
}

uint64_t Pcapng::missing() const {
  const std::lock_guard lock(mutex_);
  return missing_;
}

void Pcapng::put(uint32_t value) { put_bytes(std::as_bytes(std::span(&value, 1))); }

void Pcapng::put_bytes(std::span<const std::byte> bytes) {
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  pending_.resize(padded(pending_.size()));
}

void Pcapng::put_option(uint16_t code, std::span<const std::byte> value) {
  put(static_cast<uint32_t>(code) | static_cast<uint32_t>(value.size()) << 16);
  put_bytes(value);
}

void Pcapng::write_out() {
  std::span<const std::byte> rest(pending_);
  const int file = file_.get();
  const uint64_t end = written_ + pending_.size();
  // Limits can be lowered while a program runs.
  bool good = file >= 0 && end <= file_size_limit();
  while (good && !rest.empty()) {
    const ssize_t wrote = ::write(file, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    good = wrote > 0;
    if (good) rest = rest.subspan(static_cast<size_t>(wrote));
  }
  if (good) {
    written_ = end;
    packets_ += pending_packets_;
  } else {
    // A block cut short would make the whole file unreadable to some: back to the last whole batch.
    if (file >= 0 && rest.size() < pending_.size()) (void)!::ftruncate(file, static_cast<off_t>(written_));
    ended_ = true;
    missing_ += pending_packets_;
  }
  pending_packets_ = 0;
  pending_.clear();
}

}  // namespace verbena::net
