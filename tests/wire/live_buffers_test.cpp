// WRITEs from and READs of buffers that another thread keeps changing: the ICRC is that of the bytes that
// left, whatever became of them since, so no packet is refused and none is sent twice. Here for some seconds;
// VERBENA_TEST_SECONDS=60 for a minute.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "client/data_path.hpp"
#include "rc/endpoint.hpp"
#include "wire/drops.hpp"
#include "wire/port.hpp"

namespace verbena::rc {
namespace {

// Many packets, the last one padded. Two of them fit into any machine's socket buffer at once, so that none
// is lost there.
constexpr uint64_t kBytes = 65'533;

std::chrono::seconds run_time() {
  const char* wished = std::getenv("VERBENA_TEST_SECONDS");
  const long seconds = wished == nullptr ? 0 : std::strtol(wished, nullptr, 10);
  return std::chrono::seconds(seconds > 0 ? seconds : 10);
}

// Changes whole buffers, over and over, at places that move, so that a message meets it somewhere.
class Changer {
 public:
  explicit Changer(std::vector<Buffer> buffers)
      : buffers_(std::move(buffers)), thread_([this](const std::stop_token& stop) { run(stop); }) {}
  [[nodiscard]] uint64_t passes() const { return passes_; }

 private:
  void run(const std::stop_token& stop) {
    for (uint64_t pass = 1; !stop.stop_requested(); passes_ = pass++) {
      for (const Buffer& buffer : buffers_) {
        auto* words = reinterpret_cast<volatile uint64_t*>(buffer.address);
        for (uint64_t i = pass % 7; i < buffer.length / sizeof *words; i += 7)
          words[i] = pass * 0x9e3779b97f4a7c15;
      }
    }
  }

  std::vector<Buffer> buffers_;
  std::atomic<uint64_t> passes_ = 0;
  std::jthread thread_;
};

class LiveBuffers : public testing::Test {
 protected:
  void SetUp() override {
    const Address a = a_.address();
    const Address b = b_.address();
    const Link to_b{.peer = b.gid, .peer_qpn = b.qpn, .rq_psn = 200, .sq_psn = 100};
    const Link to_a{.peer = a.gid, .peer_qpn = a.qpn, .rq_psn = 100, .sq_psn = 200};
    for (auto step : {&Endpoint::to_init, &Endpoint::to_rtr, &Endpoint::to_rts}) {
      ASSERT_EQ(0, (a_.*step)(to_b));
      ASSERT_EQ(0, (b_.*step)(to_a));
    }
  }

  // One each way, and waits for both.
  void exchange() {
    const SendOrder write{.wr_id = 1,
                          .opcode = IBV_WR_RDMA_WRITE,
                          .remote_address = written_.address,
                          .rkey = written_.rkey,
                          .pieces = {source_.piece(0, kBytes)}};
    const SendOrder read{.wr_id = 2,
                         .opcode = IBV_WR_RDMA_READ,
                         .remote_address = asked_.address,
                         .rkey = asked_.rkey,
                         .pieces = {fetched_.piece(0, kBytes)}};
    ASSERT_EQ(0, a_.post_sends({write, read}).error);
    const Completions done = a_.poll(Queue::kSend, 2, kSoon);
    ASSERT_EQ(2, done.count);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(IBV_WC_SUCCESS, done.list[i].status) << done.list[i].wr_id;
  }

  Endpoint a_{EndpointSpec{}};
  Endpoint b_{EndpointSpec{}};
  Buffer source_ = a_.add_buffer({.length = kBytes});
  Buffer fetched_ = a_.add_buffer({.length = kBytes});
  Buffer written_ = b_.add_buffer({.length = kBytes});
  Buffer asked_ = b_.add_buffer({.length = kBytes});
};

TEST_F(LiveBuffers, AreSentWithTheRightIcrc) {
  const auto data = client::DataPath::current();
  ASSERT_TRUE(data) << data.error().sentence;
  const auto port = (*data)->port();
  ASSERT_TRUE(port) << port.error().sentence;

  uint64_t rounds = 0;
  uint64_t passes = 0;
  {
    const Changer changer({source_, asked_, written_, fetched_});
    const auto end = std::chrono::steady_clock::now() + run_time();
    for (; std::chrono::steady_clock::now() < end; ++rounds) ASSERT_NO_FATAL_FAILURE(exchange());
    passes = changer.passes();
  }
  const auto& counters = (*port)->counters();
  const uint64_t timeouts = counters.timeouts.load();
  RecordProperty("rounds", std::to_string(rounds));
  printf("%lu rounds, %lu changes of all buffers, %lu packets; %lu timeouts\n", rounds, passes,
         static_cast<uint64_t>((*port)->counters().packets), timeouts);

  // Otherwise nothing was shown.
  EXPECT_GT(rounds, 100u);
  EXPECT_GT(passes, rounds / 10);
  EXPECT_GT((*port)->counters().packets, rounds * 2 * (kBytes / 4096));
  EXPECT_EQ(0u, counters.sequence_naks.load());
  EXPECT_EQ(0u, counters.implied_losses.load());
  // A machine that runs something else for a while looks like a loss, and what is sent again then is a
  // duplicate. No bad ICRC hides behind that: each has its own counter.
  const bool paused = timeouts > 0;
  if (!paused) {
    EXPECT_EQ(0u, counters.retransmitted.load());
  }
  for (size_t i = 0; i < static_cast<size_t>(wire::Drop::kCount); ++i) {
    const auto drop = static_cast<wire::Drop>(i);
    if (paused && (drop == wire::drop_of(engine::DropReason::kDuplicate) ||
                   drop == wire::drop_of(engine::DropReason::kStaleAnswer)))
      continue;
    EXPECT_EQ(0u, (*port)->counters().drops[i]) << wire::name_of(drop);
  }
}

}  // namespace
}  // namespace verbena::rc
