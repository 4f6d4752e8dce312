// Programs that close descriptors they don't know, as daemons do, get errors, not corruption; and their peers
// aren't hurt (DESIGN 2.7).
#include <gtest/gtest.h>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

// Whoever rings it gets no SIGPIPE: that would be a death, and not its own fault.
TEST(Descriptors, ClosedChannel) {
  Couple couple({.queues = "events"});
  for (int receive = 0; receive < 4; ++receive) couple.target.post("recv q m 0 64");
  couple.target.say("wait c 1 10000");
  pause_ms(5);
  EXPECT_EQ(couple.requester.run("send q m 0 64").status, IBV_WC_SUCCESS);
  EXPECT_TRUE(couple.target.hear().starts_with("polled 1 "));
  EXPECT_EQ(couple.target.ask("wait c 1 10"), "polled 0");  // armed
  couple.target.tell("close c");
  EXPECT_EQ(couple.requester.run("send q m 0 64").status, IBV_WC_SUCCESS);
  EXPECT_EQ(couple.target.poll(1, 2'000).size(), 1u);
  // Its own completions ring it, too.
  EXPECT_EQ(couple.target.run("write q m 0 64 " + couple.here.at(0)).status, IBV_WC_SUCCESS);
}

TEST(Descriptors, ClosedAndReplaced) {
  for (const char* length : {"8", "4096", "100000"})
    for (int i = 0; i < 5; ++i) {
      SCOPED_TRACE(length);
      Couple couple({.rules = kImpatient});
      couple.requester.tell("fill m 0 100000 5");
      const std::string line =
          couple.requester.ask("replace q c m " + std::string(length) + " " + couple.there.at(0));
      EXPECT_TRUE(line.starts_with("replaced 0 ")) << line;
      EXPECT_TRUE(line.ends_with(" 0")) << line << ": files of the program were written to";
      EXPECT_EQ(couple.target.count("m", 0, std::stoul(length), 5), std::stoul(length));
    }
}

}  // namespace
}  // namespace verbena::local_path
