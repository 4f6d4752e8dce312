#include "base/time.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/random.hpp"
#include "base/result.hpp"

namespace verbena::base {
namespace {

TEST(Instant, AddsAndSubtractsNanoseconds) {
  const Instant start{1'000};
  EXPECT_EQ(Instant{2'001'000}, start + milliseconds(2));
  EXPECT_EQ(seconds(3), start + seconds(3) - start);
  EXPECT_EQ(-milliseconds(1), start - (start + milliseconds(1)));
  EXPECT_LT(start, start + Duration(1));
}

TEST(Instant, NowNeverGoesBack) {
  Instant last = now();
  for (int i = 0; i < 10'000; ++i) {
    const Instant next = now();
    ASSERT_GE(next, last);
    last = next;
  }
}

TEST(Random, DoesNotRepeatItself) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(seen.insert(random_u64()).second);
}

TEST(Result, CarriesTheErrnoOfTheCallThatFailedAndItsName) {
  errno = ENOENT;
  const Result<int> failed = fail_errno("opening the book");
  ASSERT_FALSE(failed);
  EXPECT_EQ(ENOENT, failed.error().code);
  EXPECT_EQ("opening the book: No such file or directory", failed.error().sentence);
}

}  // namespace
}  // namespace verbena::base
