// The descriptors that came with a message (SCM_RIGHTS), owned from the first moment.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "base/unique_fd.hpp"

namespace verbena::base {

[[nodiscard]] inline std::vector<UniqueFd> received_fds(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace verbena::base
