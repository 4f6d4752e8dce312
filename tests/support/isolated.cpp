#include "support/isolated.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace verbena::support {
namespace {

void fail(const char* what) {
  std::fprintf(stderr, "this test needs a network namespace of its own, but %s: %s\n", what,
               std::strerror(errno));
  std::exit(1);
}

void write_file(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail(path);
  ::close(fd);
}

}  // namespace

void isolate() {
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  if (::geteuid() == 0) {
    if (::unshare(CLONE_NEWNET) != 0) fail("unshare");
  } else {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) fail("unshare");
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", uid + " " + uid + " 1");
    write_file("/proc/self/gid_map", gid + " " + gid + " 1");
  }
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket, SIOCSIFFLAGS, &request) != 0) fail("bringing lo up");
  ::close(socket);
  ::setenv("VERBENA_AGENT", VERBENA_AGENT_PROGRAM, 1);
  ::setenv("VERBENA_AGENT_IDLE_MS", "300", 1);
  ::unsetenv("VERBENA_DEVICES");
}

bool ip(const std::string& arguments) { return std::system(("ip " + arguments).c_str()) == 0; }

}  // namespace verbena::support
