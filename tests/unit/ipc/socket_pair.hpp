// Two ends of a control connection, and ways to put anything onto one.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/unique_fd.hpp"
#include "ipc/channel.hpp"

namespace verbena::ipc {

struct SocketPair {
  SocketPair() {
    int ends[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    near.reset(ends[0]);
    far.reset(ends[1]);
  }
  base::UniqueFd near;
  base::UniqueFd far;
};

inline size_t open_descriptors() {
  std::filesystem::directory_iterator directory("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(directory), end(directory)));
}

// A packet that ipc::send would never make.
inline void send_raw(int socket, std::string_view bytes, std::span<const int> fds = {}) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 253)]{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ASSERT_EQ(static_cast<ssize_t>(bytes.size()), ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT))
      << std::strerror(errno);
}

inline std::string bytes_of(const Header& header, size_t payload = 0) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes + std::string(payload, 'p');
}

}  // namespace verbena::ipc
