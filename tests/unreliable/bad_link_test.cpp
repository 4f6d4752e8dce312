// A bad link (VERBENA_FAULTS, see CMakeLists.txt): what arrives is whole, and over a connection in order and
// once.
#include <arpa/inet.h>

#include <algorithm>
#include <functional>

#include "end.hpp"

namespace verbena::unreliable {
namespace {

constexpr uint32_t kMessages = 1600;  // so many that some are lost
constexpr uint32_t kAtATime = 8;      // few enough for any socket buffer
constexpr uint32_t kPlaces = 64;      // receives that are posted at a time
constexpr uint32_t kPlace = 8192;
constexpr uint32_t kGrh = 40;
constexpr std::chrono::milliseconds kQuiet{300};  // longer than the link delays anything

uint8_t seed_of(uint32_t number) { return static_cast<uint8_t>(number * 37); }

// The numbers of the messages that arrive, in that order; each is sent once and checked byte by byte.
struct Stream {
  End& from;
  End& to;
  uint32_t grh;
  std::function<uint32_t(uint32_t)> length_of;
  std::function<Message(uint32_t)> message_of;
  std::vector<uint32_t> arrived;

  void run() {
    for (uint32_t place = 0; place < kPlaces; ++place) to.receive(place, place * kPlace, kPlace);
    for (uint32_t first = 0; first < kMessages; first += kAtATime) {
      for (uint32_t i = 0; i < kAtATime; ++i) send(first + i, i);
      for (uint32_t i = 0; i < kAtATime; ++i) ASSERT_TRUE(from.next_is(first + i, IBV_WC_SUCCESS));
      take(std::chrono::milliseconds(2));
    }
    take(kQuiet);
  }
  void send(uint32_t number, uint32_t place) {
    Message message = message_of(number);
    message.wr_id = number;
    message.at = place * kPlace;
    message.length = length_of(number);
    message.opcode = IBV_WR_SEND_WITH_IMM;
    message.imm = htonl(number);
    from.fill(message.at, message.length, seed_of(number));
    ASSERT_EQ(from.post(message), 0);
  }
  void take(std::chrono::milliseconds wait) {
    ibv_wc completion{};
    while (to.next(completion, wait)) {
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      const uint32_t number = ntohl(completion.imm_data);
      ASSERT_LT(number, kMessages);
      EXPECT_EQ(completion.byte_len, grh + length_of(number)) << number;
      EXPECT_TRUE(to.holds(completion.wr_id * kPlace + grh, length_of(number), seed_of(number))) << number;
      arrived.push_back(number);
      to.receive(completion.wr_id, completion.wr_id * kPlace, kPlace);
    }
  }
};

TEST(BadLink, OverUcMessagesArriveWholeInOrderAndOnce) {
  End a(IBV_QPT_UC);
  End b(IBV_QPT_UC);
  a.connect(b);
  b.connect(a);
  Stream stream{.from = a,
                .to = b,
                .grh = 0,
                .length_of = [](uint32_t number) { return number * 131 % 5000; },  // up to five packets
                .message_of = [](uint32_t) { return Message{}; },
                .arrived = {}};
  stream.run();
  EXPECT_EQ(std::ranges::adjacent_find(stream.arrived, std::greater_equal{}), stream.arrived.end())
      << "out of order, or twice";
  EXPECT_LT(stream.arrived.size(), kMessages) << "the link lost nothing, so this test shows nothing";
  EXPECT_GT(stream.arrived.size(), kMessages / 2);
  EXPECT_EQ(b.state(), IBV_QPS_RTS);
}

// A datagram that the link doubles is two datagrams, and one may overtake another: the receiver has no order
// to keep.
TEST(BadLink, OverUdDatagramsArriveWhole) {
  End a(IBV_QPT_UD);
  End b(IBV_QPT_UD);
  a.ready_datagrams();
  b.ready_datagrams();
  ibv_ah* to_b = a.handle_to(b);
  Stream stream{.from = a,
                .to = b,
                .grh = kGrh,
                .length_of = [](uint32_t number) { return number * 131 % 1025; },
                .message_of = [&](uint32_t) { return Message{.ah = to_b, .target = b.number()}; },
                .arrived = {}};
  stream.run();
  std::vector<uint32_t> different = stream.arrived;
  std::ranges::sort(different);
  different.erase(std::ranges::unique(different).begin(), different.end());
  EXPECT_LT(different.size(), kMessages) << "the link lost nothing, so this test shows nothing";
  EXPECT_GT(different.size(), kMessages * 9 / 10);
  EXPECT_EQ(ibv_destroy_ah(to_b), 0);
}

}  // namespace
}  // namespace verbena::unreliable
