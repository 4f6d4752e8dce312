// multicast-ud: one sender, many receivers. Unreliable datagrams to a group that all joined by RDMA CM.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <deque>

#include "common/cq_notifications.hpp"
#include "common/program.hpp"
#include "common/work.hpp"
#include "multicast-ud/grh.hpp"
#include "multicast-ud/group.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "multicast-ud";

struct UdOptions {
  bool send = false;
  std::string from;         ///< local address
  uint32_t gap_us = 100;    ///< between two messages: nobody tells the sender that a receiver is full
  uint32_t idle_ms = 1000;  ///< so long after the last message a receiver takes the rest for lost
};

void send_messages(const Options& options, const UdOptions& ud) {
  AwaitedCmEvents events;
  const Group group(options, ud.from, events, Notify::kNever);
  ibv_ah_attr where = group.address().ah_attr;
  const Ah ah(check_new("ibv_create_ah", ibv_create_ah(group.queues().pd.get(), &where)));
  Buffer buffer(group.queues().pd.get(), options.size, 0, options.sges);
  ibv_send_wr request = {};
  request.sg_list = buffer.sges().data();
  request.num_sge = static_cast<int>(buffer.sges().size());
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud.ah = ah.get();
  request.wr.ud.remote_qpn = group.address().qp_num;  // 0xffffff: whoever is in the group
  request.wr.ud.remote_qkey = group.address().qkey;

  Statistics statistics(Cpu::kProcess);
  statistics.start();
  for (uint64_t message = 0; message < options.count; ++message) {
    fill_pattern(buffer.bytes(), message);
    request.imm_data = htonl(static_cast<uint32_t>(message));  // lets receivers count what is missing
    post(group.queues().qp(), request, "ibv_post_send");
    check_completion(
        busy_poll(group.queues().cq.get(), statistics.polls));  // it has left; who got it nobody knows
    if (ud.gap_us > 0) ::usleep(ud.gap_us);
  }
  statistics.stop();
  statistics.messages = options.count;
  statistics.bytes = options.count * options.size;
  statistics.print(kName);
}

/// Receives until the last message, or until nothing comes any more.
class Receiver {
 public:
  Receiver(const Group& group, const Options& options, const UdOptions& ud)
      : options_(options),
        ud_(ud),
        group_(group),
        notifications_(group.queues().channel.get(), cq(), statistics_.polls) {
    ::fcntl(notifications_.fd(), F_SETFL, O_NONBLOCK);
    for (uint32_t i = 0; i < options.rq_depth; ++i) {
      buffers_.emplace_back(group.queues().pd.get(), kGrhBytes + options.size, IBV_ACCESS_LOCAL_WRITE);
      post_receive(group.queues().qp(), buffers_.back(), i);
    }
  }

  void run() {
    ibv_wc completion;
    while (await(completion)) {
      if (statistics_.messages == 0) statistics_.start();
      take(completion);
      if (ntohl(completion.imm_data) + uint64_t{1} >= options_.count) break;
    }
    statistics_.stop();
    fmt::print("{}: received {} of {} messages, {} lost, from {}\n", kName, statistics_.messages,
               options_.count, options_.count - statistics_.messages, source_);
    statistics_.print(kName);
  }

 private:
  [[nodiscard]] ibv_cq* cq() const { return group_.queues().cq.get(); }

  /// The first message may take its time.
  [[nodiscard]] bool await(ibv_wc& completion) {
    while (!poll_once(cq(), completion)) {
      pollfd ready = {notifications_.fd(), POLLIN, 0};
      if (::poll(&ready, 1, statistics_.messages == 0 ? -1 : static_cast<int>(ud_.idle_ms)) == 0)
        return false;
      notifications_.take_and_rearm();
    }
    return true;
  }

  void take(const ibv_wc& completion) {
    check_completion(completion);
    check_length(completion, kGrhBytes + options_.size);
    if ((completion.wc_flags & IBV_WC_GRH) == 0)
      throw Failure("the completion doesn't say that there is a GRH");
    Buffer& buffer = buffers_[completion.wr_id];
    const auto bytes = buffer.bytes();
    if (options_.verify) verify_pattern(bytes.subspan(kGrhBytes), ntohl(completion.imm_data));
    source_ = source_of(bytes.first<kGrhBytes>());
    ++statistics_.messages;
    statistics_.bytes += options_.size;
    post_receive(group_.queues().qp(), buffer, completion.wr_id);
  }

  const Options& options_;
  const UdOptions& ud_;
  const Group& group_;
  Statistics statistics_{Cpu::kProcess};
  std::deque<Buffer> buffers_;
  CqNotifications notifications_;
  std::string source_ = "nobody";
};

void receive_messages(const Options& options, const UdOptions& ud) {
  AwaitedCmEvents events;
  const Group group(options, ud.from, events, Notify::kByChannel);
  Receiver receiver(group, options, ud);
  fmt::print("{}: joined {}\n", kName, options.server);
  std::fflush(stdout);
  receiver.run();
}

}  // namespace

int main(int argc, char** argv) {
  UdOptions ud;
  Options defaults;
  defaults.count = 100;
  defaults.rq_depth = 128;
  return run_program(
      argc, argv,
      {kName,
       "Datagrams to a multicast group: one sender (--send), many receivers.",
       Role::kGroup,
       {{"--send", "send to the group; otherwise receive", &ud.send},
        {"--from", "local address to join with", &ud.from},
        {"--gap-us", "microseconds between two messages", &ud.gap_us},
        {"--idle-ms", "milliseconds without a message after which the rest is lost", &ud.idle_ms}}},
      [&](const Options& options) { ud.send ? send_messages(options, ud) : receive_messages(options, ud); },
      defaults);
}
