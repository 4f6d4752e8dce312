// Unreliable connections: whole messages arrive, broken ones never, and nobody is told.
#include <optional>

#include "engine/uc_requester.hpp"
#include "engine/uc_responder.hpp"
#include "responder_script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

class UcRequesterTest : public ::testing::Test, public RequesterHost {
 protected:
  Lines sent() {
    while (requester_.poll_transmit(at_us(0), sink_)) {
    }
    return sink_.take();
  }
  [[nodiscard]] bool gather(uint32_t number, uint64_t, std::span<std::byte>) override {
    return number != unreadable_;
  }
  [[nodiscard]] bool scatter(uint32_t, uint64_t, std::span<const std::byte>, Tail) override { return false; }
  void ended(uint32_t number, RequestStatus status) override {
    ended_.push_back(fmt::format("{} status {}", number, static_cast<int>(status)));
  }

  UcRequester requester_{{.target = base::Qpn{5}, .first_psn = kFirst, .mtu = kMtu, .capacity = 4}, *this};
  ScriptSink sink_;
  Lines ended_;
  uint32_t unreadable_ = UINT32_MAX;
};

TEST_F(UcRequesterTest, SendsEachPacketOnceAndAsksNothing) {
  requester_.post({.kind = Request::Kind::kSend, .solicited = true, .length = 600});
  requester_.post(
      {.kind = Request::Kind::kWrite, .has_imm = true, .imm = 0xab, .address = 0x1000, .length = 0});
  EXPECT_EQ(sent(), (Lines{"SendFirst 0 256B", "SendMiddle 1 256B", "SendLast 2 solicited 88B",
                           "WriteOnlyImm 3 @1000+0 imm ab"}));
  EXPECT_EQ(sink_.last().bth.service, roce::Service::kUc);
  EXPECT_EQ(ended_, (Lines{"0 status 0", "1 status 0"}));
  EXPECT_TRUE(requester_.idle());
  EXPECT_EQ(requester_.next_psn(), kFirst + 4);
}

TEST_F(UcRequesterTest, ARequestEndsWithItsLastPacket) {
  requester_.post({.kind = Request::Kind::kSend, .length = 257});
  EXPECT_TRUE(requester_.poll_transmit(at_us(0), sink_));
  EXPECT_EQ(ended_, Lines{});
  sink_.set_ready(false);
  EXPECT_FALSE(requester_.poll_transmit(at_us(0), sink_));
  sink_.set_ready(true);
  EXPECT_TRUE(requester_.poll_transmit(at_us(0), sink_));
  EXPECT_EQ(ended_, Lines{"0 status 0"});
}

TEST_F(UcRequesterTest, UnreadableMemoryStopsIt) {
  unreadable_ = 1;
  for (int i = 0; i < 3; ++i) requester_.post({.kind = Request::Kind::kSend, .length = 1});
  EXPECT_EQ(sent(), Lines{"SendOnly 0 1B"});
  EXPECT_EQ(ended_, (Lines{"0 status 0", "1 status 1"}));
  EXPECT_TRUE(requester_.failed());
  EXPECT_EQ(sent(), Lines{});
}

class UcResponderTest : public ::testing::Test {
 protected:
  DropReason receive(roce::Packet packet) {
    packet.bth.service = roce::Service::kUc;
    return responder_.on_packet(at_us(0), packet);
  }
  Lines done() { return std::exchange(actions_.done, {}); }

  ScriptActions actions_;
  UcResponder responder_{{.first_psn = kFirst, .mtu = kMtu}, actions_};
};

TEST_F(UcResponderTest, WholeMessages) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 10)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 1, kMtu)), DropReason::kNone);
  EXPECT_TRUE(responder_.in_message());
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 2, 1)), DropReason::kNone);
  EXPECT_FALSE(responder_.in_message());
  EXPECT_EQ(receive(write_packet(Operation::kWriteFirst, 3, 257, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kWriteLastImm, 4, 1)), DropReason::kNone);
  EXPECT_EQ(done(), (Lines{"deliver 10", "begin", "place 0+256", "place 256+1 last", "finish 257",
                           "check write 1000+257", "write 1000+256", "begin imm", "write 1100+1 last",
                           "finish 257"}));
}

TEST_F(UcResponderTest, AGapDropsTheRestOfItsMessage) {
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 0, kMtu)), DropReason::kNone);
  (void)done();
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 2, kMtu)), DropReason::kBrokenMessage);
  EXPECT_FALSE(responder_.in_message());
  EXPECT_EQ(receive(request_packet(Operation::kSendMiddle, 3, kMtu)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 4, 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(done(), Lines{});
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 5, 7)), DropReason::kNone);
  EXPECT_EQ(done(), Lines{"deliver 7"});  // into the same receive
}

TEST_F(UcResponderTest, ALostEndOrBeginIsNoMessage) {
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 0, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 2, kMtu)), DropReason::kNone);  // its last was lost
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 3, 1)), DropReason::kNone);
  EXPECT_EQ(done(),
            (Lines{"begin", "place 0+256", "begin", "place 0+256", "place 256+1 last", "finish 257"}));
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 5, 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 6, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 7, 1)), DropReason::kNone);  // the sender gave up
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, 8, kMtu)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kWriteLast, 9, 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(request_packet(Operation::kSendLast, 10, 1)), DropReason::kBrokenMessage);
}

TEST_F(UcResponderTest, CopiesAndLatecomersAreDropped) {
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 2)), DropReason::kNone);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 3)), DropReason::kDuplicate);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 2)), DropReason::kDuplicate);
  EXPECT_EQ(done(), (Lines{"deliver 1", "deliver 2"}));
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0x900000, 4)), DropReason::kNone);  // began anew
  EXPECT_EQ(done(), Lines{"deliver 4"});
}

TEST_F(UcResponderTest, WhatIsNotAllowedIsDroppedWithTheRestOfItsMessage) {
  const std::pair<Verdict, DropReason> kCases[] = {{Verdict::kNotReady, DropReason::kNotReady},
                                                   {Verdict::kNoRoom, DropReason::kNoRoom},
                                                   {Verdict::kBadKey, DropReason::kRefused},
                                                   {Verdict::kTooLong, DropReason::kTooLong},
                                                   {Verdict::kSilence, DropReason::kSilence}};
  uint32_t psn = 0;
  for (const auto& [verdict, reason] : kCases) {
    actions_.next = verdict;
    EXPECT_EQ(receive(request_packet(Operation::kSendFirst, psn++, kMtu)), reason);
    EXPECT_EQ(receive(request_packet(Operation::kSendLast, psn++, 1)), DropReason::kBrokenMessage);
    EXPECT_EQ(done(), Lines{});
  }
  EXPECT_FALSE(responder_.failed());
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, psn, 1)), DropReason::kNone);
}

TEST_F(UcResponderTest, LengthsThatCanNotBe) {
  uint32_t psn = 0;
  EXPECT_EQ(receive(request_packet(Operation::kSendFirst, psn++, kMtu - 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, psn++, kMtu + 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(write_packet(Operation::kWriteOnly, psn++, 2, 1)), DropReason::kBrokenMessage);
  EXPECT_EQ(receive(write_packet(Operation::kWriteFirst, psn++, kMtu, kMtu)), DropReason::kBrokenMessage);
  for (const auto& line : done()) EXPECT_EQ(line.substr(0, 5), "check");
}

TEST_F(UcResponderTest, AReceiveAtFaultFailsTheQueuePair) {
  actions_.next = Verdict::kBadReceive;
  actions_.fail_says = Verdict::kNoRoom;
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 0, 1)), DropReason::kRefused);
  EXPECT_TRUE(responder_.failed());
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 1, 1)), DropReason::kSilence);
  EXPECT_EQ(receive(request_packet(Operation::kSendOnly, 2, 1)), DropReason::kSilence);
  EXPECT_EQ(done(), (Lines{"fail 15", "fail 15"}));  // there was no room the first time
}

TEST_F(UcResponderTest, OtherServicesPacketsAreNone) {
  EXPECT_EQ(responder_.on_packet(at_us(0), request_packet(Operation::kSendOnly, 0, 1)),
            DropReason::kBadOpcode);
  EXPECT_EQ(receive(read_packet(0, 0x1000, 1)), DropReason::kBadOpcode);
  EXPECT_EQ(receive(ack_packet(0)), DropReason::kBadOpcode);
  EXPECT_EQ(responder_.expected(), kFirst);
}

}  // namespace
}  // namespace verbena::engine
