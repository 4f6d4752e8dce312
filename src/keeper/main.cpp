// verbena-keeper NAME: keeps XRC domains and target queue pairs for a user's processes. Started by the first
// one that needs it.
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "ipc/rendezvous.hpp"
#include "keeper/keeper.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "verbena-keeper: started by Verbena's libraries when a program opens an XRC domain\n";
    return 2;
  }
  // As the agent: the limits of the program that happened to start us aren't meant for us.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  const verbena::base::UniqueFd stop(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  auto listener = verbena::ipc::listen_at(argv[1]);
  if (!listener) return listener.error().code == EADDRINUSE ? 0 : 1;  // another one is as good
  verbena::keeper::Keeper(std::move(*listener)).run(stop.get());
  std::_Exit(0);  // the helper thread may be at work
}
