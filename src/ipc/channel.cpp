#include "ipc/channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/received_fds.hpp"

namespace verbena::ipc {
namespace {

constexpr size_t kControlSize = CMSG_SPACE(sizeof(int) * kMaxDescriptors);

}  // namespace

base::Result<void> send_bytes(int socket, Kind kind, std::span<const std::byte> payload,
                              std::span<const int> fds) {
  CHECK(payload.size() <= kMaxPayload && fds.size() <= kMaxDescriptors);
  Header head{.kind = kind};
  iovec parts[] = {{&head, sizeof head}, {const_cast<std::byte*>(payload.data()), payload.size()}};
  alignas(cmsghdr) std::byte control[kControlSize]{};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = payload.empty() ? 1 : 2;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) return base::fail_errno("sending a control message");
  return {};
}

base::Result<Message> receive(int socket) {
  std::byte buffer[sizeof(Header) + kMaxPayload];
  alignas(cmsghdr) std::byte control[kControlSize];
  iovec part{buffer, sizeof buffer};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got = 0;
  // A peer that closed without reading all we sent shows as ECONNRESET once, even if its last words still
  // wait.
  bool reset = false;
  do got = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (got < 0) return base::fail_errno("receiving a control message");

  Message message;
  message.fds = base::received_fds(header);
  if (got == 0) return base::fail(ECONNRESET, "the peer closed the control connection");
  Header head;
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || static_cast<size_t>(got) < sizeof head)
    return base::fail(
        EPROTO,
        "a control message is too long, too short, or has more descriptors than allowed (or than "
        "fit into this process: ulimit -n)");
  std::memcpy(&head, buffer, sizeof head);
  if (head.magic != kMagic) return base::fail(EPROTO, "a control message doesn't begin as one of Verbena's");
  if (head.version != kProtocolVersion)
    return base::fail(EPROTONOSUPPORT,
                      "the host agent and this program come from different versions of Verbena (protocols " +
                          std::to_string(kProtocolVersion) + " and " + std::to_string(head.version) +
                          "); end the programs that use the old one, then `verbena agent stop`");
  message.kind = head.kind;
  message.payload.assign(buffer + sizeof head, buffer + got);
  return message;
}

void wait_idly(int fd, base::Instant until) {
  const auto left = until - base::now();
  if (left.count() <= 0) return;
  pollfd ready{fd, POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left.count() / 1'000'000 + 1, 1000)));
}

base::Result<Message> receive_until(int socket, base::Instant deadline, const Waiting& waiting) {
  for (;;) {
    auto message = receive(socket);
    if (message || message.error().code != EAGAIN) return message;
    if (base::now() >= deadline) return base::fail(ETIMEDOUT, "the host agent didn't answer in time");
    waiting(socket, deadline);
  }
}

}  // namespace verbena::ipc
