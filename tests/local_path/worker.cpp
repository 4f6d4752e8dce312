#include "local_path/worker.hpp"

#include <poll.h>
#include <signal.h>
#include <time.h>

#include <fstream>
#include <sstream>

namespace verbena::local_path {

using support::Wait;

std::string Region::at(uint64_t offset) const {
  return std::to_string(address + offset) + " " + std::to_string(key);
}

Worker::Worker(const support::Process::Options& options, const std::vector<std::string>& command)
    : process_(support::Process::start(command, options)) {
  // Talking to a worker that died must not end the test. A handler, since SIG_IGN would be inherited by the
  // workers, and hide from us what ends them.
  ::signal(SIGPIPE, [](int) {});
  const std::string line = hear();
  EXPECT_TRUE(line.starts_with("ready ")) << line;
}

std::string Worker::hear(Wait wait) {
  const auto line = process_.hear(wait);
  if (!line) ADD_FAILURE() << "worker " << pid() << " doesn't answer";
  return line.value_or("");
}

std::string Worker::ask(const std::string& line, Wait wait) {
  process_.say(line);
  const auto answer = process_.hear(wait);
  if (!answer) ADD_FAILURE() << "worker " << pid() << " doesn't answer to: " << line;
  return answer.value_or("");
}

void Worker::tell(const std::string& line) {
  const std::string answer = ask(line);
  EXPECT_TRUE(answer.starts_with("done")) << line << " was answered by " << answer;
}

Region Worker::region(const std::string& name, size_t bytes, const std::string& kind) {
  const std::string line =
      kind == "again" ? "rereg " + name : "mr " + name + " " + std::to_string(bytes) + " " + kind;
  std::istringstream words(ask(line));
  std::string what;
  Region made;
  words >> what >> made.address >> made.key;
  EXPECT_EQ(what, "mr") << words.str();
  return made;
}

void Worker::queue(const std::string& name, int entries, const std::string& kind) {
  tell("cq " + name + " " + std::to_string(entries) + " " + kind);
  if (name == "c") has_queue_ = true;
}

std::string Worker::pair(const std::string& name, unsigned depth, const std::string& queue_name) {
  if (queue_name == "c" && !has_queue_) queue("c", 256);
  const std::string line = ask("qp " + name + " " + queue_name + " " + std::to_string(depth));
  EXPECT_TRUE(line.starts_with("qp ")) << line;
  return line.size() > 3 ? line.substr(3) : "0 0 0";
}

std::string Worker::connect(const std::string& pair_name, const std::string& peer, const Rules& rules) {
  return ask("connect " + pair_name + " " + peer + " " + std::to_string(rules.timeout) + " " +
             std::to_string(rules.retries) + " " + std::to_string(rules.rnr_retries));
}

uint64_t Worker::post(const std::string& line) {
  const std::string answer = ask(line);
  EXPECT_TRUE(answer.starts_with("posted ")) << line << " was answered by " << answer;
  return answer.starts_with("posted ") ? std::stoull(answer.substr(7)) : 0;
}

std::vector<Completion> Worker::poll(size_t wanted, int64_t milliseconds, const std::string& queue_name) {
  const std::string line =
      ask("poll " + queue_name + " " + std::to_string(wanted) + " " + std::to_string(milliseconds),
          Wait(milliseconds) + kPatience);
  std::istringstream words(line);
  std::string what;
  size_t got = 0;
  words >> what >> got;
  EXPECT_EQ(what, "polled") << line;
  std::vector<Completion> taken(got);
  for (auto& one : taken) {
    char colon = 0;
    words >> one.id >> colon >> one.status >> colon >> one.bytes;
  }
  return taken;
}

Completion Worker::run(const std::string& line, int64_t milliseconds) {
  const uint64_t id = post(line);
  const auto taken = poll(1, milliseconds);
  if (taken.empty()) return {.id = id};
  EXPECT_EQ(taken[0].id, id) << line;
  return taken[0];
}

uint64_t Worker::word(const std::string& memory, size_t offset) {
  const std::string line = ask("word " + memory + " " + std::to_string(offset));
  return line.starts_with("word ") ? std::stoull(line.substr(5)) : ~uint64_t{0};
}

size_t Worker::count(const std::string& memory, size_t offset, size_t length, int value) {
  const std::string line = ask("count " + memory + " " + std::to_string(offset) + " " +
                               std::to_string(length) + " " + std::to_string(value));
  return line.starts_with("count ") ? std::stoull(line.substr(6)) : ~size_t{0};
}

void Worker::stop() {
  process_.signal(SIGSTOP);
  // Not before it is: kill(2) returns while the process may still run on another core.
  EXPECT_TRUE(support::eventually([this] {
    std::ifstream file("/proc/" + std::to_string(pid()) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t end = line.rfind(')');
    return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'T';
  }));
}

void Worker::kill() {
  process_.signal(SIGKILL);
  EXPECT_TRUE(process_.wait_for_exit());
}

void pause_ms(int milliseconds) { ::poll(nullptr, 0, milliseconds); }

Footprint footprint(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid);
  Footprint found{.descriptors = support::descriptor_count(pid)};
  std::ifstream maps(directory + "/maps");
  for (std::string line; std::getline(maps, line);) ++found.mappings;
  std::ifstream status(directory + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) found.resident_kib = std::stol(line.substr(6));
  return found;
}

std::chrono::microseconds cpu_time(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  EXPECT_EQ(::clock_getcpuclockid(pid, &clock), 0);
  EXPECT_EQ(::clock_gettime(clock, &used), 0);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::seconds(used.tv_sec) +
                                                               std::chrono::nanoseconds(used.tv_nsec));
}

void connect(Worker& a, const std::string& a_pair, const std::string& a_address, Worker& b,
             const std::string& b_pair, const std::string& b_address, const Rules& rules) {
  EXPECT_EQ(a.connect(a_pair, b_address, rules), "done");
  EXPECT_EQ(b.connect(b_pair, a_address, rules), "done");
}

Couple::Couple(const Options& options)
    : requester({.environment = options.environment}), target({.environment = options.environment}) {
  requester.queue("c", 256, options.queues);
  target.queue("c", 256, options.queues);
  here = requester.region("m", options.bytes);
  there = target.region("m", options.bytes, options.kind);
  requester_address = requester.pair("q");
  target_address = target.pair("q");
  connect(requester, "q", requester_address, target, "q", target_address, options.rules);
}

std::string Couple::access(const std::string& name, size_t offset, size_t length) const {
  return name + " q m " + std::to_string(offset) + " " + std::to_string(length) + " " + there.at(offset);
}

std::string Couple::add(size_t offset, uint64_t value) const {
  return "add q m 0 " + there.at(offset) + " " + std::to_string(value);
}

}  // namespace verbena::local_path
