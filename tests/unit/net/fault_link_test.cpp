#include "net/fault_link.hpp"

#include <algorithm>
#include <set>

#include "net/memory_link.hpp"
#include "wire.hpp"

namespace verbena::net {
namespace {

using std::chrono::microseconds;
using Numbers = std::vector<uint32_t>;

// Two ends; the left one's link has faults. Time is what the test says.
class Fault : public testing::Test {
 protected:
  static constexpr size_t kPacketBytes = 64;

  void send(uint32_t packets) {
    Transmitter transmitter(faulty_);
    for (uint32_t i = 0; i < packets; ++i)
      transmit(transmitter, route(), packet_of(1, number_++, kPacketBytes));
    transmitter.flush();
  }
  // From the right, so that they come in through the faulty link.
  void send_back(uint32_t packets) {
    Route back = route();
    std::swap(back.from, back.to);
    Transmitter transmitter(*right_);
    for (uint32_t i = 0; i < packets; ++i) transmit(transmitter, back, packet_of(1, number_++, kPacketBytes));
    transmitter.flush();
  }
  // The numbers of the packets that arrive, damaged ones left out and counted.
  Numbers arrived(Link& link) {
    Keeper keeper;
    while (link.receive(keeper, 1'000) > 0) {
    }
    Numbers numbers;
    for (size_t i = 0; i < keeper.kept.size(); ++i) {
      if (keeper.icrc_fits(i))
        numbers.push_back(roce::parse(body(keeper.kept[i].bytes))->bth.psn.value);
      else
        ++damaged_;
    }
    return numbers;
  }
  [[nodiscard]] static Route route() {
    return {.from = ipv4("10.0.0.1"), .to = ipv4("10.0.0.2"), .slot = {1}, .recognised = true};
  }
  [[nodiscard]] static Numbers upto(uint32_t count) {
    Numbers numbers;
    for (uint32_t i = 0; i < count; ++i) numbers.push_back(i);
    return numbers;
  }

  MemoryNetwork network_{size_t{1} << 30};
  std::unique_ptr<MemoryLink> left_ = network_.attach(route().from, {1});
  std::unique_ptr<MemoryLink> right_ = network_.attach(route().to, {1});
  base::Instant now_{1'000'000};
  FaultLink faulty_{*left_, 42, [this] { return now_; }};
  uint32_t number_ = 0;
  size_t damaged_ = 0;
};

TEST_F(Fault, WithoutFaultsRunsPassWhole) {
  send(100);
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*right_, 100));
  EXPECT_EQ(63u, keeper.kept[63].about.segment);
  EXPECT_EQ(0u, faulty_.outgoing().passed);
}

TEST_F(Fault, LosesAboutAsManyAsItWasTold) {
  faulty_.set_outgoing({.loss = 0.1});
  send(10'000);
  const auto numbers = arrived(*right_);
  EXPECT_NEAR(9'000, static_cast<double>(numbers.size()), 150);
  EXPECT_TRUE(std::ranges::is_sorted(numbers));
  EXPECT_EQ(10'000 - numbers.size(), faulty_.outgoing().lost);
  EXPECT_EQ(0u, damaged_);
}

TEST_F(Fault, LosesExactlyThoseOfTheMaskEvenInsideRuns) {
  faulty_.set_outgoing({.lost = 0b1011});
  send(10);
  EXPECT_EQ((Numbers{2, 4, 5, 6, 7, 8, 9}), arrived(*right_));
  faulty_.set_outgoing({.lost = 1});  // counts from here
  send(3);
  EXPECT_EQ((Numbers{11, 12}), arrived(*right_));
}

TEST_F(Fault, Doubles) {
  faulty_.set_outgoing({.duplication = 1});
  send(3);
  EXPECT_EQ((Numbers{0, 0, 1, 1, 2, 2}), arrived(*right_));
}

TEST_F(Fault, HoldsBackUntilOthersPassed) {
  faulty_.set_outgoing({.reordering = 0.2, .hold_back = 4});
  send(5'000);
  const auto numbers = arrived(*right_);
  EXPECT_FALSE(std::ranges::is_sorted(numbers));
  // Nothing is lost but what still waits for others, and nobody is late by more than it was told.
  EXPECT_LE(numbers.size(), 5'000u);
  EXPECT_GE(numbers.size(), 5'000u - 4);
  EXPECT_EQ(numbers.size(), std::set(numbers.begin(), numbers.end()).size());
  uint32_t highest = 0;
  for (const uint32_t number : numbers) {
    highest = std::max(highest, number);
    ASSERT_LE(highest - number, 4u);
  }
  // Without faults those that waited come out with the next packets.
  faulty_.set_outgoing({});
  send(4);
  EXPECT_EQ(5'004u, numbers.size() + arrived(*right_).size());
}

TEST_F(Fault, DelaysByTheClockItWasGiven) {
  faulty_.set_outgoing({.delaying = 1, .delay = microseconds(50)});
  send(3);
  EXPECT_EQ(Numbers{}, arrived(*right_));
  EXPECT_EQ(now_ + microseconds(50), faulty_.next_deadline());
  now_ = now_ + microseconds(20);
  send(1);
  now_ = now_ + microseconds(30);
  faulty_.send_due();
  EXPECT_EQ((Numbers{0, 1, 2}), arrived(*right_));
  now_ = now_ + microseconds(20);
  faulty_.send_due();
  EXPECT_EQ((Numbers{3}), arrived(*right_));
  EXPECT_FALSE(faulty_.next_deadline());
  EXPECT_EQ(4u, faulty_.outgoing().delayed);
}

TEST_F(Fault, DelaysWithJitterReorder) {
  faulty_.set_outgoing({.delaying = 1, .delay = microseconds(50), .jitter = microseconds(100)});
  send(500);
  now_ = now_ + microseconds(49);
  faulty_.send_due();
  EXPECT_EQ(Numbers{}, arrived(*right_));
  now_ = now_ + microseconds(101);
  faulty_.send_due();
  auto numbers = arrived(*right_);
  EXPECT_FALSE(std::ranges::is_sorted(numbers));
  std::ranges::sort(numbers);
  EXPECT_EQ(upto(500), numbers);
}

TEST_F(Fault, DamagesOneByteAndTheIcrcShowsIt) {
  faulty_.set_outgoing({.corruption = 0.5});
  send(2'000);
  const auto numbers = arrived(*right_);
  EXPECT_EQ(2'000u, numbers.size() + damaged_);
  // A change in the byte of FECN and BECN isn't covered, being one that switches make.
  EXPECT_LE(damaged_, faulty_.outgoing().corrupted);
  EXPECT_GE(damaged_ + 60, faulty_.outgoing().corrupted);
  EXPECT_NEAR(1'000, static_cast<double>(damaged_), 150);
}

TEST_F(Fault, APartitionLetsNothingThroughInItsDirection) {
  faulty_.set_outgoing({.partition = true});
  send(10);
  send_back(10);
  EXPECT_EQ(Numbers{}, arrived(*right_));
  EXPECT_EQ(10u, arrived(faulty_).size());
  faulty_.set_outgoing({});
  faulty_.set_incoming({.partition = true});
  send(10);
  send_back(10);
  EXPECT_EQ(10u, arrived(*right_).size());
  EXPECT_EQ(Numbers{}, arrived(faulty_));
  EXPECT_EQ(10u, faulty_.incoming().lost);
}

TEST_F(Fault, IncomingPacketsFareTheSame) {
  faulty_.set_incoming({.loss = 0.1, .duplication = 0.1, .reordering = 0.1});
  send_back(1'000);
  const auto numbers = arrived(faulty_);
  EXPECT_FALSE(std::ranges::is_sorted(numbers));
  const auto& counters = faulty_.incoming();
  EXPECT_NEAR(100, static_cast<double>(counters.lost), 40);
  EXPECT_NEAR(90, static_cast<double>(counters.duplicated), 40);
  EXPECT_EQ(numbers.size(), counters.passed);
  faulty_.set_incoming({.delaying = 1, .delay = microseconds(10)});
  send_back(3);
  (void)arrived(faulty_);
  EXPECT_TRUE(faulty_.next_deadline());
  now_ = now_ + microseconds(10);
  EXPECT_EQ(3u, arrived(faulty_).size());
}

TEST_F(Fault, TheSameSeedDecidesTheSame) {
  const Faults faults{.loss = 0.1, .duplication = 0.1, .corruption = 0.1, .reordering = 0.1};
  const auto run = [&](uint64_t seed) {
    FaultLink link(*left_, seed, [this] { return now_; });
    link.set_outgoing(faults);
    Transmitter transmitter(link);
    for (uint32_t i = 0; i < 500; ++i) transmit(transmitter, route(), packet_of(1, i, kPacketBytes));
    transmitter.flush();
    return arrived(*right_);
  };
  const auto first = run(1);
  EXPECT_EQ(first, run(1));
  EXPECT_NE(first, run(2));
}

}  // namespace
}  // namespace verbena::net
