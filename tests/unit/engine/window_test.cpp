// The window, and the codes of credits and times.
#include "engine/window.hpp"

#include <gtest/gtest.h>

#include "engine/credits.hpp"
#include "engine/timers.hpp"

namespace verbena::engine {
namespace {

using std::chrono::microseconds;
constexpr uint32_t kPacket = 1000;
constexpr uint64_t kUsed = UINT64_MAX;  // the whole window

TEST(Window, BeginsSmallAndDoublesPerRoundTrip) {
  Window window(kPacket, 1'000'000);
  const uint32_t first = window.size();
  EXPECT_EQ(first, 16 * kPacket);
  window.on_progress(first, kUsed);
  EXPECT_EQ(window.size(), 2 * first);
}

TEST(Window, GrowsOnlyByWhatIsUsed) {
  Window window(kPacket, 1'000'000);
  for (int i = 0; i < 100; ++i) window.on_progress(kPacket, kPacket);
  EXPECT_EQ(window.size(), 16 * kPacket);
}

TEST(Window, NeverGrowsPastItsMostNorShrinksBelowAPacket) {
  Window window(kPacket, 20'000);
  window.on_progress(1 << 30, kUsed);
  EXPECT_EQ(window.size(), 20'000u);
  for (int i = 0; i < 100; ++i) window.on_loss(microseconds(1), microseconds(100));
  EXPECT_EQ(window.size(), kPacket);
  Window tiny(kPacket, 10);
  EXPECT_EQ(tiny.size(), kPacket);
}

TEST(Window, LossOfAFullQueueHalvesLossByChanceDoesNot) {
  Window window(kPacket, 1'000'000);
  window.on_progress(84'000, kUsed);
  EXPECT_EQ(window.size(), 100'000u);
  window.on_loss(microseconds(100), microseconds(100));
  EXPECT_EQ(window.size(), 94'000u);
  window.on_loss(microseconds(100), microseconds(125));
  EXPECT_EQ(window.size(), 75'200u);
  window.on_loss(microseconds(100), microseconds(1000));
  EXPECT_EQ(window.size(), 37'600u);
  window.on_loss({}, {});
  EXPECT_EQ(window.size(), 18'800u);
}

TEST(Window, AfterALossItGrowsByAPacketARoundTrip) {
  Window window(kPacket, 1'000'000);
  window.on_loss(microseconds(1), microseconds(100));
  EXPECT_EQ(window.size(), 8 * kPacket);
  window.on_progress(4 * kPacket, kUsed);
  EXPECT_EQ(window.size(), 8 * kPacket);
  window.on_progress(4 * kPacket, kUsed);
  EXPECT_EQ(window.size(), 9 * kPacket);
}

TEST(Window, ATimeoutIsUndoneWhenNothingWasLost) {
  Window window(kPacket, 1'000'000);
  window.on_timeout();
  EXPECT_EQ(window.size(), kPacket);
  window.after_timeout(false, microseconds(1), microseconds(1));
  EXPECT_EQ(window.size(), 16 * kPacket);
  window.on_timeout();
  window.after_timeout(true, microseconds(1), microseconds(100));
  EXPECT_EQ(window.size(), 8 * kPacket);
}

TEST(Window, SeveralTimeoutsAreUndoneWhenNothingWasLost) {
  Window window(kPacket, 1'000'000);
  window.on_timeout();
  window.on_timeout();
  window.on_timeout();
  EXPECT_EQ(window.size(), kPacket);
  window.after_timeout(false, microseconds(1), microseconds(1));
  EXPECT_EQ(window.size(), 16 * kPacket);
  window.on_progress(16 * kPacket, kUsed);  // still doubling
  EXPECT_EQ(window.size(), 32 * kPacket);
}

TEST(Window, SeveralTimeoutsInARowBeginAnew) {
  Window window(kPacket, 1'000'000);
  window.on_timeout();
  window.on_timeout();
  window.after_timeout(true, microseconds(1), microseconds(1));
  EXPECT_EQ(window.size(), kPacket);
}

TEST(Credits, CodesAreTheLargestThatFit) {
  EXPECT_EQ(credit_code(0), 0);
  EXPECT_EQ(credits_of(credit_code(5)), 4u);
  EXPECT_EQ(credits_of(credit_code(1'000'000)), 32768u);
  EXPECT_EQ(credits_of(credit_code(kCreditsUncounted)), kCreditsUncounted);
  for (uint32_t receives = 0; receives < 40'000; ++receives) {
    const uint8_t code = credit_code(receives);
    ASSERT_LE(credits_of(code), receives);
    ASSERT_TRUE(code == 30 || kCreditCounts[code + 1u] > receives);
  }
}

TEST(Timers, AsTheStandardSays) {
  EXPECT_EQ(rnr_timer(0), microseconds(655'360));
  EXPECT_EQ(rnr_timer(1), microseconds(10));
  EXPECT_EQ(rnr_timer(31), microseconds(491'520));
  EXPECT_EQ(ack_timeout(0), base::Duration{});
  EXPECT_EQ(ack_timeout(14), base::Duration(67'108'864));
}

}  // namespace
}  // namespace verbena::engine
