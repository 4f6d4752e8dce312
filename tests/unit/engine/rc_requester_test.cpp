// What a requester sends, and when.
#include "engine/timers.hpp"
#include "requester_script.hpp"

namespace verbena::engine {
namespace {

class RcRequesterTest : public RequesterScript {};

TEST_F(RcRequesterTest, CutsMessagesIntoPackets) {
  open(usual());
  send(0);
  send(256);
  send(257);
  write(600);
  write(0);
  EXPECT_EQ(sent(), (Lines{"SendOnly 0", "SendOnly 1 256B", "SendFirst 2 256B", "SendLast 3 1B",
                           "WriteFirst 4 @1000+600 256B", "WriteMiddle 5 256B", "WriteLast 6 88B",
                           "WriteOnly 7 ack @1000+0"}));
  EXPECT_EQ(sent(), Lines{});
}

std::vector<size_t> asking(const Lines& lines) {
  std::vector<size_t> found;
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i].find(" ack") != std::string::npos) found.push_back(i);
  return found;
}

// What another message follows at once is acknowledged with that one, but not for long: the queue has 64.
TEST_F(RcRequesterTest, AsksAfterAPartOfTheQueueAndAtItsEnd) {
  open(usual());
  for (int i = 0; i < 20; ++i) send(1);
  EXPECT_EQ(asking(sent()), (std::vector<size_t>{15, 19}));
}

// The window begins with 16 packets.
TEST_F(RcRequesterTest, AsksWhenTheWindowIsFull) {
  open(usual());
  send(40 * kMtu);
  const auto lines = sent();
  EXPECT_EQ(lines.size(), 16u);
  EXPECT_EQ(asking(lines), std::vector<size_t>{15});
}

TEST_F(RcRequesterTest, ImmediateAndSolicitedGoWithTheLastPacket) {
  open(usual());
  requester_->post(
      {.kind = Request::Kind::kSend, .has_imm = true, .solicited = true, .imm = 0xabc, .length = 300});
  requester_->post(
      {.kind = Request::Kind::kWrite, .has_imm = true, .imm = 0xdef, .address = 0x1000, .length = 300});
  EXPECT_EQ(sent(), (Lines{"SendFirst 0 256B", "SendLastImm 1 solicited imm abc 44B",
                           "WriteFirst 2 @1000+300 256B", "WriteLastImm 3 ack imm def 44B"}));
}

TEST_F(RcRequesterTest, SendsNothingThatTheSinkHasNoRoomFor) {
  open(usual());
  send(10);
  sink_.set_ready(false);
  EXPECT_EQ(sent(), Lines{});
  sink_.set_ready(true);
  EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 10B"});
}

TEST_F(RcRequesterTest, FetchesAreLimited) {
  auto config = usual();
  config.fetches = 2;
  open(config);
  read(10);
  add(1);
  read(10);
  send(1);
  EXPECT_EQ(sent(), (Lines{"ReadRequest 0 ack @1000+10", "FetchAdd 1 ack"}));
  EXPECT_EQ(receive(response_packet(roce::Operation::kReadResponseOnly, 0, 10)), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{"ReadRequest 2 ack @1000+10", "SendOnly 3 ack 1B"}));
}

TEST_F(RcRequesterTest, AFencedRequestWaitsForFetchesOnly) {
  open(usual());
  write(1);
  read(10);
  send(2, true);
  send(3);
  EXPECT_EQ(sent(), (Lines{"WriteOnly 0 ack @1000+1 1B", "ReadRequest 1 ack @1000+10"}));
  EXPECT_EQ(ack(0), DropReason::kNone);
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(receive(response_packet(roce::Operation::kReadResponseOnly, 1, 10)), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{"SendOnly 2 2B", "SendOnly 3 ack 3B"}));
  EXPECT_EQ(ended(), (Lines{"0", "1"}));
}

TEST_F(RcRequesterTest, AFenceWithoutFetchesIsNone) {
  open(usual());
  write(1);
  send(2, true);
  EXPECT_EQ(sent(), (Lines{"WriteOnly 0 ack @1000+1 1B", "SendOnly 1 ack 2B"}));
}

TEST_F(RcRequesterTest, TheWindowHoldsBackAndAsks) {
  auto config = usual();
  config.window_bytes = 3 * (kMtu + Window::kPacketOverhead);
  open(config);
  send(10 * kMtu);
  EXPECT_EQ(sent(), (Lines{"SendFirst 0 256B", "SendMiddle 1 256B", "SendMiddle 2 ack 256B"}));
  EXPECT_EQ(ack(2), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{"SendMiddle 3 256B", "SendMiddle 4 256B", "SendMiddle 5 ack 256B"}));
}

TEST_F(RcRequesterTest, ALongReadIsAskedForInPartsThatFitTheWindow) {
  auto config = usual();
  config.window_bytes = 4 * (kMtu + Window::kPacketOverhead);
  open(config);
  read(10 * kMtu);
  EXPECT_EQ(sent(), Lines{"ReadRequest 0 ack @1000+1024"});
  const auto answer = [](uint32_t psn) {
    using enum roce::Operation;
    return psn == 0 ? kReadResponseFirst : psn == 3 ? kReadResponseLast : kReadResponseMiddle;
  };
  for (uint32_t psn = 0; psn < 4; ++psn)
    EXPECT_EQ(receive(response_packet(answer(psn), psn, kMtu)), DropReason::kNone);
  EXPECT_EQ(sent(), Lines{"ReadRequest 4 ack @1400+1024"});
  EXPECT_EQ(scattered(), (Lines{"0: 0+256", "0: 256+256", "0: 512+256", "0: 768+256"}));
  EXPECT_EQ(ended(), Lines{});
}

// After a timeout the window is one packet, and what is asked for again fits it; but not where the peer can't
// bear it.
TEST_F(RcRequesterTest, AReadIsAskedForAgainInPartsOrWhole) {
  for (const bool whole : {false, true}) {
    auto config = usual();
    config.window_bytes = 4 * (kMtu + Window::kPacketOverhead);
    open(config);
    requester_->set_whole_replays(whole);
    read(10 * kMtu);
    EXPECT_EQ(sent(), Lines{"ReadRequest 0 ack @1000+1024"});
    now_ = requester_->next_deadline();
    requester_->on_timer(now_);
    EXPECT_EQ(sent(), Lines{whole ? "ReadRequest 0 ack @1000+1024" : "ReadRequest 0 ack @1000+256"});
  }
}

// Each packet a message: all of one length, but the last. What was posted before goes as it began.
TEST_F(RcRequesterTest, AWriteIsEvenWhereThePeerMayHaveItSo) {
  open(usual());
  requester_->set_even(true);
  write(3 * kMtu);
  EXPECT_EQ(sent().front(), "WriteFirst 0 @1000+768 256B") << "may we write there?";
  write(2 * kMtu);
  EXPECT_EQ(ack(2), DropReason::kNone);
  write(2 * kMtu + 4);
  EXPECT_EQ(sent(), (Lines{"WriteFirst 3 @1000+512 256B", "WriteLast 4 256B", "WriteOnly 5 @1000+256 256B",
                           "WriteOnly 6 @1100+256 256B", "WriteOnly 7 ack @1200+4 4B"}));
  EXPECT_EQ(nak(6), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1"}));
  EXPECT_EQ(sent(), (Lines{"WriteOnly 6 ack @1100+256 256B", "WriteOnly 7 ack @1200+4 4B"}));
  EXPECT_EQ(ack(7), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{"2"});
}

// The receiver's completion tells the length of the message; a long one gains nothing; and what is refused is
// refused as a whole.
TEST_F(RcRequesterTest, AWriteWithImmediateALongOneOrOneBeyondTheKnownIsNeverEven) {
  open(usual());
  requester_->set_even(true);
  const auto first_of = [&](Request request) {
    request.kind = Request::Kind::kWrite;
    requester_->post(request);
    const std::string first = sent().front();
    for (int turns = 0; !requester_->idle() && turns < 100; ++turns) {
      EXPECT_EQ(ack(requester_->next_psn().since(kFirst) - 1), DropReason::kNone);
      (void)sent();
    }
    EXPECT_TRUE(requester_->idle());
    return first.substr(0, first.find(' '));
  };
  constexpr uint64_t kLong = 256 * 1024;
  EXPECT_EQ(first_of({.key = 7, .address = 0x1000, .length = kLong + 1}), "WriteFirst");
  EXPECT_EQ(first_of({.key = 7, .address = 0x1000, .length = kLong}), "WriteOnly");
  EXPECT_EQ(first_of({.key = 7, .address = 0x1000, .length = kLong + 1}), "WriteFirst");
  EXPECT_EQ(first_of({.has_imm = true, .key = 7, .address = 0x1000, .length = 2 * kMtu}), "WriteFirst");
  EXPECT_EQ(first_of({.key = 7, .address = 0xfff, .length = 2 * kMtu}), "WriteFirst");
  EXPECT_EQ(first_of({.key = 8, .address = 0x1000, .length = 2 * kMtu}), "WriteFirst");
  EXPECT_EQ(first_of({.key = 7, .address = 0xfff, .length = kLong}), "WriteOnly");
}

// Answers of one length: to a peer that knows pairs, from where it has let us read before.
class RcPairsTest : public RcRequesterTest {
 protected:
  void open(RcRequesterConfig config = usual()) {
    RcRequesterTest::open(config);
    requester_->set_even(true);
    read(30 * kMtu);
    for (int turns = 0; !requester_->idle() && turns < 100; ++turns) answer_all(sent());
    ASSERT_TRUE(requester_->idle());
    (void)ended();
    (void)scattered();
    first_ = requester_->next_psn().since(kFirst);
  }
  // Of the requests that were just sent, each as a READ of its own.
  void answer_all(const Lines& requests) {
    for (const auto& line : requests) {
      unsigned psn = 0;
      unsigned length = 0;
      ASSERT_EQ(sscanf(line.c_str(), "ReadRequest %u ack @%*x+%u", &psn, &length), 2) << line;
      const uint32_t packets = (length + kMtu - 1) / kMtu;
      for (uint32_t i = 0; i < packets; ++i)
        ASSERT_EQ(answer(psn + i, i == 0, i + 1 == packets, std::min(length - i * kMtu, kMtu)),
                  DropReason::kNone);
    }
  }
  DropReason answer(uint32_t psn, bool first, bool last, size_t bytes = kMtu) {
    using enum roce::Operation;
    return receive(response_packet(first && last ? kReadResponseOnly
                                   : first       ? kReadResponseFirst
                                   : last        ? kReadResponseLast
                                                 : kReadResponseMiddle,
                                   psn, bytes));
  }
  // A request of so many packets from the READ's `index`th.
  [[nodiscard]] std::string request(uint32_t index, uint32_t bytes) const {
    return fmt::format("ReadRequest {} ack @{:x}+{}", first_ + index, 0x1000 + index * kMtu, bytes);
  }
  [[nodiscard]] size_t scatter_more(uint32_t, uint64_t, size_t each, size_t most,
                                    MorePayloads& payloads) override {
    size_t count = 0;
    for (; count < most; ++count) {
      const auto payload = payloads.next();
      if (payload.data() == nullptr) break;
      EXPECT_EQ(payload.size(), each);
    }
    return count;
  }
  uint32_t first_ = 0;  // PSN of the next READ
};

// As many as are asked for, of one length.
class AlikePayloads final : public MorePayloads {
 public:
  explicit AlikePayloads(size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] size_t most() const override { return 64; }
  [[nodiscard]] std::span<const std::byte> next() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(RcPairsTest, AReadIsAskedForInPairs) {
  open();
  read(6 * kMtu + 4);
  const Lines asked = sent();
  EXPECT_EQ(asked, (Lines{request(0, 512), request(2, 512), request(4, 512), request(6, 4)}));
  answer_all(asked);
  EXPECT_EQ(ended(), Lines{"1"});
  EXPECT_EQ(scattered().size(), 7u);
  read(2 * kMtu);
  EXPECT_EQ(sent().size(), 1u) << "too short to gain anything";
}

TEST_F(RcPairsTest, ARefusalIsOfTheWhole) {
  open();
  const auto asked = [&](uint32_t key, uint64_t address) {
    requester_->post({.kind = Request::Kind::kRead, .key = key, .address = address, .length = 4 * kMtu});
    return sent().size();
  };
  EXPECT_EQ(asked(7, 0x1000 + 26 * kMtu), 2u);
  EXPECT_EQ(asked(7, 0x1000 + 27 * kMtu), 1u) << "more than was read before";
  EXPECT_EQ(asked(8, 0x1000), 1u);
}

TEST_F(RcPairsTest, AllOfAReadIsOneOfThoseWhichAreGranted) {
  auto config = usual();
  config.fetches = 1;
  open(config);
  read(8 * kMtu);
  read(8 * kMtu);
  const Lines asked = sent();
  EXPECT_EQ(asked.size(), 4u);
  answer_all(asked);
  EXPECT_EQ(sent().size(), 4u);
}

TEST_F(RcPairsTest, TheWindowLeavesPairsWhole) {
  auto config = usual();
  config.fetches = 1;
  config.window_bytes = 9 * (kMtu + Window::kPacketOverhead);
  open(config);
  read(12 * kMtu);
  EXPECT_EQ(sent(), (Lines{request(0, 512), request(2, 512), request(4, 512), request(6, 512)}));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(answer(first_ + i, i % 2 == 0, i % 2 == 1), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{request(8, 512), request(10, 512)})) << "still the same one of the granted";
}

TEST_F(RcPairsTest, WhatIsLostIsAskedForAgainFromWithinAPair) {
  open();
  const uint64_t before = requester_->counters().packets;
  read(8 * kMtu);
  EXPECT_EQ(sent().size(), 4u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(answer(first_ + i, i % 2 == 0, i % 2 == 1), DropReason::kNone);
  EXPECT_EQ(answer(first_ + 4, true, false), DropReason::kOutOfOrder);
  const Lines again = sent();
  EXPECT_EQ(again, (Lines{request(3, 256), request(4, 512), request(6, 512)}));
  EXPECT_EQ(requester_->counters().packets, before + 7);
  EXPECT_EQ(requester_->counters().retransmitted, 3u);
  answer_all(again);
  EXPECT_EQ(ended(), Lines{"1"});
}

// They are as long as the packet before, which may be the short end of the READ before.
TEST_F(RcPairsTest, WhatFollowsTogetherIsOfFullLength) {
  const auto taken_behind = [&](uint32_t end_bytes) {
    open();
    read(7 * kMtu + end_bytes);
    read(8 * kMtu);
    EXPECT_EQ(sent().size(), 8u);
    for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(answer(first_ + i, i % 2 == 0, i % 2 == 1), DropReason::kNone);
    const auto end = response_packet(roce::Operation::kReadResponseLast, first_ + 7, end_bytes);
    EXPECT_EQ(receive(end), DropReason::kNone);
    AlikePayloads followers(end_bytes);
    return requester_->on_more(now_, end, followers);
  };
  EXPECT_EQ(taken_behind(kMtu), 7u) << "all but the last";
  EXPECT_EQ(taken_behind(100), 0u);
}

TEST_F(RcPairsTest, AfterATimeoutOnePairFindsOut) {
  open();
  read(8 * kMtu);
  EXPECT_EQ(sent().size(), 4u);
  ring();
  EXPECT_EQ(sent(), Lines{request(0, 512)});
  answer_all({request(0, 512)});
  EXPECT_EQ(sent().size(), 3u);
}

TEST_F(RcPairsTest, AnswersThatAreNoPairsEndTheRead) {
  const auto ends = [&](uint32_t index, bool first, bool last) {
    open();
    read(8 * kMtu);
    (void)sent();
    for (uint32_t i = 0; i < index; ++i)
      EXPECT_EQ(answer(first_ + i, i % 2 == 0, i % 2 == 1), DropReason::kNone);
    EXPECT_EQ(answer(first_ + index, first, last), DropReason::kBadAnswer);
    EXPECT_EQ(ended(), Lines{fmt::format("1 status {}", static_cast<int>(RequestStatus::kBadResponse))});
  };
  ends(0, false, true);
  ends(2, false, true);
  ends(2, false, false);
  ends(2, true, true);
  ends(3, false, false);
  ends(3, true, false);
}

TEST_F(RcPairsTest, NoneGoesToASinkThatHasNoRoom) {
  open();
  read(8 * kMtu);
  sink_.set_ready(false);
  EXPECT_EQ(sent(), Lines{});
  sink_.set_ready(true);
  EXPECT_EQ(sent().size(), 4u);
}

TEST(GrantedRanges, AKeyIsGoodForWhatLiesBetweenItsParts) {
  GrantedRanges granted;
  EXPECT_FALSE(granted.cover(0, 0, 1));
  granted.add(0x700, 0x1000, 0x100);
  granted.add(0x700, 0x3000, 0x100);
  EXPECT_TRUE(granted.cover(0x700, 0x1000, 0x2100));
  EXPECT_FALSE(granted.cover(0x700, 0x1000, 0x2101));
  EXPECT_FALSE(granted.cover(0x700, 0xfff, 1));
  EXPECT_FALSE(granted.cover(0x700, 0x3000, UINT64_MAX));
  EXPECT_FALSE(granted.cover(0x701, 0x1000, 1));
  granted.add(0x701, 0x5000, 0);  // whose key nobody looked at
  EXPECT_FALSE(granted.cover(0x701, 0x5000, 1));
}

TEST_F(RcRequesterTest, CreditsHoldBackButOneMessageAlwaysGoes) {
  open(usual());
  for (int i = 0; i < 5; ++i) send(1);
  EXPECT_EQ(sent().size(), 5u);                             // nothing is known of credits yet
  EXPECT_EQ(receive(ack_packet(4, 0)), DropReason::kNone);  // none left
  for (int i = 0; i < 3; ++i) send(1);
  write(1);
  EXPECT_EQ(sent(), Lines{"SendOnly 5 ack 1B"});
  EXPECT_EQ(receive(ack_packet(5, 1)), DropReason::kNone);  // one
  EXPECT_EQ(sent(), Lines{"SendOnly 6 ack 1B"});
  // The same acknowledgement again, with what has been posted since.
  EXPECT_EQ(receive(ack_packet(5, 2)), DropReason::kNone);
  EXPECT_EQ(sent(), (Lines{"SendOnly 7 1B", "WriteOnly 8 ack @1000+1 1B"}));
}

TEST_F(RcRequesterTest, UnreadableMemoryEndsTheRequestInItsTurn) {
  open(usual());
  send(1);
  send(600);
  send(1);
  unreadable_ = 1;
  unreadable_from_ = 300;
  EXPECT_EQ(sent(), (Lines{"SendOnly 0 1B", "SendFirst 1 256B", "SendOnly 0 ack 1B"}));
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(ended(), Lines{});
  EXPECT_EQ(ack(1), DropReason::kNone) << "of all that came";
  EXPECT_EQ(ended(), (Lines{"0", "1 status 1"}));
  EXPECT_TRUE(requester_->failed());
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(requester_->next_deadline(), kNoDeadline);
}

// What was sent before it relied on it to ask for the acknowledgement, and must not wait for a timer.
TEST_F(RcRequesterTest, BeforeUnreadableMemoryTheAcknowledgementIsAskedForAfterAll) {
  open(usual());
  send(1);
  send(600);
  send(1);
  unreadable_ = 2;
  EXPECT_EQ(sent(), (Lines{"SendOnly 0 1B", "SendFirst 1 256B", "SendMiddle 2 256B", "SendLast 3 88B",
                           "SendLast 3 ack 88B"}));
  EXPECT_EQ(sent(), Lines{}) << "once";
  EXPECT_EQ(ended(), Lines{});
  EXPECT_EQ(ack(3), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1", "2 status 1"}));
}

TEST_F(RcRequesterTest, BeforeUnreadableMemoryNothingIsSentTwiceThatAsked) {
  open(usual());
  send(1);
  send(1, true);
  unreadable_ = 1;
  EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 1B"});
  EXPECT_EQ(ack(0), DropReason::kNone);
  EXPECT_EQ(ended(), (Lines{"0", "1 status 1"}));
}

TEST_F(RcRequesterTest, UnreadableMemoryOfTheFirstRequestEndsItAtOnce) {
  open(usual());
  send(1);
  unreadable_ = 0;
  EXPECT_EQ(sent(), Lines{});
  EXPECT_EQ(ended(), Lines{"0 status 1"});
}

TEST_F(RcRequesterTest, TimeoutProbesWithOnePacketThenGivesUp) {
  open(usual());
  send(600);
  const auto begun = now_;
  EXPECT_EQ(sent().size(), 3u);
  EXPECT_LT(requester_->next_deadline(), at_us(4000));  // long before the queue pair's own timeout
  unsigned probes = 0;
  while (!requester_->failed()) {
    ring();
    if (const auto lines = sent(); !lines.empty()) {
      EXPECT_EQ(lines, Lines{"SendFirst 0 ack 256B"});
      ++probes;
    }
  }
  EXPECT_EQ(now_, begun + std::chrono::milliseconds(8 * 67));
  EXPECT_EQ(ended(), Lines{"0 status 5"});
  EXPECT_GE(probes, 8u);
  EXPECT_LE(probes, 40u);
}

// Stopped for a minute, or without a processor: the peer's answer may lie in the socket, or be to a packet
// that an adapter would have sent again meanwhile.
TEST_F(RcRequesterTest, TimeInWhichNobodyLookedIsNotThePeersSilence) {
  open(usual());
  send(1);
  EXPECT_EQ(sent().size(), 1u);
  pass(60'000'000);
  requester_->on_timer(now_);
  EXPECT_FALSE(requester_->failed());
  EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 1B"});
  const auto back = now_;
  while (!requester_->failed()) ring();
  EXPECT_GT(now_, back + std::chrono::milliseconds(7 * 67));
  EXPECT_LE(now_, back + std::chrono::milliseconds(8 * 67));
}

TEST_F(RcRequesterTest, AwayWhenItShouldGiveUpItTriesOnceMore) {
  open(usual());
  send(1);
  (void)sent();
  const auto end = now_ + std::chrono::milliseconds(8 * 67);
  while (requester_->next_deadline() != end) ring();
  (void)sent();
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(requester_->failed());
    pass(60'000'000);
    requester_->on_timer(now_);
    (void)sent();
  }
  while (!requester_->failed()) {
    pass(60'000'000);  // always late: it ends all the same
    requester_->on_timer(now_);
    ASSERT_LT(now_, at_us(3'600'000'000));
  }
  EXPECT_EQ(ended(), Lines{"0 status 5"});
}

TEST_F(RcRequesterTest, OnAnotherPathRetriesCountAnew) {
  open(usual());
  other_path_ = true;
  send(10);
  (void)sent();
  const base::Instant begin = now_;
  Lines done;
  while (done.empty()) {
    ring();
    (void)sent();
    done = ended();
  }
  EXPECT_EQ(done, Lines{"0 status 5"});
  EXPECT_FALSE(other_path_);
  EXPECT_EQ(now_ - begin, 2 * 8 * std::chrono::milliseconds(67));
}

TEST_F(RcRequesterTest, WithoutTimeoutItNeverGivesUp) {
  auto config = usual();
  config.timeout = {};
  open(config);
  send(1);
  EXPECT_EQ(sent().size(), 1u);
  for (int i = 0; i < 100; ++i) {
    ring();
    EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 1B"});
  }
  EXPECT_FALSE(requester_->failed());
  EXPECT_GT(now_, at_us(30'000'000));
  EXPECT_EQ(ack(0), DropReason::kNone);
  EXPECT_EQ(ended(), Lines{"0"});
  EXPECT_EQ(requester_->next_deadline(), kNoDeadline);
}

TEST_F(RcRequesterTest, ThePeersTimeBeginsWhenItIsAsked) {
  open(usual());
  send(100 * kMtu);
  EXPECT_EQ(sent().size(), 16u);
  EXPECT_EQ(ack(15), DropReason::kNone);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(requester_->poll_transmit(now_, sink_));
  EXPECT_EQ(ack(31), DropReason::kNone);  // of those 20 the 16th had asked
  const base::Instant unasked = requester_->next_deadline();
  pass(300);  // a slow sender
  ASSERT_LT(now_, unasked);
  EXPECT_GT(sent().size(), 12u);
  EXPECT_EQ(requester_->next_deadline() - unasked, std::chrono::microseconds(300));
  EXPECT_EQ(sent(), Lines{});
}

TEST_F(RcRequesterTest, ALateAnswerUndoesTheTimeout) {
  open(usual());
  for (int i = 0; i < 8; ++i) send(1);
  EXPECT_EQ(sent().size(), 8u);
  const auto window = requester_->window().size();
  ring();
  EXPECT_EQ(sent(), Lines{"SendOnly 0 ack 1B"});
  EXPECT_LT(requester_->window().size(), window);
  EXPECT_EQ(ack(7), DropReason::kNone);  // only the acknowledgement was lost
  EXPECT_EQ(ended().size(), 8u);
  EXPECT_GE(requester_->window().size(), window);
  EXPECT_EQ(sent(), Lines{});
}

TEST_F(RcRequesterTest, APostFromWithinAnEndIsSentLikeAnyOther) {
  struct Poster final : RequesterHost {
    bool gather(uint32_t, uint64_t, std::span<std::byte>) override { return true; }
    bool scatter(uint32_t, uint64_t, std::span<const std::byte>, Tail) override { return true; }
    void ended(uint32_t, RequestStatus) override {
      requester->post({.kind = Request::Kind::kSend, .length = 1});
    }
    RcRequester* requester = nullptr;
  } poster;
  RcRequester requester({.first_psn = kFirst, .mtu = kMtu, .capacity = 1}, poster);
  poster.requester = &requester;
  requester.post({.kind = Request::Kind::kSend, .length = 1});
  for (uint32_t psn = 0; psn < 5; ++psn) {
    EXPECT_TRUE(requester.poll_transmit(now_, sink_));
    EXPECT_FALSE(requester.poll_transmit(now_, sink_));
    EXPECT_EQ(requester.on_packet(now_, ack_packet(psn)), DropReason::kNone);
  }
  EXPECT_EQ(sink_.take().back(), "SendOnly 4 ack 1B");
}

TEST_F(RcRequesterTest, NewRetryRulesCountForRequestsUnderWay) {
  open(usual());
  send(1);
  EXPECT_EQ(sent().size(), 1u);
  requester_->set_retry_rules(std::chrono::milliseconds(1), 0, 7);
  ring();
  EXPECT_EQ(ended(), Lines{"0 status 5"});
}

}  // namespace
}  // namespace verbena::engine
