#include "client/wire_link.hpp"

#include <gtest/gtest.h>

namespace verbena::client {
namespace {

TEST(Faults, AreUnderstood) {
  const auto wished =
      parse_faults("loss=1%,duplicate=0.02,reorder=3%,corrupt=0.5%,delay=10ms,jitter=200us,seed=7,partition");
  ASSERT_TRUE(wished) << wished.error().sentence;
  EXPECT_DOUBLE_EQ(0.01, wished->faults.loss);
  EXPECT_DOUBLE_EQ(0.02, wished->faults.duplication);
  EXPECT_DOUBLE_EQ(0.03, wished->faults.reordering);
  EXPECT_DOUBLE_EQ(0.005, wished->faults.corruption);
  EXPECT_EQ(1, wished->faults.delaying);
  EXPECT_EQ(base::milliseconds(10), wished->faults.delay);
  EXPECT_EQ(base::Duration(200'000), wished->faults.jitter);
  EXPECT_TRUE(wished->faults.partition);
  EXPECT_EQ(7u, wished->seed);
}

TEST(Faults, NoneIsNone) {
  const auto wished = parse_faults("");
  ASSERT_TRUE(wished);
  EXPECT_TRUE(wished->faults.none());
}

TEST(Faults, WhatIsNotUnderstoodIsShown) {
  for (const char* bad :
       {"loss", "loss=", "loss=101%", "loss=-1%", "loss=nan", "loss=1x", "lost=1%", "delay=10", "delay=10h",
        "delay=100s", "seed=-1", "seed=1.5", "partition=1", "=", ",,", "loss=1%,x"}) {
    const auto wished = parse_faults(bad);
    ASSERT_FALSE(wished) << bad;
    EXPECT_EQ(EINVAL, wished.error().code);
    EXPECT_NE(std::string::npos, wished.error().sentence.find("isn't understood")) << bad;
  }
}

TEST(ReceiveBuffer, IsANumberOfBytes) {
  EXPECT_EQ(212'992, parse_receive_buffer("212992").value_or(0));
  for (const char* bad : {"", "0", "-1", "x", "4M", "4096 ", "2000000000", "99999999999999999999"}) {
    const auto bytes = parse_receive_buffer(bad);
    ASSERT_FALSE(bytes) << bad;
    EXPECT_EQ(EINVAL, bytes.error().code);
    EXPECT_NE(std::string::npos, bytes.error().sentence.find("isn't understood")) << bad;
  }
}

}  // namespace
}  // namespace verbena::client
