#include <gtest/gtest.h>

#include "support/isolated.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // Listing tests must work without any privilege.
  if (!testing::GTEST_FLAG(list_tests)) verbena::support::isolate();
  return RUN_ALL_TESTS();
}
