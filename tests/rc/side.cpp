#include "side.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transfer.hpp"

namespace verbena::rc {
namespace {

constexpr int kLongestCall = 120'000;  // milliseconds: a gigabyte under a sanitizer

}  // namespace

std::shared_ptr<Host> Host::here() {
  std::shared_ptr<Host> host(new Host);
  host->stage_ = std::make_unique<Stage>();
  return host;
}

std::shared_ptr<Host> Host::helper(const std::vector<std::string>& environment) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  std::shared_ptr<Host> host(new Host);
  host->in_ = to[1];
  host->out_ = from[0];
  host->stderr_ = ::memfd_create("stderr", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, host->stderr_, STDERR_FILENO);
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  for (const auto& variable : environment) variables.push_back(const_cast<char*>(variable.c_str()));
  variables.push_back(nullptr);
  char path[] = RC_STAGE;
  char* arguments[] = {path, nullptr};
  const int error = ::posix_spawn(&host->pid_, path, &actions, nullptr, arguments, variables.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  if (error != 0) throw std::runtime_error("posix_spawn " RC_STAGE);
  return host;
}

Host::~Host() {
  if (pid_ > 0 && !dead_) {
    ::close(std::exchange(in_, -1));  // it ends by itself; a sanitizer then has its say
    int status = 0;
    for (int tries = 0; tries < 1000; ++tries) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        dead_ = true;
        break;
      }
      ::usleep(10'000);
    }
    if (dead_)
      EXPECT_EQ(0, status) << "the helper process ended badly:\n" << said();
    else {
      ADD_FAILURE() << "the helper process doesn't end:\n" << said();
      kill();
    }
  }
  for (const int fd : {in_, out_, stderr_})
    if (fd >= 0) ::close(fd);
}

Bytes Host::invoke(const Bytes& call) {
  if (stage_) return stage_->perform(call);
  const std::lock_guard lock(mutex_);
  if (dead_) throw std::runtime_error("the helper process was killed");
  if (send_bytes(in_, call))
    if (auto answer = receive_bytes(out_, kLongestCall)) return *answer;
  throw std::runtime_error("the helper process doesn't answer; it said:\n" + said());
}

void Host::stop() const {
  ::kill(pid_, SIGSTOP);
  ::waitpid(pid_, nullptr, WUNTRACED);  // it stops when it likes
}
void Host::go_on() const { ::kill(pid_, SIGCONT); }

void Host::kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  dead_ = true;
}

std::string Host::said() const {
  std::string text(static_cast<size_t>(std::max<off_t>(::lseek(stderr_, 0, SEEK_END), 0)), '\0');
  const ssize_t got = ::pread(stderr_, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

Wait soon() { return testing::Test::HasFailure() ? Wait(300) : kSoon; }

Side::Side(std::shared_ptr<Host> host, const EndpointSpec& spec) : host_(std::move(host)) {
  Bytes bytes;
  append(bytes, kOpenCall);
  append(bytes, uint32_t{0});
  append(bytes, spec);
  size_t at = 0;
  number_ = take<uint32_t>(invoke(std::move(bytes)), at);
}

Side::~Side() {
  try {
    close();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

void Side::close() {
  if (number_ == 0 || !host_->alive()) return;
  Bytes bytes;
  append(bytes, kCloseCall);
  append(bytes, std::exchange(number_, 0));
  size_t at = 0;
  const auto closed = take<Closed>(invoke(std::move(bytes)), at);
  EXPECT_EQ(0, closed.error) << closed.what.data() << ": " << std::strerror(closed.error);
}

Bytes Side::invoke(Bytes call) {
  Bytes answer = host_->invoke(call);
  size_t at = 0;
  const bool failed = take<uint8_t>(answer, at) != 0;
  answer.erase(answer.begin());
  if (failed)
    throw std::runtime_error(std::string(reinterpret_cast<const char*>(answer.data()), answer.size()));
  return answer;
}

ibv_wc Side::next(Queue queue, Wait wait) {
  Completions found = poll(queue, 1, wait);
  if (found.count == 1) return found.list[0];
  ibv_wc none{};
  none.status = kNone;
  return none;
}

Links links_between(Side& a, Side& b) {
  const Address to_a = a.address();
  const Address to_b = b.address();
  Links links;
  links.a = {.peer = to_b.gid, .peer_qpn = to_b.qpn, .rq_psn = 0xfffffe, .sq_psn = 77};
  links.b = {.peer = to_a.gid, .peer_qpn = to_a.qpn, .rq_psn = 77, .sq_psn = 0xfffffe};
  return links;
}

void connect(Side& a, Side& b, const Links& links) {
  EXPECT_EQ(0, a.to_init(links.a));
  EXPECT_EQ(0, b.to_init(links.b));
  EXPECT_EQ(0, a.to_rtr(links.a));
  EXPECT_EQ(0, b.to_rtr(links.b));
  EXPECT_EQ(0, a.to_rts(links.a));
  EXPECT_EQ(0, b.to_rts(links.b));
}

}  // namespace verbena::rc
