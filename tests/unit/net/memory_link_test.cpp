#include "net/memory_link.hpp"

#include <thread>

#include "wire.hpp"

namespace verbena::net {
namespace {

const Address kLeft = ipv4("10.0.0.1");
const Address kRight = ipv4("10.0.0.2");

Route way(const Address& from, const Address& to, unsigned slot) {
  return {.from = from, .to = to, .slot = {static_cast<uint8_t>(slot)}, .recognised = true};
}

TEST(MemoryLink, BringsRunsToTheEndOfTheirAddressAndSlot) {
  MemoryNetwork network;
  const auto left = network.attach(kLeft, {1});
  const auto right = network.attach(kRight, {1});
  const auto other = network.attach(kRight, {2});
  Transmitter transmitter(*left);
  Route route = way(kLeft, kRight, 2);
  route.traffic_class = 3;
  for (uint32_t i = 0; i < 10; ++i) transmit(transmitter, route, packet_of(2, i, 200));
  transmitter.flush();
  Keeper keeper, nothing;
  ASSERT_TRUE(keeper.take(*other, 10));
  ASSERT_TRUE(nothing.take(*right, 0));
  ASSERT_TRUE(nothing.take(*left, 0));
  for (uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(body(packet_of(2, i, 200)), body(keeper.kept[i].bytes));
    EXPECT_EQ(i, keeper.kept[i].about.segment);
    EXPECT_EQ(kLeft, keeper.kept[i].about.from);
    EXPECT_EQ(kRight, keeper.kept[i].about.to);
    EXPECT_EQ(3, keeper.kept[i].about.traffic_class);
    EXPECT_TRUE(keeper.icrc_fits(i));
  }
}

TEST(MemoryLink, AFullQueueLosesWhatComes) {
  MemoryNetwork network(1'000);
  const auto left = network.attach(kLeft, {1});
  const auto right = network.attach(kRight, {1});
  Bytes run;
  for (uint32_t i = 0; i < 15; ++i) {
    const Bytes packet = packet_of(1, i, 100);
    run.insert(run.end(), packet.begin(), packet.end());
  }
  EXPECT_TRUE(left->send({way(kLeft, kRight, 1), 100, run}));
  EXPECT_EQ(5u, left->sent().queue_full);
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*right, 10));
  EXPECT_TRUE(left->send({way(kLeft, kRight, 1), 100, run}));
  ASSERT_TRUE(keeper.take(*right, 20));
}

TEST(MemoryLink, NobodyThereIsSilence) {
  MemoryNetwork network;
  const auto left = network.attach(kLeft, {1});
  auto right = network.attach(kRight, {1});
  right.reset();
  EXPECT_TRUE(left->send({way(kLeft, kRight, 1), 100, packet_of(1, 0, 100)}));
  EXPECT_TRUE(left->send({way(kLeft, kLeft, 9), 100, packet_of(9, 0, 100)}));
  EXPECT_EQ(2u, left->sent().unreachable);
}

TEST(MemoryLink, ReceivingKeepsToItsBudget) {
  MemoryNetwork network;
  const auto end = network.attach(kLeft, {1});
  for (uint32_t i = 0; i < 10; ++i) EXPECT_TRUE(end->send({way(kLeft, kLeft, 1), 100, packet_of(1, i, 100)}));
  Keeper keeper;
  EXPECT_EQ(4u, end->receive(keeper, 4));
  EXPECT_EQ(6u, end->receive(keeper, 100));
}

// The sink may send: an answer to each packet, back and forth.
TEST(MemoryLink, ASinkMaySend) {
  MemoryNetwork network;
  const auto left = network.attach(kLeft, {1});
  const auto right = network.attach(kRight, {1});
  struct Answer final : Sink {
    void on_packet(const Received& packet) override {
      const Route back = way(packet.to, packet.from, 1);
      EXPECT_TRUE(link->send({back, static_cast<uint16_t>(packet.bytes.size()), packet.bytes}));
    }
    Link* link = nullptr;
  } at_left, at_right;
  at_left.link = left.get();
  at_right.link = right.get();
  EXPECT_TRUE(left->send({way(kLeft, kRight, 1), 100, packet_of(1, 0, 100)}));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(1u, right->receive(at_right, 10));
    EXPECT_EQ(1u, left->receive(at_left, 10));
  }
}

TEST(MemoryLink, EndsMayLiveOnTwoThreads) {
  MemoryNetwork network(size_t{1} << 30);
  const auto left = network.attach(kLeft, {1});
  const auto right = network.attach(kRight, {1});
  std::thread sender([&] {
    Transmitter transmitter(*left);
    for (uint32_t i = 0; i < 5'000; ++i) transmit(transmitter, way(kLeft, kRight, 1), packet_of(1, i, 64));
    transmitter.flush();
  });
  Keeper keeper;
  ASSERT_TRUE(keeper.take(*right, 5'000));
  sender.join();
  for (uint32_t i = 0; i < keeper.kept.size(); ++i)
    ASSERT_EQ(body(packet_of(1, i, 64)), body(keeper.kept[i].bytes));
}

}  // namespace
}  // namespace verbena::net
