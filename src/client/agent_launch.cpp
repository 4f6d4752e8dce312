#include "client/agent_launch.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "client/agent_link.hpp"
#include "ipc/device_spec.hpp"

// glibc's clone() under the name by which sanitizers don't replace it: theirs takes every child for a fork
// with memory of its own, and puts what it does for such a one into ours.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept;

namespace verbena::client {
namespace {

constexpr size_t kStackSize = 64 * 1024;
constexpr rlim_t kAgentFileSize = 64 << 20;  // its shared memory counts as files

// Beside the core library, or ../lib/verbena from the `verbena` command.
std::string find_program(const char* name) {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&find_program), &here) == 0 || here.dli_fname == nullptr) return {};
  std::error_code ignored;
  auto file = std::filesystem::canonical(here.dli_fname, ignored);
  // For the main program dladdr tells argv[0], which may be no path at all.
  if (ignored || std::strchr(here.dli_fname, '/') == nullptr)
    file = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto home = file.parent_path();
  for (const auto& candidate : {home / name, home / "../lib/verbena" / name})
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  return {};
}

std::string agent_path() {
  if (const char* given = ::secure_getenv("VERBENA_AGENT"); given != nullptr && *given == '/') return given;
  return find_program("verbena-agent");
}

// Beside the agent, where somebody says where that is.
std::string keeper_path() {
  if (const char* given = ::secure_getenv("VERBENA_AGENT"); given != nullptr && *given == '/')
    return std::filesystem::path(given).parent_path() / "verbena-keeper";
  return find_program("verbena-keeper");
}

struct Plan {
  const char* path = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  char* stack_top = nullptr;  // for the grandchild
  int failure = 0;            // the errno of its exec
};

// The two children run in our memory (CLONE_VM) while we wait (CLONE_VFORK), with our thread's local state:
// system calls only, nothing of the library's, and nothing that a sanitizer would keep accounts of.
#define IN_OUR_MEMORY __attribute__((no_sanitize("address", "thread", "undefined")))

IN_OUR_MEMORY int become_agent(void* argument) {
  auto& plan = *static_cast<Plan*>(argument);
  ::syscall(SYS_setsid);
  const long null = ::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
  for (int fd = 0; fd <= 2; ++fd)
    if (null != fd) ::syscall(SYS_dup3, null, fd, 0);
  ::syscall(SYS_close_range, 3u, ~0u, 0u);
  ::syscall(SYS_chdir, "/");
  const uint64_t no_signals = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof no_signals);
  ::syscall(SYS_execve, plan.path, plan.arguments, plan.environment);
  plan.failure = errno;
  ::syscall(SYS_exit_group, 127);
  return 0;
}

IN_OUR_MEMORY int start_grandchild(void* argument) {
  auto& plan = *static_cast<Plan*>(argument);
  if (::__clone(become_agent, plan.stack_top, CLONE_VM | CLONE_VFORK | SIGCHLD, argument) < 0)
    plan.failure = errno;
  ::syscall(SYS_exit_group, 0);
  return 0;
}

// What the agent may need to know, and nothing of what the program set for itself (LD_PRELOAD and the like).
std::vector<std::string> kept_environment(std::initializer_list<const char*> more = {}) {
  std::vector<const char*> prefixes{
      "VERBENA_AGENT_", "XDG_RUNTIME_DIR=", "PATH=", "ASAN_OPTIONS=", "TSAN_OPTIONS=", "UBSAN_OPTIONS="};
  prefixes.insert(prefixes.end(), more);
  std::vector<std::string> kept;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    for (const char* prefix : prefixes)
      if (std::strncmp(*variable, prefix, std::strlen(prefix)) == 0) kept.emplace_back(*variable);
  return kept;
}

// `words` begin with the program's name.
base::Result<void> launch(const std::string& path, std::vector<std::string> words,
                          std::vector<std::string> environment) {
  if (path.empty())
    return base::fail(ENOENT, fmt::format("the program {} isn't beside Verbena's libraries; install them "
                                          "together, or set VERBENA_AGENT to the path of verbena-agent",
                                          words.front()));
  rlimit files{};
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_max < kAgentFileSize)
    return base::fail(EFBIG,
                      "the host agent can't be started from a process that may make only small files; raise "
                      "`ulimit -f`, or start a program that uses RDMA elsewhere first");
  std::vector<char*> variables;
  for (auto& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  void* stacks =
      ::mmap(nullptr, 2 * kStackSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) return base::fail_errno("starting the host agent");
  Plan plan{path.c_str(), arguments.data(), variables.data(), static_cast<char*>(stacks) + 2 * kStackSize, 0};

  // No signal handler of the program may run in the children, which share its memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  // No exit signal: the program's SIGCHLD handler and wait() calls don't see this child. It leaves at once,
  // so the agent becomes init's.
  const pid_t child =
      ::__clone(start_grandchild, static_cast<char*>(stacks) + kStackSize, CLONE_VM | CLONE_VFORK, &plan);
  const int clone_error = errno;
  if (child > 0)
    while (::waitpid(child, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::munmap(stacks, 2 * kStackSize);
  if (child < 0)
    return base::fail(clone_error, "starting the host agent: " + std::string(std::strerror(clone_error)));
  if (plan.failure != 0)
    return base::fail(plan.failure, "starting the host agent " + path + ": " + std::strerror(plan.failure));
  return {};
}

}  // namespace

base::Result<void> launch_agent() { return launch(agent_path(), {"verbena-agent"}, kept_environment()); }

base::Result<void> launch_keeper(const std::string& name) {
  auto environment = kept_environment(
      {"VERBENA_AGENT=", "VERBENA_TRUST_CONTAINERS=", "VERBENA_FAULTS=", "VERBENA_RECEIVE_BUFFER="});
  environment.push_back(std::string(ipc::kDevicesVariable) + "=" + wanted_devices());
  return launch(keeper_path(), {"verbena-keeper", name}, std::move(environment));
}

}  // namespace verbena::client
