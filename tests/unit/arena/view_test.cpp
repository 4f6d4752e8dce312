#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "arena/registry.hpp"

namespace verbena::arena {
namespace {

// A table in which every field that a number fits into holds `number`.
DeviceTable table_of(uint64_t number) {
  DeviceTable table;
  table.device_count = kMaxDevices;
  for (auto& device : table.devices) {
    std::memset(device.name, 'a' + static_cast<int>(number % 26), sizeof device.name);
    device.node_guid = number;
    device.port_count = kMaxPorts;
    for (auto& port : device.ports) {
      port.ifindex = port.speed_mbps = static_cast<uint32_t>(number);
      for (auto& gid : port.gids) {
        std::memcpy(gid.raw.data(), &number, sizeof number);
        gid.ifindex = static_cast<uint32_t>(number);
      }
    }
  }
  return table;
}

bool same(const DeviceTable& a, const DeviceTable& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

class View : public testing::Test {
 protected:
  void expect_view(unsigned view, uint64_t number) {
    const auto seen = reader_.read_view(view);
    ASSERT_TRUE(seen);
    EXPECT_TRUE(same(table_of(number), *seen))
        << "holds " << seen->devices[0].node_guid << ", not " << number;
  }

  std::pair<base::UniqueFd, Registry> made_ = *Registry::create("test");
  const Registry& writer_ = made_.second;
  Registry reader_ = *Registry::open(made_.first.get(), Access::kRead);
};

TEST_F(View, ShowsWhatWasPublishedLast) {
  EXPECT_FALSE(reader_.read_view(3));
  for (uint64_t number = 1; number < 6; ++number) {
    writer_.publish_view(3, table_of(number));
    expect_view(3, number);
  }
  EXPECT_FALSE(reader_.read_view(2));
  EXPECT_FALSE(reader_.read_view(4));
}

TEST_F(View, IsGoneWhenDroppedAndBackWhenMadeAgain) {
  writer_.name_view(0, "verbena0=*");
  writer_.publish_view(0, table_of(1));
  writer_.drop_view(0);
  EXPECT_FALSE(reader_.read_view(0));
  writer_.drop_view(0);  // twice is as good
  EXPECT_FALSE(reader_.read_view(0));

  writer_.name_view(0, "other=lo");
  EXPECT_FALSE(reader_.read_view(0));  // not before it is published
  writer_.publish_view(0, table_of(2));
  expect_view(0, 2);
  EXPECT_EQ("other=lo", text(reader_.layout().views[0].spec));
}

TEST_F(View, ANewNameLeavesNothingOfALongerOne) {
  writer_.name_view(0, std::string(kMaxSpec - 1, 'x'));
  EXPECT_EQ(kMaxSpec - 1, text(reader_.layout().views[0].spec).size());
  writer_.name_view(0, "a=b");
  EXPECT_EQ("a=b", text(reader_.layout().views[0].spec));
}

// A writer killed inside publish_view has scribbled into the buffer that no word points to.
TEST_F(View, StaysAsItWasWhenAWriterDiesBeforePublishing) {
  auto& record = writer_.layout().views[0];
  for (uint64_t number = 1; number < 5; ++number) {
    writer_.publish_view(0, table_of(number));
    const uint64_t unpublished = (record.published.load() + 1) & 1;
    std::memset(static_cast<void*>(&record.buffers[unpublished]), 0xee, sizeof(DeviceTable) / 2);
    expect_view(0, number);
  }
  const Registry next = *Registry::open(made_.first.get(), Access::kReadWrite);
  next.publish_view(0, table_of(9));  // the next agent goes on
  expect_view(0, 9);
}

TEST_F(View, StaysGoneWhenAWriterDiesBeforePublishingItAgain) {
  writer_.publish_view(0, table_of(1));
  writer_.drop_view(0);
  auto& record = writer_.layout().views[0];
  for (auto& buffer : record.buffers) std::memset(static_cast<void*>(&buffer), 0xee, sizeof buffer);
  EXPECT_FALSE(reader_.read_view(0));
}

TEST_F(View, CountsOutOfBoundsAreCut) {
  DeviceTable table = table_of(1);
  table.device_count = 4'000'000'000;
  for (auto& device : table.devices) device.port_count = 255;
  writer_.publish_view(0, table);
  const auto seen = *reader_.read_view(0);
  EXPECT_EQ(kMaxDevices, seen.device_count);
  for (const auto& device : seen.devices) EXPECT_EQ(kMaxPorts, device.port_count);
}

// How many of the tables that a reader sees in a while are a mixture of two, or older than one seen before.
int torn_tables(const Registry& reader) {
  const auto enough = base::now() + base::milliseconds(200);
  int torn = 0;
  uint64_t number = 0;
  for (int seen_tables = 0; seen_tables < 20 || base::now() < enough;) {
    const auto seen = reader.read_view(0);
    if (!seen) continue;  // not there yet
    const uint64_t next = seen->devices[0].node_guid;
    if (next < number || !same(table_of(next), *seen)) ++torn;
    if (next != number) ++seen_tables;
    number = next;
  }
  return torn;
}

TEST_F(View, AThreadThatReadsWhileAnotherPublishesSeesWholeTables) {
  std::atomic<int> torn = -1;
  std::thread reading([&] { torn = torn_tables(reader_); });
  for (uint64_t number = 1; torn < 0; ++number) writer_.publish_view(0, table_of(number));
  reading.join();
  EXPECT_EQ(0, torn);
}

TEST_F(View, AProcessThatReadsWhileAnotherPublishesSeesWholeTables) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mine = Registry::open(made_.first.get(), Access::kRead);  // a mapping isn't inherited
    ::_exit(mine ? std::min(torn_tables(*mine), 100) : 101);
  }
  int status = -1;
  for (uint64_t number = 1; ::waitpid(child, &status, WNOHANG) == 0; ++number)
    writer_.publish_view(0, table_of(number));
  EXPECT_EQ(0, status) << WEXITSTATUS(status) << " torn tables";
}

}  // namespace
}  // namespace verbena::arena
