// Packets that leave many at a time are those that would have left one by one.
#include <gtest/gtest.h>

#include <random>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "roce/codec.hpp"
#include "support/engine_model.hpp"

namespace verbena::test {
namespace {

using engine::Request;
using roce::Operation;
using Random = std::mt19937;

constexpr uint32_t kMtu = 256;
constexpr base::Psn kFirst{0xfffff0};
constexpr base::Qpn kPeer{0x050607};

std::vector<std::vector<std::byte>> bytes_of(const KeepingSink& sink) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& kept : sink.sent) {
    std::vector<std::byte> bytes(kMtu + 128);
    bytes.resize(roce::emit(kept.whole(), bytes));
    all.push_back(std::move(bytes));
  }
  return all;
}

struct Sender {
  explicit Sender(size_t run, bool even)
      : requester({.target = kPeer,
                   .first_psn = kFirst,
                   .mtu = kMtu,
                   .capacity = 8,
                   .fetches = 4,
                   .timeout = base::milliseconds(67)},
                  host) {
    sink.run = run;
    requester.set_even(even);
  }
  void send(base::Instant now) {
    sink.sent.clear();
    while (requester.poll_transmit(now, sink)) {
    }
  }
  ModelHost host;
  KeepingSink sink;
  engine::RcRequester requester;
};

roce::Packet random_answer(Random& random, const engine::RcRequester& requester) {
  constexpr uint8_t kSyndromes[] = {roce::syndrome::kNoCredits, roce::syndrome::kNoCredits,
                                    roce::syndrome::kNoCredits, roce::syndrome::kSequence,
                                    roce::syndrome::kRnr | 1};
  roce::Packet packet;
  packet.bth.operation = Operation::kAcknowledge;
  const uint32_t back = static_cast<uint32_t>(random()) % (requester.under_way() + 1);
  packet.bth.psn = requester.next_psn() + (base::Psn::kMask - back);
  packet.aeth.syndrome = kSyndromes[random() % std::size(kSyndromes)];
  return packet;
}

TEST(SentRuns, AreTheSameRequests) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const bool even = round % 2 == 0;
    Sender single(0, even);
    Sender many(4 + random() % 60, even);
    base::Instant now{1'000'000'000};
    size_t in_runs = 0;
    for (int step = 0; step < 60; ++step) {
      now = now + std::chrono::microseconds(random() % 500);
      const auto draw = random();
      if (draw % 3 == 0 && !single.requester.full()) {
        const Request request{.kind = random() % 2 == 0 ? Request::Kind::kWrite : Request::Kind::kSend,
                              .solicited = random() % 4 == 0,
                              .key = 7,
                              .address = 0x1000,
                              .length = random() % (80 * kMtu)};
        single.requester.post(request);
        many.requester.post(request);
      } else if (draw % 3 == 1 && single.requester.under_way() > 0) {
        const auto answer = random_answer(random, single.requester);
        ASSERT_EQ(single.requester.on_packet(now, answer), many.requester.on_packet(now, answer));
      } else if (single.requester.next_deadline() <= now) {
        single.requester.on_timer(now);
        many.requester.on_timer(now);
      }
      single.send(now);
      many.send(now);
      in_runs += many.sink.sent.size();
      ASSERT_EQ(bytes_of(single.sink), bytes_of(many.sink)) << step;
      ASSERT_EQ(single.requester.next_deadline(), many.requester.next_deadline());
      ASSERT_EQ(single.requester.window().size(), many.requester.window().size());
      ASSERT_EQ(single.requester.under_way(), many.requester.under_way());
      ASSERT_EQ(single.requester.counters().packets, many.requester.counters().packets);
      ASSERT_EQ(single.requester.counters().retransmitted, many.requester.counters().retransmitted);
      ASSERT_EQ(single.host.ends().size(), many.host.ends().size());
    }
    EXPECT_GT(in_runs, 0u);
  }
}

// Counts what comes together.
TEST(SentRuns, LeaveTogether) {
  class CountingSink final : public engine::PacketSink {
   public:
    bool ready() override { return true; }
    std::span<std::byte> room(uint8_t, size_t payload_bytes) override {
      return std::span(room_).first(payload_bytes);
    }
    void commit(const roce::Packet&) override { ++singles; }
    size_t run_room(uint8_t, size_t) override { return 16; }
    void commit_run(const roce::Packet&, std::span<const std::byte> memory, size_t payload_bytes) override {
      EXPECT_EQ(payload_bytes, kMtu);
      together += memory.size() / payload_bytes;
    }
    size_t singles = 0;
    size_t together = 0;

   private:
    std::array<std::byte, kMtu> room_{};
  };
  for (const bool even : {false, true}) {
    ModelHost host;
    engine::RcRequester requester({.target = kPeer, .first_psn = kFirst, .mtu = kMtu, .capacity = 2}, host);
    requester.set_even(even);
    const auto write = [&] {
      requester.post({.kind = Request::Kind::kWrite, .key = 7, .address = 0x1000, .length = 16 * kMtu});
      CountingSink sink;
      while (requester.poll_transmit({}, sink)) {
      }
      EXPECT_EQ(sink.singles + sink.together, 16u);
      roce::Packet acknowledgement;
      acknowledgement.bth.operation = Operation::kAcknowledge;
      acknowledgement.bth.psn = requester.next_psn() + base::Psn::kMask;
      acknowledgement.aeth.syndrome = roce::syndrome::kNoCredits;
      EXPECT_EQ(requester.on_packet({}, acknowledgement), engine::DropReason::kNone);
      return sink.together;
    };
    EXPECT_GE(write(), 12u);
    EXPECT_GE(write(), even ? 15u : 12u);
  }
}

TEST(SentRuns, AreTheSameAnswers) {
  Random random(2);
  constexpr size_t kRegion = 100 * kMtu;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    ModelActions actions(7, 0x1000, kRegion);
    for (auto& byte : actions.memory()) byte = static_cast<std::byte>(random());
    KeepingSink one_by_one;
    KeepingSink in_runs;
    in_runs.run = 4 + random() % 60;
    const engine::RcResponderConfig config{
        .requester = kPeer, .first_psn = kFirst, .mtu = kMtu, .fetches = 4};
    engine::RcResponder single(config, actions);
    engine::RcResponder many(config, actions);
    base::Psn next = kFirst;
    for (int asked = 0; asked < 8; ++asked) {
      roce::Packet packet;
      packet.bth.operation = Operation::kReadRequest;
      packet.bth.psn = next;
      const auto length = static_cast<uint32_t>(random() % (kRegion / 2));
      packet.reth = {0x1000 + random() % (kRegion / 2), 7, length};
      const base::Psn first = next;
      next = next + std::max((length + kMtu - 1) / kMtu, 1u);
      const bool in_pairs = round % 2 == 0;
      for (const bool again : {false, true}) {
        if (again && random() % 2 == 0) continue;
        // All of it, or from within a pair.
        for (uint32_t at = again && in_pairs ? static_cast<uint32_t>(random() % 3) * kMtu : 0;
             at < std::max(length, 1u);) {
          const uint32_t each = (roce::kPair - at / kMtu % roce::kPair) * kMtu;
          roce::Packet part = packet;
          if (in_pairs) part.reth = {packet.reth.address + at, 7, std::min(each, length - at)};
          part.bth.psn = first + at / kMtu;
          ASSERT_EQ(single.on_packet({}, part), many.on_packet({}, part));
          at += in_pairs ? each : std::max(length, 1u);
        }
        while (single.poll_transmit({}, one_by_one)) {
        }
        while (many.poll_transmit({}, in_runs)) {
        }
        ASSERT_EQ(bytes_of(one_by_one), bytes_of(in_runs));
      }
    }
  }
}

}  // namespace
}  // namespace verbena::test
