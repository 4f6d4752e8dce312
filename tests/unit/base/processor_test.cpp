#include "base/processor.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace verbena::base {
namespace {

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line;
  return {};
}

// QEMU's own models name themselves so, whoever runs them; a processor doesn't.
TEST(Processor, ThatIsNoModelOfQemusIsNotEmulated) {
  if (model_name().find("QEMU") != std::string::npos) GTEST_SKIP() << "may be emulated";
  EXPECT_FALSE(emulated());
}

}  // namespace
}  // namespace verbena::base
