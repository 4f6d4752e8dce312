// A slot that a killed process had goes to another, after a while: what the first left half done in its
// peers' arenas must not be taken for the second's.
#include <gtest/gtest.h>

#include <memory>

#include "local_path/worker.hpp"

namespace verbena::local_path {
namespace {

// A queue pair's number begins with its process's slot (DESIGN 2.2).
unsigned slot_of(const std::string& address) { return static_cast<unsigned>(std::stoul(address) >> 16); }

// The next process that gets this slot; the slots between come and go.
std::unique_ptr<Worker> next_in_slot(unsigned slot, std::string& address) {
  for (int tries = 0; tries < 600; ++tries) {
    auto worker = std::make_unique<Worker>();
    address = worker->pair("q");
    if (slot_of(address) == slot) return worker;
  }
  return nullptr;
}

TEST(SlotReuse, NothingOfTheDeadIsTakenForTheNewcomers) {
  constexpr size_t kBytes = 8 << 20;
  auto first = std::make_unique<Worker>();
  Worker written;  // the first dies while it writes here ...
  Worker asked;    // ... and has letters waiting here
  (void)first->region("m", kBytes);
  const Region written_region = written.region("m", kBytes, "shared");
  const Region asked_region = asked.region("m", 4096);
  const std::string to_written = first->pair("w");
  const std::string to_asked = first->pair("a");
  const std::string written_address = written.pair("q");
  const std::string asked_address = asked.pair("q");
  const std::string asked_second = asked.pair("second");
  connect(*first, "w", to_written, written, "q", written_address, kPatient);
  connect(*first, "a", to_asked, asked, "q", asked_address, kPatient);
  asked.stop();
  for (int i = 0; i < 5; ++i) first->post("add a m 0 " + asked_region.at(0) + " 1");
  first->say("flood w c m " + std::to_string(kBytes) + " " + written_region.at(0) + " 60000");
  pause_ms(50);
  first->kill();

  std::string address;
  const auto second = next_in_slot(slot_of(to_written), address);
  ASSERT_TRUE(second) << "the slot never came back";
  (void)second->region("m", 4096);

  // It has never touched the region in whose middle the first died.
  EXPECT_EQ(written.connect("q", address, kPatient), "done");
  const std::string answer = written.ask("dereg m", support::Wait(5'000));
  EXPECT_TRUE(answer.starts_with("done ")) << answer;

  // Its letters arrive, whatever the first's were.
  const std::string second_address = second->pair("q2");
  EXPECT_EQ(second->connect("q2", asked_second, kPatient), "done");
  asked.go_on();
  EXPECT_EQ(asked.connect("second", second_address, kPatient), "done");
  for (uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(second->run("add q2 m 0 " + asked_region.at(8) + " 1", 3'000).status, IBV_WC_SUCCESS) << i;
    ASSERT_EQ(second->word("m", 0), i);
  }
}

}  // namespace
}  // namespace verbena::local_path
