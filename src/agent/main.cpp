// verbena-agent: the process. Started by the first client that needs it; people use `verbena agent`.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

#include "agent/agent.hpp"

namespace {

using verbena::agent::Agent;
using verbena::agent::Options;
using verbena::base::UniqueFd;

// Limits of the program that happened to start us aren't meant for us. And 250 processes with six
// descriptors each and 251 sockets don't fit into the usual soft limit of 1024.
void raise_limits() {
  for (const auto kind : {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS}) {
    rlimit limit{};
    if (::getrlimit(kind, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(kind, &limit);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

UniqueFd block_and_watch_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

int run_agent(Options options) {
  const UniqueFd signals = block_and_watch_signals();
  auto agent = Agent::start(std::move(options));
  if (!agent) {
    if (agent.error().code == EADDRINUSE) return 0;  // another one is there already
    std::cerr << "verbena-agent: " << agent.error().sentence << "\n";
    return 1;
  }
  (*agent)->run(signals.get());
  return 0;
}

// A system agent's clients belong to many users, so none of them may hold the park. This process does: it
// starts the agent, keeps the park that it shows, and hands it to the next one if the agent dies.
int supervise() {
  const auto name = verbena::ipc::listen_at(verbena::ipc::system_supervisor_name());
  if (!name) {
    std::cerr << "verbena-agent: a system agent runs already (" << name.error().sentence << ")\n";
    return 1;
  }
  std::signal(SIGCHLD, SIG_DFL);  // ignored by whoever started us, it would hide how the agent ended
  UniqueFd park;
  for (;;) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
    UniqueFd mine(ends[0]);
    UniqueFd theirs(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      mine.reset();
      ::close(name->get());  // the supervisor's alone: it ends with it
      Options options{.system = true};
      options.park = std::move(park);
      options.keeper = std::move(theirs);
      std::_Exit(run_agent(std::move(options)));
    }
    theirs.reset();
    for (;;) {  // until the agent's end is closed, which is when it ends
      auto shown =
          verbena::ipc::receive_until(mine.get(), verbena::base::now() + verbena::base::seconds(3600));
      if (shown && shown->fds.size() == 1) park = std::move(shown->fds.front());
      if (!shown && shown.error().code != ETIMEDOUT) break;
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    ::usleep(50'000);  // an agent that dies at once must not become a storm of them
  }
}

}  // namespace

int main(int argc, char** argv) {
  raise_limits();
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--system") {
      std::cerr << "verbena-agent: unknown argument '" << argv[i] << "'; see `verbena agent --help`\n";
      return 2;
    }
    if (::geteuid() != 0) {
      std::cerr << "verbena-agent: --system serves every user of this host, so it needs root\n";
      return 1;
    }
    // The supervisor ends with the agent it started, and the agent with its supervisor.
    std::signal(SIGTERM, [](int) { std::_Exit(0); });
    std::signal(SIGINT, [](int) { std::_Exit(0); });
    return supervise();
  }
  Options options;
  if (const char* idle = std::getenv("VERBENA_AGENT_IDLE_MS"))
    options.idle_timeout = verbena::base::milliseconds(std::max(0L, std::strtol(idle, nullptr, 10)));
  return run_agent(std::move(options));
}
