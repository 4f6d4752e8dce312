#include "net/park.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cstring>

#include "base/check.hpp"
#include "base/numbers.hpp"
#include "base/received_fds.hpp"

namespace verbena::net {
namespace {

// The kernel takes at most 253 descriptors in one message (SCM_MAX_FD): registry and group fit into one.
constexpr size_t kMaxParked = 253;
static_assert(1 + base::kSteeredSlots <= kMaxParked);
constexpr char kMark = 'P';

}  // namespace

base::Result<base::UniqueFd> create_park(int registry, std::span<const base::UniqueFd> group) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return base::fail_errno("creating the park");
  const base::UniqueFd sender(ends[0]);
  base::UniqueFd park(ends[1]);

  std::vector<int> fds{registry};
  for (const auto& socket : group) fds.push_back(socket.get());
  CHECK(fds.size() <= kMaxParked);
  const size_t bytes = fds.size() * sizeof(int);
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kMaxParked * sizeof(int))]{};
  char mark = kMark;
  iovec part{&mark, sizeof mark};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(c), fds.data(), bytes);
  if (::sendmsg(sender.get(), &header, MSG_NOSIGNAL) != sizeof mark)
    return base::fail_errno(fmt::format("parking {} descriptors", fds.size()));
  return park;
}

base::Result<std::vector<base::UniqueFd>> look_into_park(int park) {
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kMaxParked * sizeof(int))];
  char mark = 0;
  iovec part{&mark, sizeof mark};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(park, &header, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  std::vector<base::UniqueFd> fds;
  if (got >= 0) fds = base::received_fds(header);
  // A descriptor limit that is too low cuts the list: half a group is of no use.
  if (got != sizeof mark || mark != kMark || (header.msg_flags & MSG_CTRUNC) != 0 ||
      (fds.size() != 1 && fds.size() != 1 + base::kSteeredSlots))
    return base::fail(
        EPROTO, fmt::format("what a process handed over isn't a whole park ({} descriptors)", fds.size()));
  return fds;
}

}  // namespace verbena::net
