#include "arena/datagram_box.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>

namespace verbena::arena {
namespace {

// Memory of exactly a box's size: AddressSanitizer sees whoever leaves it.
class Box {
 public:
  Box() : memory_(static_cast<std::byte*>(::operator new (kSize, std::align_val_t{64}))) {
    std::fill_n(memory_.get(), kSize, std::byte{});
    writer = DatagramWriter(memory_.get());
    reader = DatagramReader(memory_.get());
  }
  [[nodiscard]] std::byte* memory() { return memory_.get(); }
  [[nodiscard]] DatagramBoxHead& head() { return *reinterpret_cast<DatagramBoxHead*>(memory_.get()); }

  bool put(uint32_t number, size_t length) {
    if (!writer.has_room()) return false;
    const auto room = writer.room(length);
    std::ranges::fill(room, static_cast<std::byte>(number));
    writer.publish({.length = static_cast<uint16_t>(length), .target = number});
    return true;
  }
  testing::AssertionResult take(uint32_t number, size_t length) {
    const auto taken = reader.next();
    if (!taken) return testing::AssertionFailure() << "empty";
    const bool whole = std::ranges::all_of(
        taken->payload, [&](std::byte byte) { return byte == static_cast<std::byte>(number); });
    if (taken->header.target != number || taken->payload.size() != length || !whole)
      return testing::AssertionFailure() << "another: " << taken->header.target;
    reader.done();
    return testing::AssertionSuccess();
  }
  static constexpr size_t kSize = sizeof(DatagramBoxHead) + kBoxCells * kCellBytes;
  DatagramWriter writer;
  DatagramReader reader;

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Delete> memory_;
};

TEST(DatagramBox, GivesBackWhatWasPutInOrder) {
  Box box;
  EXPECT_FALSE(box.reader.next());
  std::mt19937 chance(7);
  for (uint32_t i = 0; i < 3000; ++i) {
    const size_t length = chance() % (kLongestDatagram + 1);
    ASSERT_TRUE(box.put(i, length));
    ASSERT_TRUE(box.take(i, length)) << i;
  }
  EXPECT_FALSE(box.reader.next());
}

TEST(DatagramBox, IsFullUntilSomethingIsTaken) {
  Box box;
  uint32_t count = 0;
  while (box.put(count, 1000)) ASSERT_LT(++count, 1000u);
  EXPECT_GT(count, 50u);
  for (uint32_t i = 0; i < count; ++i) ASSERT_TRUE(box.take(i, 1000));
  EXPECT_TRUE(box.put(1, 1000));
}

TEST(DatagramBox, ANewWriterGoesOnWhereTheLastOneDied) {
  Box box;
  ASSERT_TRUE(box.put(1, 100));
  (void)box.writer.room(100);  // and no more
  box.writer = DatagramWriter(box.memory());
  ASSERT_TRUE(box.put(2, 50));
  EXPECT_TRUE(box.take(1, 100));
  EXPECT_TRUE(box.take(2, 50));
}

TEST(DatagramBox, PositionsMayPassTheEndOfTheirNumbers) {
  Box box;
  box.head().written.set(UINT32_MAX - 70);
  box.writer = DatagramWriter(box.memory());
  EXPECT_FALSE(box.reader.next());  // a leap that can't be: nothing of it is believed
  for (uint32_t i = 0; i < 500; ++i) {
    ASSERT_TRUE(box.put(i, 300));
    ASSERT_TRUE(box.take(i, 300)) << i;
  }
}

TEST(DatagramBox, LiesCostNoMoreThanDatagrams) {
  Box box;
  std::mt19937 chance(3);
  for (int round = 0; round < 20'000; ++round) {
    (void)box.put(1, chance() % 4097);
    // A word of the box, or of its head, holds anything.
    const size_t at = chance() % 4 == 0 ? 4 * (chance() % 32) : 4 * (chance() % (Box::kSize / 4));
    const auto lie = static_cast<uint32_t>(chance() % 2 == 0 ? chance() : chance() % 300);
    std::memcpy(box.memory() + at, &lie, sizeof lie);
    for (int i = 0; i < 8; ++i) {
      const auto taken = box.reader.next();
      if (!taken) break;
      ASSERT_LE(taken->payload.size(), kLongestDatagram);
      ASSERT_GE(taken->payload.data(), box.memory());
      ASSERT_LE(taken->payload.data() + taken->payload.size(), box.memory() + Box::kSize);
      box.reader.done();
    }
  }
}

TEST(DatagramBox, TwoThreadsAgree) {
  Box box;
  constexpr uint32_t kCount = 50'000;
  std::thread sender([&] {
    for (uint32_t i = 0; i < kCount;)
      if (box.put(i, i % 2000))
        ++i;
      else
        std::this_thread::yield();
  });
  for (uint32_t i = 0; i < kCount;) {
    const auto taken = box.reader.next();
    if (!taken) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(taken->header.target, i);
    EXPECT_EQ(taken->payload.size(), i % 2000);
    box.reader.done();
    ++i;
  }
  sender.join();
}

}  // namespace
}  // namespace verbena::arena
