#include "support/process.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "client/agent_link.hpp"
#include "ipc/rendezvous.hpp"

namespace verbena::support {

Process::Process(pid_t pid, base::UniqueFd in, base::UniqueFd out)
    : pid_(pid), in_(std::move(in)), out_(std::move(out)) {}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::move(other.in_)),
      out_(std::move(other.out_)),
      heard_(std::move(other.heard_)) {}

Process::~Process() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Process Process::start(const std::vector<std::string>& command, const Options& options) {
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> arguments;
  for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(to_child[0], 0);
    ::dup2(from_child[1], 1);
    if (options.uid &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(*options.uid, *options.uid, *options.uid) != 0 ||
         ::setresuid(*options.uid, *options.uid, *options.uid) != 0))
      ::_exit(125);
    for (const auto& variable : options.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  return Process(pid, base::UniqueFd(to_child[1]), base::UniqueFd(from_child[0]));
}

void Process::say(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto written = ::write(in_.get(), text.data(), text.size());
}

std::optional<std::string> Process::hear(Wait wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  for (;;) {
    if (const size_t end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<Wait>(deadline - std::chrono::steady_clock::now());
    pollfd ready{out_.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return std::nullopt;
    char buffer[512];
    const ssize_t got = ::read(out_.get(), buffer, sizeof buffer);
    if (got <= 0) return std::nullopt;
    heard_.append(buffer, static_cast<size_t>(got));
  }
}

void Process::signal(int number) const { ::kill(pid_, number); }

std::optional<int> Process::wait_for_exit(Wait wait) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, wait)) return std::nullopt;
  pid_ = -1;
  return status;
}

Output shell(const std::string& command) {
  Output output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "re");
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.text.append(buffer, got);
  const int status = ::pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

bool eventually(const std::function<bool()>& condition, Wait wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

int descriptor_count(pid_t pid) {
  std::error_code error;
  std::filesystem::directory_iterator directory("/proc/" + std::to_string(pid) + "/fd", error);
  if (error) return -1;
  return static_cast<int>(std::distance(begin(directory), end(directory)));
}

std::optional<pid_t> agent_pid() {
  const auto link =
      client::connect_agent({.devices = client::wanted_devices(), .start = client::Start::kNever});
  if (!link) return std::nullopt;
  return link->registry.layout().agent_pid.load();
}

}  // namespace verbena::support
