#include "transfer.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace verbena::rc {
namespace {

bool write_all(int fd, const void* data, size_t length) {
  const auto* next = static_cast<const std::byte*>(data);
  while (length > 0) {
    const ssize_t done = ::write(fd, next, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    next += done;
    length -= static_cast<size_t>(done);
  }
  return true;
}

bool read_all(int fd, void* data, size_t length, int milliseconds) {
  auto* next = static_cast<std::byte*>(data);
  while (length > 0) {
    pollfd ready{fd, POLLIN, 0};
    const int woke = ::poll(&ready, 1, milliseconds);
    if (woke < 0 && errno == EINTR) continue;
    if (woke <= 0) return false;
    const ssize_t done = ::read(fd, next, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    next += done;
    length -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace

bool send_bytes(int fd, const Bytes& bytes) {
  Bytes framed;
  append(framed, static_cast<uint32_t>(bytes.size()));
  framed.insert(framed.end(), bytes.begin(), bytes.end());
  return write_all(fd, framed.data(), framed.size());
}

std::optional<Bytes> receive_bytes(int fd, int milliseconds) {
  uint32_t length = 0;
  if (!read_all(fd, &length, sizeof length, milliseconds)) return std::nullopt;
  Bytes bytes(length);
  if (!read_all(fd, bytes.data(), length, milliseconds)) return std::nullopt;
  return bytes;
}

}  // namespace verbena::rc
