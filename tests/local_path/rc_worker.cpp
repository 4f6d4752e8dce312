// Opens the device, says "ready PID" or "refused ERRNO", then obeys, a line a command, with a line for an
// answer. Where nothing else is said that is "done", or "refused ERRNO WHERE".
//   mr NAME BYTES heap|shared   maps and registers memory; "mr ADDRESS RKEY"
//   dereg NAME                  "done MICROSECONDS"
//   rereg NAME                  registers it again; "mr ADDRESS RKEY"
//   unmap NAME                  whether it is registered or not
//   cq NAME ENTRIES poll|events
//   qp NAME CQ DEPTH            "qp QPN PSN GID"
//   connect QP QPN PSN GID TIMEOUT RETRIES RNR_RETRIES      over RESET to RTS
//   state QP reset|error
//   drop qp|cq NAME             destroys it
//   send|recv QP MR OFFSET LENGTH                           "posted ID"
//   burst QP MR LENGTH COUNT    so many sends, one right after the other
//   write|read QP MR OFFSET LENGTH ADDRESS RKEY             "posted ID"
//   add QP MR OFFSET ADDRESS RKEY VALUE                     "posted ID"
//   cas QP MR OFFSET ADDRESS RKEY COMPARE SWAP              "posted ID"
//   poll CQ COUNT MILLISECONDS  "polled N" and for each " ID:STATUS:BYTES"
//   wait CQ COUNT MILLISECONDS  the same, asleep in between
//   fill MR OFFSET LENGTH VALUE
//   count MR OFFSET LENGTH VALUE                            "count N", bytes that have that value
//   word MR OFFSET              "word VALUE"
//   setword MR OFFSET VALUE
//   flood QP CQ MR LENGTH ADDRESS RKEY MILLISECONDS         writes, one after the other; "flooded N STATUS"
//   stream QP CQ MR SEED PEER_SEED ADDRESS RKEY MILLISECONDS polls|sleeps|passive     see stream.hpp
//   watch MR OFFSET SIZE ROUNDS MILLISECONDS                see order_race.hpp
//   race write|read QP CQ MR OFFSET SIZE ROUNDS MILLISECONDS ADDRESS RKEY
//   churn target|receiver BOARD MILLISECONDS SEED           see churn.hpp
//   churn peer|sender BOARD SEAT SEED
//   reuse receive QP CQ MR MILLISECONDS                     see reuse_race.hpp
//   reuse send QP CQ MR MILLISECONDS ADDRESS RKEY
//   fork CQ QP MR QPN PSN GID   see forked_child.hpp
//   linger SECONDS              leaves a child of fork() behind, for so long
//   close CQ                    closes the descriptor of its channel behind Verbena's back
//   replace QP CQ MR LENGTH ADDRESS RKEY   writes, closes every descriptor that isn't the program's own,
//   opens files
//                               in their places, writes again; "replaced STATUS STATUS SPOILT", the last how
//                               many of the files aren't empty
//   hide                        nobody without privilege may look into it any more
//   exec                        becomes another program, which sleeps; so does SIGUSR1, whatever it is doing
//   exit                        without cleaning up
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>

#include "local_path/churn.hpp"
#include "local_path/forked_child.hpp"
#include "local_path/order_race.hpp"
#include "local_path/reuse_race.hpp"
#include "local_path/stream.hpp"

namespace verbena::local_path {
namespace {

extern "C" void become_another(int) {
  char* const arguments[] = {const_cast<char*>("sleep"), const_cast<char*>("1000"), nullptr};
  ::execv("/bin/sleep", arguments);
  ::_exit(126);
}

class WorkerProgram {
 public:
  WorkerProgram() : rig_(Rig::open()) {}

  void obey(const std::string& line) {
    using Handler = void (WorkerProgram::*)(const std::string&, std::istream&);
    static const std::map<std::string, Handler> handlers = {
        {"mr", &WorkerProgram::on_memory},      {"dereg", &WorkerProgram::on_memory},
        {"rereg", &WorkerProgram::on_memory},   {"unmap", &WorkerProgram::on_memory},
        {"fill", &WorkerProgram::on_memory},    {"count", &WorkerProgram::on_memory},
        {"word", &WorkerProgram::on_memory},    {"setword", &WorkerProgram::on_memory},
        {"cq", &WorkerProgram::on_object},      {"qp", &WorkerProgram::on_object},
        {"connect", &WorkerProgram::on_object}, {"state", &WorkerProgram::on_object},
        {"drop", &WorkerProgram::on_object},    {"fork", &WorkerProgram::on_object},
        {"send", &WorkerProgram::on_post},      {"recv", &WorkerProgram::on_post},
        {"write", &WorkerProgram::on_post},     {"read", &WorkerProgram::on_post},
        {"add", &WorkerProgram::on_post},       {"cas", &WorkerProgram::on_post},
        {"poll", &WorkerProgram::on_poll},      {"wait", &WorkerProgram::on_poll},
        {"burst", &WorkerProgram::burst},       {"flood", &WorkerProgram::flood},
        {"stream", &WorkerProgram::stream},     {"watch", &WorkerProgram::race},
        {"race", &WorkerProgram::race},         {"churn", &WorkerProgram::churn},
        {"reuse", &WorkerProgram::reuse},       {"replace", &WorkerProgram::replace},
        {"hide", &WorkerProgram::on_process},   {"linger", &WorkerProgram::on_process},
        {"close", &WorkerProgram::on_process},  {"exec", &WorkerProgram::on_process},
        {"exit", &WorkerProgram::on_process},
    };
    std::istringstream words(line);
    std::string command;
    words >> command;
    const auto handler = handlers.find(command);
    if (handler == handlers.end()) return done(ENOSYS, command.c_str());
    (this->*handler->second)(command, words);
  }

 private:
  static std::ostream& say() { return std::cout; }
  static void done(int error, const char* where = "") {
    if (error == 0)
      say() << "done" << std::endl;
    else
      say() << "refused " << error << ' ' << where << std::endl;
  }
  template <typename T>
  static T take(std::istream& words) {
    T value{};
    words >> value;
    return value;
  }
  Memory& memory(std::istream& words) { return memories_[take<std::string>(words)]; }
  Queue& queue(std::istream& words) { return queues_[take<std::string>(words)]; }
  ibv_qp*& pair(std::istream& words) { return pairs_[take<std::string>(words)]; }

  void say_region(Memory& of) {
    if (const int error = rig_.register_memory(of); error != 0) return done(error);
    say() << "mr " << of.address() << ' ' << of.mr->rkey << std::endl;
  }

  void on_memory(const std::string& command, std::istream& words) {
    Memory& of = memory(words);
    if (command == "mr") {
      const auto size = take<size_t>(words);
      of = map_memory(size, take<std::string>(words) == "shared");
      return say_region(of);
    }
    if (command == "rereg") return say_region(of);
    if (command == "dereg") {
      const int64_t begin = now_us();
      if (const int error = ibv_dereg_mr(of.mr); error != 0) return done(error);
      of.mr = nullptr;
      say() << "done " << now_us() - begin << std::endl;
    } else if (command == "unmap") {
      unmap(of);
      done(0);
    } else {
      on_bytes(command, of.data + take<size_t>(words), words);
    }
  }

  void on_bytes(const std::string& command, std::byte* at, std::istream& words) {
    // Words are what peers run atomics on, at any time.
    if (command == "word") {
      say() << "word " << __atomic_load_n(reinterpret_cast<uint64_t*>(at), __ATOMIC_ACQUIRE) << std::endl;
    } else if (command == "setword") {
      __atomic_store_n(reinterpret_cast<uint64_t*>(at), take<uint64_t>(words), __ATOMIC_RELEASE);
      done(0);
    } else {
      const auto length = take<size_t>(words);
      const auto value = take<int>(words);
      if (command == "count") {
        say() << "count " << count_of(at, length, static_cast<std::byte>(value)) << std::endl;
      } else {
        std::memset(at, value, length);
        done(0);
      }
    }
  }

  void on_object(const std::string& command, std::istream& words) {
    if (command == "cq") {
      Queue& made = queue(words);
      made = {};
      const int entries = take<int>(words);
      return done(rig_.make_queue(entries, take<std::string>(words) == "events", made));
    }
    if (command == "qp") {
      ibv_qp*& made = pair(words);
      const Queue& on = queue(words);
      if (const int error = rig_.make_pair(on, take<unsigned>(words), made); error != 0) return done(error);
      say() << "qp " << Address{made->qp_num, psn_of(made), rig_.gid()} << std::endl;
      return;
    }
    if (command == "drop") {
      if (take<std::string>(words) == "qp") return done(ibv_destroy_qp(pair(words)));
      Queue& gone = queue(words);
      int error = ibv_destroy_cq(gone.cq);
      if (error == 0 && gone.channel != nullptr) error = ibv_destroy_comp_channel(gone.channel);
      return done(error);
    }
    if (command == "fork") {
      const Queue& on = queue(words);
      ibv_qp* with = pair(words);
      const Memory& of = memory(words);
      say() << use_in_child(rig_, on, with, of, take<Address>(words)) << std::endl;
      return;
    }
    ibv_qp* of = pair(words);
    if (command == "state")
      return done(move_to(of, take<std::string>(words) == "reset" ? IBV_QPS_RESET : IBV_QPS_ERR));
    const auto peer = take<Address>(words);
    Rules rules;
    words >> rules.timeout >> rules.retries >> rules.rnr_retries;
    const char* step = "";
    const int error = rig_.connect(of, psn_of(of), peer, rules, step);
    done(error, step);
  }
  static uint32_t psn_of(const ibv_qp* of) { return of->qp_num * 7 & 0xffffff; }

  void on_post(const std::string& command, std::istream& words) {
    ibv_qp* to = pair(words);
    Work work{.id = ++last_id_, .memory = &memory(words)};
    words >> work.offset;
    if (command == "add" || command == "cas") {
      work.length = 8;
      work.opcode = command == "add" ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      words >> work.remote >> work.key >> work.first >> work.second;
    } else {
      words >> work.length >> work.remote >> work.key;
      if (command == "write") work.opcode = IBV_WR_RDMA_WRITE;
      if (command == "read") work.opcode = IBV_WR_RDMA_READ;
    }
    const int error = command == "recv" ? post_receive(to, work) : post_send(to, work);
    if (error != 0) return done(error, command.c_str());
    say() << "posted " << work.id << std::endl;
  }

  void on_poll(const std::string& command, std::istream& words) {
    const Queue& of = queue(words);
    const auto count = take<size_t>(words);
    const auto milliseconds = take<int64_t>(words);
    const auto taken =
        command == "poll" ? poll_for(of, count, milliseconds) : wait_for(of, count, milliseconds);
    say() << "polled " << taken.size();
    for (const auto& one : taken) say() << ' ' << one.wr_id << ':' << one.status << ':' << one.byte_len;
    say() << std::endl;
  }

  void burst(const std::string&, std::istream& words) {
    ibv_qp* to = pair(words);
    Work work{.memory = &memory(words)};
    words >> work.length;
    int error = 0;
    for (auto left = take<size_t>(words); left > 0 && error == 0; --left) error = post_send(to, work);
    done(error);
  }

  void flood(const std::string&, std::istream& words) {
    ibv_qp* to = pair(words);
    const Queue& on = queue(words);
    Work work{.opcode = IBV_WR_RDMA_WRITE, .memory = &memory(words)};
    words >> work.length >> work.remote >> work.key;
    const int64_t end = now_us() + take<int64_t>(words) * 1000;
    uint64_t count = 0;
    int status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS && now_us() < end) {
      if (post_send(to, work) != 0) break;
      const auto taken = poll_for(on, 1, 60'000);
      status = taken.empty() ? -1 : taken[0].status;
      if (status == IBV_WC_SUCCESS) ++count;
    }
    say() << "flooded " << count << ' ' << status << std::endl;
  }

  void stream(const std::string&, std::istream& words) {
    StreamPlan plan{.pair = pair(words), .queue = queue(words), .memory = &memory(words)};
    words >> plan.seed >> plan.peer_seed >> plan.peer_address >> plan.peer_key;
    plan.duration_us = take<int64_t>(words) * 1000;
    const auto how = take<std::string>(words);
    plan.sleeps = how == "sleeps";
    plan.passive = how == "passive";
    say() << "streamed " << run_stream(plan) << std::endl;
  }

  void race(const std::string& command, std::istream& words) {
    RacePlan plan;
    std::string kind = "watch";
    if (command == "race") {
      words >> kind;
      plan.pair = pair(words);
      plan.queue = queue(words);
    }
    plan.memory = &memory(words);
    words >> plan.offset >> plan.size >> plan.rounds >> plan.milliseconds >> plan.remote >> plan.key;
    const RaceReport report = kind == "watch"   ? watch(plan)
                              : kind == "write" ? write_rounds(plan)
                                                : read_rounds(plan);
    say() << "raced " << report.rounds << ' ' << report.violations << ' ' << report.failures << std::endl;
  }

  void churn(const std::string&, std::istream& words) {
    const auto role = take<std::string>(words);
    Board& board = open_board(take<std::string>(words));
    const auto amount = take<int64_t>(words);
    const auto seed = take<uint64_t>(words);
    ChurnReport report;
    if (role == "target") report = churn_target(rig_, board, amount, seed);
    if (role == "receiver") report = churn_receiver(rig_, board, amount, seed);
    if (role == "peer") report = churn_peer(rig_, board, static_cast<size_t>(amount), seed);
    if (role == "sender") report = churn_sender(rig_, board, static_cast<size_t>(amount), seed);
    say() << "churned " << report << std::endl;
  }

  void replace(const std::string&, std::istream& words) {
    ibv_qp* to = pair(words);
    const Queue& on = queue(words);
    Work work{.opcode = IBV_WR_RDMA_WRITE, .memory = &memory(words)};
    words >> work.length >> work.remote >> work.key;
    const auto write = [&] {
      if (post_send(to, work) != 0) return -2;
      ibv_wc one;
      for (int tries = 0; tries < 1'000'000; ++tries)
        if (ibv_poll_cq(on.cq, 1, &one) == 1) return static_cast<int>(one.status);
      return -1;
    };
    const int before = write();
    // As daemons do, and as fast as one can: what was found good a moment ago isn't any more.
    constexpr int kFiles = 48;
    ::close_range(3, ~0U, 0);
    for (int i = 0; i < kFiles; ++i) (void)::memfd_create("the program's own", MFD_CLOEXEC);
    const int after = write();
    int spoilt = 0;
    for (int fd = 3; fd < 3 + kFiles; ++fd)
      if (::lseek(fd, 0, SEEK_END) != 0) ++spoilt;
    say() << "replaced " << before << ' ' << after << ' ' << spoilt << std::endl;
  }

  void on_process(const std::string& command, std::istream& words) {
    if (command == "exec") become_another(0);
    if (command == "exit") ::_exit(0);
    if (command == "hide") return done(::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    if (command == "close") return done(::close(queue(words).channel->fd));
    const auto seconds = take<unsigned>(words);  // linger
    if (::fork() == 0) {
      // Not the test's pipes: they would keep it from seeing our end.
      for (const int fd : {0, 1, 2}) ::close(fd);
      ::sleep(seconds);
      ::_exit(0);
    }
    done(0);
  }

  void reuse(const std::string&, std::istream& words) {
    const auto role = take<std::string>(words);
    ibv_qp* with = pair(words);
    const Queue& on = queue(words);
    const Memory& of = memory(words);
    const auto milliseconds = take<int64_t>(words);
    const auto remote = take<uint64_t>(words);
    const auto key = take<uint32_t>(words);
    const ReuseReport report = role == "send" ? send_and_fetch(with, on, of, remote, key, milliseconds)
                                              : reuse_buffers(with, on, of, milliseconds);
    say() << "reused " << report.rounds << ' ' << report.violations << ' ' << report.failures << std::endl;
  }

  Rig rig_;
  std::map<std::string, Memory> memories_;
  std::map<std::string, Queue> queues_;
  std::map<std::string, ibv_qp*> pairs_;
  uint64_t last_id_ = 0;
};

}  // namespace
}  // namespace verbena::local_path

int main() {
  ::signal(SIGUSR1, verbena::local_path::become_another);
  verbena::local_path::WorkerProgram program;
  std::cout << "ready " << ::getpid() << std::endl;
  for (std::string line; std::getline(std::cin, line);) program.obey(line);
  return 0;
}
