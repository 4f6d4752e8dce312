#include "base/explain.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace verbena::base {
namespace {

constexpr char kVariable[] = "VERBENA_EXPLAIN";

// What a process with this value of VERBENA_EXPLAIN (nullptr: unset) prints.
std::string printed_with(const char* value, std::string_view sentence) {
  if (value != nullptr)
    ::setenv(kVariable, value, 1);
  else
    ::unsetenv(kVariable);
  testing::internal::CaptureStderr();
  explain(sentence);
  ::unsetenv(kVariable);
  return testing::internal::GetCapturedStderr();
}

TEST(Explain, IsSilentUnlessAsked) {
  EXPECT_EQ("", printed_with(nullptr, "no free slot"));
  EXPECT_EQ("", printed_with("", "no free slot"));
  EXPECT_EQ("", printed_with("0", "no free slot"));
}

TEST(Explain, PrintsOneLineWhenAsked) {
  EXPECT_EQ("verbena: no free slot\n", printed_with("1", "no free slot"));
  EXPECT_EQ("verbena: no free slot\n", printed_with("yes", "no free slot"));
}

TEST(Explain, PrintsExactlyTheViewItGot) {
  EXPECT_EQ("verbena: no\n", printed_with("1", std::string_view("no free slot").substr(0, 2)));
}

TEST(Explain, PrintsTheSentenceOfAnError) {
  ::setenv(kVariable, "1", 1);
  testing::internal::CaptureStderr();
  explain(Error{ENOMEM, "every slot is held"});
  ::unsetenv(kVariable);
  EXPECT_EQ("verbena: every slot is held\n", testing::internal::GetCapturedStderr());
}

}  // namespace
}  // namespace verbena::base
