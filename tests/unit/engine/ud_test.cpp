// Datagrams.
#include "engine/ud.hpp"

#include <fmt/format.h>

#include "script.hpp"

namespace verbena::engine {
namespace {

using roce::Operation;

class UdRequesterTest : public ::testing::Test, public RequesterHost, public DatagramWays {
 protected:
  void post(uint64_t length, uint32_t qkey, uint32_t address, bool has_imm = false) {
    requester_.post(
        {.request = {.kind = Request::Kind::kSend, .has_imm = has_imm, .imm = 0xab, .length = length},
         .target = base::Qpn{7},
         .qkey = qkey,
         .address = address});
  }
  bool step() { return requester_.poll_transmit(at_us(0), *this); }
  [[nodiscard]] PacketSink& way(const DatagramRequest& request) override { return sinks_[request.address]; }
  [[nodiscard]] bool gather(uint32_t number, uint64_t, std::span<std::byte>) override {
    return number != unreadable_;
  }
  [[nodiscard]] bool scatter(uint32_t, uint64_t, std::span<const std::byte>, Tail) override { return false; }
  void ended(uint32_t number, RequestStatus status) override {
    ended_.push_back(fmt::format("{} status {}", number, static_cast<int>(status)));
  }

  UdRequester requester_{
      {.source = base::Qpn{5}, .first_psn = kFirst, .qkey = 0x1111, .mtu = kMtu, .capacity = 4}, *this};
  ScriptSink sinks_[2];
  Lines ended_;
  uint32_t unreadable_ = UINT32_MAX;
};

TEST_F(UdRequesterTest, EachGoesItsOwnWay) {
  post(kMtu, 0x2222, 0);
  post(0, 0x80000000, 1, true);
  EXPECT_TRUE(step());
  EXPECT_EQ(sinks_[0].take(), Lines{"SendOnly 0 256B"});
  EXPECT_EQ(sinks_[0].last().deth, (roce::Deth{0x2222, base::Qpn{5}}));
  EXPECT_EQ(sinks_[0].last().bth.destination, base::Qpn{7});
  EXPECT_TRUE(step());
  EXPECT_EQ(sinks_[1].take(), Lines{"SendOnlyImm 1 imm ab"});
  EXPECT_EQ(sinks_[1].last().deth.qkey, 0x1111u);  // its own
  EXPECT_FALSE(step());
  EXPECT_EQ(ended_, (Lines{"0 status 0", "1 status 0"}));
}

TEST_F(UdRequesterTest, WaitsForRoomOnItsWay) {
  post(1, 1, 0);
  sinks_[0].set_ready(false);
  EXPECT_FALSE(step());
  EXPECT_EQ(ended_, Lines{});
  sinks_[0].set_ready(true);
  EXPECT_TRUE(step());
}

TEST_F(UdRequesterTest, NoLongerThanAPacket) {
  post(kMtu + 1, 1, 0);
  post(1, 1, 0);
  EXPECT_FALSE(step());
  EXPECT_EQ(ended_, Lines{"0 status 8"});
  EXPECT_TRUE(requester_.failed());
  EXPECT_FALSE(step());
}

TEST_F(UdRequesterTest, UnreadableMemoryStopsIt) {
  unreadable_ = 0;
  post(1, 1, 0);
  EXPECT_FALSE(step());
  EXPECT_EQ(ended_, Lines{"0 status 1"});
  EXPECT_EQ(sinks_[0].take(), Lines{});
}

class UdResponderTest : public ::testing::Test, public DatagramActions {
 protected:
  DropReason receive(size_t length, uint32_t qkey, Operation operation = Operation::kSendOnly) {
    auto packet = request_packet(operation, 12345, length);
    packet.bth.service = roce::Service::kUd;
    packet.deth = {qkey, base::Qpn{9}};
    packet.imm = 0x01020304;
    return responder_.on_packet(at_us(0), packet);
  }
  [[nodiscard]] Verdict deliver(const Arrival& arrival, std::span<const iovec> from) override {
    if (says_ != Verdict::kDone) return says_;
    EXPECT_EQ(from.size(), arrival.length == 0 ? 0u : 1u);
    done_.push_back(fmt::format("{} from {}{}", arrival.length, arrival.source.value,
                                arrival.has_imm ? fmt::format(" imm {:x}", arrival.imm) : ""));
    return Verdict::kDone;
  }
  [[nodiscard]] Verdict fail(Verdict why) override {
    done_.push_back(fmt::format("fail {}", static_cast<int>(why)));
    return std::exchange(fail_says_, Verdict::kDone);
  }

  Verdict says_ = Verdict::kDone;
  Verdict fail_says_ = Verdict::kDone;
  Lines done_;
  UdResponder responder_{{.qkey = 0x1111, .mtu = kMtu}, *this};
};

TEST_F(UdResponderTest, ADatagramTellsWhoSentIt) {
  EXPECT_EQ(receive(10, 0x1111), DropReason::kNone);
  EXPECT_EQ(receive(0, 0x1111, Operation::kSendOnlyImm), DropReason::kNone);
  EXPECT_EQ(done_, (Lines{"10 from 9", "0 from 9 imm 4030201"}));
}

TEST_F(UdResponderTest, TheQkeyMustFit) {
  EXPECT_EQ(receive(10, 0x1112), DropReason::kBadQkey);
  EXPECT_EQ(done_, Lines{});
  responder_.set_qkey(0x1112);
  EXPECT_EQ(receive(10, 0x1112), DropReason::kNone);
}

TEST_F(UdResponderTest, WhatCanNotBeDeliveredIsDropped) {
  EXPECT_EQ(receive(kMtu + 1, 0x1111), DropReason::kTooLong);
  EXPECT_EQ(receive(1, 0x1111, Operation::kSendFirst), DropReason::kBadOpcode);
  const std::pair<Verdict, DropReason> kCases[] = {{Verdict::kNotReady, DropReason::kNotReady},
                                                   {Verdict::kNoRoom, DropReason::kNoRoom},
                                                   {Verdict::kTooLong, DropReason::kTooLong},
                                                   {Verdict::kSilence, DropReason::kSilence}};
  for (const auto& [verdict, reason] : kCases) {
    says_ = verdict;
    EXPECT_EQ(receive(1, 0x1111), reason);
  }
  EXPECT_FALSE(responder_.failed());
  EXPECT_EQ(done_, Lines{});
}

TEST_F(UdResponderTest, AReceiveAtFaultFailsTheQueuePair) {
  says_ = Verdict::kBadReceive;
  fail_says_ = Verdict::kNoRoom;
  EXPECT_EQ(receive(1, 0x1111), DropReason::kRefused);
  says_ = Verdict::kDone;
  EXPECT_EQ(receive(1, 0x1111), DropReason::kSilence);
  EXPECT_EQ(receive(1, 0x1111), DropReason::kSilence);
  EXPECT_EQ(done_, (Lines{"fail 15", "fail 15"}));
}

}  // namespace
}  // namespace verbena::engine
