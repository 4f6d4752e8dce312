// Connections and peers that come and go leave nothing behind in who stays.
#include <gtest/gtest.h>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

// What a process had after it had settled, and what it has much later.
void expect_no_growth(const Footprint& before, const Footprint& after) {
  EXPECT_LE(after.descriptors, before.descriptors);
  // The allocator may map an arena more.
  EXPECT_LE(after.mappings, before.mappings + 4 * SLOWDOWN);
  // Sanitizers keep books on memory that was freed.
  EXPECT_LE(after.resident_kib, before.resident_kib + 1024 * SLOWDOWN * SLOWDOWN);
  testing::Test::RecordProperty(
      "resident_kib", std::to_string(before.resident_kib) + " then " + std::to_string(after.resident_kib));
}

// Traffic of each kind, both ways.
void use(Worker& a, const Region& at_b, Worker& b, const Region& at_a) {
  const auto both = [&](const std::string& line, bool remote) {
    EXPECT_EQ(a.run(line + (remote ? " " + at_b.at(0) : "")).status, IBV_WC_SUCCESS) << line;
    EXPECT_EQ(b.run(line + (remote ? " " + at_a.at(0) : "")).status, IBV_WC_SUCCESS) << line;
  };
  for (Worker* worker : {&a, &b}) {
    worker->post("recv q m 0 65536");
    worker->post("recv q m 0 65536");
  }
  for (const char* line : {"send q m 0 16", "send q m 0 20000"}) {
    EXPECT_TRUE(a.post(line) != 0 && b.post(line) != 0);
    // Its own send's and the peer's.
    for (Worker* worker : {&a, &b}) {
      const auto taken = worker->poll(2, 2'000);
      EXPECT_EQ(taken.size(), 2u) << line;
      for (const auto& one : taken) EXPECT_EQ(one.status, IBV_WC_SUCCESS) << line;
    }
  }
  both("write q m 0 60000", true);
  both("read q m 0 60000", true);
  EXPECT_EQ(a.run("add q m 0 " + at_b.at(0) + " 1").status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.run("add q m 0 " + at_a.at(0) + " 1").status, IBV_WC_SUCCESS);
}

// The queue pairs stay, or are destroyed, or all is.
class LeakCycles : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(LeakCycles, LeaveNothing) {
  const auto& [renewed, kind] = GetParam();
  const std::string what = renewed;
  Worker a;
  Worker b;
  Worker* both[] = {&a, &b};
  Region regions[2];
  std::string addresses[2];
  for (size_t i = 0; i < 2; ++i) {
    both[i]->queue("c", 64);
    regions[i] = both[i]->region("m", 65536, kind);
    addresses[i] = both[i]->pair("q", 16);
  }
  Footprint before[2];
  constexpr int kCycles = SLOWDOWN == 1 ? 170 : 60;
  for (int cycle = 0; cycle < kCycles && !HasFailure(); ++cycle) {
    SCOPED_TRACE(cycle);
    connect(a, "q", addresses[0], b, "q", addresses[1], kPatient);
    use(a, regions[1], b, regions[0]);
    for (size_t i = 0; i < 2 && what != "connection"; ++i) {
      both[i]->tell("drop qp q");
      both[i]->tell("dereg m");
      if (what == "everything") {
        both[i]->tell("drop cq c");
        both[i]->tell("unmap m");
        both[i]->queue("c", 64, cycle % 2 == 0 ? "events" : "poll");
        regions[i] = both[i]->region("m", 65536, kind);
      } else {
        regions[i] = both[i]->region("m", 0, "again");
      }
      addresses[i] = both[i]->pair("q", 16);
    }
    // Some things are kept for a while: a few dozen mappings of regions that are gone, say.
    if (cycle == kCycles / 3)
      for (size_t i = 0; i < 2; ++i) before[i] = footprint(both[i]->pid());
  }
  if (HasFailure()) return;
  for (size_t i = 0; i < 2; ++i) expect_no_growth(before[i], footprint(both[i]->pid()));
}

INSTANTIATE_TEST_SUITE_P(Of, LeakCycles,
                         testing::Combine(testing::Values("connection", "pair", "everything"),
                                          testing::Values("heap", "shared")),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_" + std::get<1>(param.param);
                         });

TEST(Leak, HundredPeersComeAndGo) {
  Worker survivor;
  survivor.queue("c", 1024);
  const Region here = survivor.region("m", 1 << 20);
  const std::string address = survivor.pair("q");
  Footprint before;
  constexpr int kPeers = SLOWDOWN == 1 ? 110 : 30;
  for (int i = 0; i < kPeers && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Worker peer;
    const Region there = peer.region("m", 1 << 20, i % 2 == 0 ? "heap" : "shared");
    connect(survivor, "q", address, peer, "q", peer.pair("q"), kPatient);
    use(survivor, there, peer, here);
    if (i % 3 == 0) peer.say("exit");
    if (i % 3 == 1) peer.kill();
    // ... or it is told to end by closing its stdin, which runs destructors; its worker's end does that.
    if (i == 10) {
      pause_ms(100);
      before = footprint(survivor.pid());
    }
  }
  if (HasFailure()) return;
  pause_ms(100);
  expect_no_growth(before, footprint(survivor.pid()));
}

}  // namespace
}  // namespace verbena::local_path
