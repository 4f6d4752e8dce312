#include "net/transmitter.hpp"

#include <algorithm>
#include <map>
#include <random>

#include "wire.hpp"

namespace verbena::net {
namespace {

// Keeps the runs that it is given.
struct Recorder final : Link {
  struct Kept {
    Route route;
    uint16_t segment_bytes;
    Bytes bytes;
  };
  std::vector<Kept> runs;
  unsigned ports_asked = 0;
  bool refuse = false;

  bool send(const Run& run) override {
    runs.push_back({run.route, run.segment_bytes, {run.bytes.begin(), run.bytes.end()}});
    return !refuse;
  }
  uint16_t source_port(const Route& route) override {
    ++ports_asked;
    return static_cast<uint16_t>(50'000 + route.slot.value);
  }
  size_t receive(Sink&, size_t) override { return 0; }
  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] std::vector<size_t> packet_counts() const {
    std::vector<size_t> counts;
    for (const Kept& run : runs) counts.push_back(Run{run.route, run.segment_bytes, run.bytes}.packets());
    return counts;
  }
};

using Counts = std::vector<size_t>;

class Transmit : public testing::Test {
 protected:
  void give(const Route& route, size_t bytes) {
    given_.push_back(packet_of(route.slot.value, static_cast<uint32_t>(given_.size()), bytes));
    transmit(transmitter_, route, given_.back());
  }

  // The same, with a payload that lies elsewhere.
  void give_in_parts(const Route& route, size_t bytes) {
    given_.push_back(packet_of(route.slot.value, static_cast<uint32_t>(given_.size()), bytes));
    const auto transport = std::span<const std::byte>(given_.back()).first(bytes - roce::kIcrcBytes);
    const size_t headers = std::min<size_t>(transport.size(), 12 + 4 * (given_.size() % 5));
    transmitter_.append(route, transport.first(headers), transport.subspan(headers));
  }

  // Hands over a rider; it is expected to come out at that place among all.
  void carry(const Route& route, size_t place) {
    const Bytes packet = packet_of(route.slot.value, 999, kRiderBytes);
    std::ranges::copy(packet, transmitter_.rider_space().begin());
    transmitter_.carry(route, packet.size());
    riders_[place] = packet;
  }

  // All that was given came out in order, its ICRC made with its place in its run as ID.
  void expect_all_out() {
    transmitter_.flush();
    for (const auto& [place, packet] : riders_)
      given_.insert(given_.begin() + static_cast<ptrdiff_t>(place), packet);
    riders_.clear();
    size_t number = 0;
    for (const auto& kept : link_.runs) {
      const net::Run run{kept.route, kept.segment_bytes, kept.bytes};
      const roce::Flow flow{.source = run.route.from.bytes,
                            .destination = run.route.to.bytes,
                            .source_port = link_.source_port(run.route)};
      for (size_t i = 0; i < run.packets(); ++i, ++number) {
        ASSERT_LT(number, given_.size());
        Bytes expected = given_[number];
        roce::append_icrc(flow, static_cast<uint16_t>(i), expected);
        EXPECT_TRUE(std::ranges::equal(expected, run.packet(i))) << number;
      }
    }
    EXPECT_EQ(given_.size(), number);
    EXPECT_EQ(given_.size(), transmitter_.counters().packets);
    EXPECT_EQ(link_.runs.size(), transmitter_.counters().runs);
  }

  static constexpr size_t kRiderBytes = 20;  // as an acknowledgement has
  Recorder link_;
  Transmitter transmitter_{link_};
  std::map<size_t, Bytes> riders_;
  std::vector<Bytes> given_;
};

TEST_F(Transmit, NothingLeavesBeforeItsRunEnds) {
  give(loopback4(1), 1'000);
  give(loopback4(1), 1'000);
  EXPECT_EQ(0u, link_.runs.size());
  transmitter_.flush();
  EXPECT_EQ((Counts{2}), link_.packet_counts());
  transmitter_.flush();
  EXPECT_EQ(1u, link_.runs.size());
  expect_all_out();
}

TEST_F(Transmit, AShorterPacketEndsTheRunAtOnce) {
  for (const size_t bytes : {1'000, 1'000, 1'000, 64}) give(loopback4(1), bytes);
  EXPECT_EQ((Counts{4}), link_.packet_counts());
  give(loopback4(1), 64);
  expect_all_out();
  EXPECT_EQ((Counts{4, 1}), link_.packet_counts());
}

TEST_F(Transmit, ALongerPacketBeginsANewRun) {
  for (const size_t bytes : {64, 64, 1'000, 1'000}) give(loopback4(1), bytes);
  expect_all_out();
  EXPECT_EQ((Counts{2, 2}), link_.packet_counts());
}

TEST_F(Transmit, ARunHasAtMostSixtyFourPackets) {
  for (int i = 0; i < 130; ++i) give(loopback6(1), 64);
  expect_all_out();
  EXPECT_EQ((Counts{64, 64, 2}), link_.packet_counts());
}

TEST_F(Transmit, ARunHasAtMostSixtyFiveThousandBytes) {
  for (int i = 0; i < 40; ++i) give(loopback4(1), 4'120);
  expect_all_out();
  EXPECT_EQ((Counts{15, 15, 10}), link_.packet_counts());
  for (const auto& run : link_.runs) EXPECT_LE(run.bytes.size(), kMaxRunBytes);
}

TEST_F(Transmit, ForeignPeersGetEachPacketByItselfAtOnce) {
  for (int i = 0; i < 5; ++i) give(loopback4(1, false), 1'000);
  EXPECT_EQ((Counts{1, 1, 1, 1, 1}), link_.packet_counts());
  expect_all_out();
}

TEST_F(Transmit, AnythingElseInTheRouteBeginsANewRun) {
  Route marked = loopback4(1);
  marked.traffic_class = 2;
  Route elsewhere = loopback4(1);
  elsewhere.to = ipv4("127.0.0.2");
  for (const Route& route : {loopback4(1), loopback4(2), loopback6(2), loopback4(1), marked, elsewhere}) {
    give(route, 500);
    give(route, 500);
  }
  expect_all_out();
  EXPECT_EQ((Counts{2, 2, 2, 2, 2, 2}), link_.packet_counts());
}

// A packet that begins a run stays where it was written, so runs wander through the buffer.
TEST_F(Transmit, ManyRunsThatEndByARouteOfAnotherSlotComeOutWhole) {
  for (unsigned i = 0; i < 500; ++i) give(loopback4(i % 3), 4'000);
  expect_all_out();
}

TEST_F(Transmit, MixedSizesAndSlotsComeOutInOrder) {
  std::mt19937 random(7);
  for (int i = 0; i < 3'000; ++i) {
    const size_t bytes = random() % 3 == 0 ? 16 + 4 * (random() % 2'000) : 1'040;
    give(loopback4(random() % 8 == 0 ? 2 : 1, random() % 10 != 0), bytes);
  }
  expect_all_out();
}

TEST_F(Transmit, WhatLiesElsewhereComesOutAmongTheRest) {
  std::mt19937 random(8);
  for (int i = 0; i < 3'000; ++i) {
    const size_t bytes = random() % 6 == 0 ? 16 + 4 * (random() % 2'000) : 1'040;
    const Route route = loopback4(random() % 16 == 0 ? 2 : 1, random() % 10 != 0);
    if (random() % 2 == 0)
      give(route, bytes);
    else
      give_in_parts(route, bytes);
  }
  expect_all_out();
}

TEST_F(Transmit, SaysHowManyGoTogether) {
  constexpr size_t kBytes = 1'040;
  EXPECT_EQ(transmitter_.room_for(loopback4(1), kBytes), kMaxRunBytes / kBytes);
  EXPECT_EQ(transmitter_.room_for(loopback4(1), 64), kMaxRunPackets);
  give(loopback4(1), kBytes);
  EXPECT_EQ(transmitter_.room_for(loopback4(1), kBytes), kMaxRunBytes / kBytes - 1);
  EXPECT_EQ(transmitter_.room_for(loopback4(2), kBytes), 0u);
  EXPECT_EQ(transmitter_.room_for(loopback4(1), kBytes + 4), 0u);
  EXPECT_EQ(transmitter_.room_for(loopback4(1), kBytes - 4), 1u);
  EXPECT_EQ(transmitter_.room_for(loopback4(3, false), kBytes), 1u);
  for (size_t room = transmitter_.room_for(loopback4(1), kBytes); room > 0; --room) {
    EXPECT_EQ(link_.runs.size(), 0u);
    give_in_parts(loopback4(1), kBytes);
  }
  EXPECT_EQ((Counts{kMaxRunBytes / kBytes}), link_.packet_counts());
  expect_all_out();
}

TEST_F(Transmit, AsksForThePortOncePerChangeOfRoute) {
  for (int i = 0; i < 200; ++i) give(loopback4(1), 64);
  EXPECT_EQ(1u, link_.ports_asked);
  give(loopback4(2), 64);
  EXPECT_EQ(2u, link_.ports_asked);
}

TEST_F(Transmit, CountsWhatTheLinkRefuses) {
  link_.refuse = true;
  for (int i = 0; i < 3; ++i) give(loopback4(1), 64);
  transmitter_.flush();
  link_.refuse = false;
  give(loopback4(1), 64);
  transmitter_.flush();
  EXPECT_EQ(3u, transmitter_.counters().lost_packets);
  EXPECT_EQ(4u, transmitter_.counters().packets);
}

TEST_F(Transmit, LessMayBeCommittedThanWasAskedFor) {
  const Bytes packet = packet_of(1, 0, 100);
  for (int i = 0; i < 100; ++i) {
    const auto space = transmitter_.space(4'200);
    std::memcpy(space.data(), packet.data(), packet.size());
    transmitter_.commit(loopback4(1), packet.size());
    given_.push_back(packet);
  }
  expect_all_out();
  EXPECT_EQ((Counts{64, 36}), link_.packet_counts());
}

TEST_F(Transmit, ARiderIsTheEndOfTheNextRun) {
  give(loopback4(1), 64);  // waits already, so it is another run
  carry(loopback4(1), 3);
  EXPECT_EQ((Counts{1}), link_.packet_counts());
  give(loopback4(1), 64);
  give(loopback4(1), 64);
  EXPECT_EQ(1u, link_.runs.size());
  transmitter_.flush();
  EXPECT_EQ((Counts{1, 3}), link_.packet_counts());
  give(loopback4(1), 64);
  expect_all_out();
  EXPECT_EQ((Counts{1, 3, 1}), link_.packet_counts());
}

TEST_F(Transmit, ARiderOfThePacketsSizeFits) {
  carry(loopback4(1), 1);
  give(loopback4(1), kRiderBytes);
  expect_all_out();
  EXPECT_EQ((Counts{2}), link_.packet_counts());
}

TEST_F(Transmit, ARiderThatIsLongerThanThePacketsLeavesBeforeThem) {
  carry(loopback4(1), 0);
  give(loopback4(1), kRiderBytes - 4);
  expect_all_out();
  EXPECT_EQ((Counts{1, 1}), link_.packet_counts());
}

TEST_F(Transmit, ARiderLeavesBeforeARunThatEndsByAShorterPacket) {
  carry(loopback4(1), 0);
  for (const size_t bytes : {1'000, 1'000, 64}) give(loopback4(1), bytes);
  EXPECT_EQ((Counts{1, 3}), link_.packet_counts());
  expect_all_out();
}

TEST_F(Transmit, ARiderLeavesBeforeARunThatEndsByALongerPacketOrAnotherRoute) {
  carry(loopback4(1), 0);
  for (const size_t bytes : {64, 1'000}) give(loopback4(1), bytes);
  expect_all_out();
  EXPECT_EQ((Counts{1, 1, 1}), link_.packet_counts());
  carry(loopback4(1), 3);
  give(loopback4(1), 64);
  give(loopback4(2), 64);
  expect_all_out();
  EXPECT_EQ((Counts{1, 1, 1, 1, 1, 1}), link_.packet_counts());
}

TEST_F(Transmit, ARiderForAnotherRouteLeavesBeforeTheRun) {
  carry(loopback4(2), 0);
  give(loopback4(1), 64);
  expect_all_out();
  EXPECT_EQ((Counts{1, 1}), link_.packet_counts());
}

TEST_F(Transmit, ARiderLeavesBeforeAFullRun) {
  carry(loopback4(1), 0);
  for (int i = 0; i < 65; ++i) give(loopback4(1), 64);
  expect_all_out();
  EXPECT_EQ((Counts{1, 64, 1}), link_.packet_counts());
}

TEST_F(Transmit, ForeignPeersGetTheRiderFirst) {
  carry(loopback4(1, false), 0);
  for (int i = 0; i < 2; ++i) give(loopback4(1, false), 64);
  expect_all_out();
  EXPECT_EQ((Counts{1, 1, 1}), link_.packet_counts());
}

TEST_F(Transmit, ARiderWithoutPacketsLeavesAlone) {
  carry(loopback6(1), 0);
  expect_all_out();
  EXPECT_EQ((Counts{1}), link_.packet_counts());
}

}  // namespace
}  // namespace verbena::net
