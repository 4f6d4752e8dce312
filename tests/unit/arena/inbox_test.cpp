#include "arena/inbox.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <span>
#include <thread>

namespace verbena::arena {
namespace {

// Memory of exactly an inbox's size: AddressSanitizer sees whoever leaves it.
class Inbox {
 public:
  Inbox() : memory_(static_cast<std::byte*>(::operator new (kInboxSize, std::align_val_t{64}))) {
    std::fill_n(memory_.get(), kInboxSize, std::byte{});
    writer = InboxWriter(memory_.get());
    reader = InboxReader(memory_.get());
  }
  [[nodiscard]] std::byte* memory() { return memory_.get(); }
  [[nodiscard]] InboxHead& head() { return *reinterpret_cast<InboxHead*>(memory_.get()); }
  [[nodiscard]] InboxSlot& slot(uint32_t number) {
    return reinterpret_cast<InboxSlot*>(memory_.get() + sizeof(InboxHead))[number % kInboxSlots];
  }
  InboxWriter writer;
  InboxReader reader;

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Delete> memory_;
};

Letter letter(uint32_t number) {
  return {.kind = static_cast<LetterKind>(1 + number % 3),
          .qp = number,
          .incarnation = number + 1,
          .cookie = number + 2,
          .key = number + 3,
          .operation = number + 4,
          .address = uint64_t{number} << 33,
          .first = ~uint64_t{number},
          .second = number * uint64_t{0x100000001}};
}

void expect_next(InboxReader& reader, uint32_t number) {
  ASSERT_TRUE(reader.ready());
  const Letter got = reader.read();
  const Letter sent = letter(number);
  EXPECT_EQ(sent.kind, got.kind);
  EXPECT_EQ(sent.qp, got.qp);
  EXPECT_EQ(sent.incarnation, got.incarnation);
  EXPECT_EQ(sent.cookie, got.cookie);
  EXPECT_EQ(sent.key, got.key);
  EXPECT_EQ(sent.operation, got.operation);
  EXPECT_EQ(sent.address, got.address);
  EXPECT_EQ(sent.first, got.first);
  EXPECT_EQ(sent.second, got.second);
}

TEST(Inbox, IsEmptyAtFirst) {
  EXPECT_FALSE(InboxReader().ready());
  Inbox inbox;
  EXPECT_FALSE(inbox.reader.ready());
}

TEST(Inbox, KeepsOrderAndContentOverManyLaps) {
  Inbox inbox;
  uint32_t sent = 0;
  uint32_t taken = 0;
  for (int lap = 0; lap < 20; ++lap) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(inbox.writer.write(letter(sent++)));
    for (int i = 0; i < 100; ++i) expect_next(inbox.reader, taken++);
    EXPECT_FALSE(inbox.reader.ready());
  }
}

TEST(Inbox, IsFullAfterItsSlots) {
  Inbox inbox;
  for (uint32_t i = 0; i < kInboxSlots; ++i) ASSERT_TRUE(inbox.writer.write(letter(i)));
  EXPECT_FALSE(inbox.writer.write(letter(kInboxSlots)));
  expect_next(inbox.reader, 0);
  EXPECT_TRUE(inbox.writer.write(letter(kInboxSlots)));
  EXPECT_FALSE(inbox.writer.write(letter(999)));
  for (uint32_t i = 1; i <= kInboxSlots; ++i) expect_next(inbox.reader, i);
}

TEST(Inbox, AgreesWithAQueueOver100Seeds) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    Inbox inbox;
    std::deque<uint32_t> waiting;
    uint32_t number = 0;
    const auto writes_of_ten = 3 + random() % 5;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 10 < writes_of_ten) {
        const bool written = inbox.writer.write(letter(number));
        ASSERT_EQ(waiting.size() < kInboxSlots, written) << "seed " << seed;
        if (written) waiting.push_back(number++);
      } else if (waiting.empty()) {
        ASSERT_FALSE(inbox.reader.ready());
      } else {
        expect_next(inbox.reader, waiting.front());
        waiting.pop_front();
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(Inbox, AnotherWriterOfTheSameSlotGoesOn) {
  Inbox inbox;
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(inbox.writer.write(letter(i)));
    expect_next(inbox.reader, i);
  }
  InboxWriter next(inbox.memory());
  next.resume();
  ASSERT_TRUE(next.write(letter(200)));
  expect_next(inbox.reader, 200);
}

// The slot's earlier process died with letters unread; the reader gets to them while the next one writes.
TEST(Inbox, AnotherWriterLosesNothingWhenLettersWereLeftUnread) {
  Inbox inbox;
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(inbox.writer.write(letter(i)));
  InboxWriter next(inbox.memory());
  next.resume();
  for (uint32_t i = 0; i < 3; ++i) expect_next(inbox.reader, i);
  ASSERT_TRUE(next.write(letter(3)));
  expect_next(inbox.reader, 3);
}

TEST(Inbox, CarriesFromOneThreadToAnother) {
  constexpr uint32_t kLetters = 50'000;
  Inbox inbox;
  std::jthread writer([&] {
    for (uint32_t i = 0; i < kLetters;)
      if (inbox.writer.write(letter(i)))
        ++i;
      else
        std::this_thread::yield();
  });
  for (uint32_t i = 0; i < kLetters;)
    if (inbox.reader.ready()) {
      expect_next(inbox.reader, i);
      ++i;
    } else {
      std::this_thread::yield();
    }
  EXPECT_FALSE(inbox.reader.ready());
}

// ---- Lies ----

TEST(LyingReader, MakesTheInboxLookFullAtWorst) {
  Inbox inbox;
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(inbox.writer.write(letter(i)));
  for (const uint32_t lie : {11u, 1000u, 1u << 31}) {
    inbox.head().consumed.set(lie);
    EXPECT_FALSE(inbox.writer.write(letter(10))) << lie;
  }
  inbox.head().consumed.set(0);
  EXPECT_TRUE(inbox.writer.write(letter(10)));
}

TEST(LyingReader, NeverLeadsTheWriterOutOfItsMemory) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    Inbox inbox;
    for (uint32_t sent = 0; sent < 500; ++sent) {
      inbox.head().consumed.set(random() % 2 == 0 ? sent : static_cast<uint32_t>(random()));
      if (random() % 50 == 0) inbox.writer.resume();  // a lie may also be there when another one begins
      (void)inbox.writer.write(letter(sent));
    }
  }
}

TEST(LyingWriter, NeverLeadsTheReaderOutOfItsMemory) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    Inbox inbox;
    uint32_t read = 0;
    for (int step = 0; step < 1000; ++step) {
      InboxSlot& slot = inbox.slot(read + static_cast<uint32_t>(random() % 3));
      for (auto& byte : std::span(reinterpret_cast<std::byte*>(&slot), sizeof slot))
        byte = static_cast<std::byte>(random());
      if (random() % 2 == 0) slot.publish.set(read + 1);
      if (!inbox.reader.ready()) continue;
      (void)inbox.reader.read();
      EXPECT_EQ(++read, inbox.head().consumed.get());
    }
    EXPECT_GT(read, 0u);
  }
}

TEST(LyingWriter, OnlyTheNextNumberIsReady) {
  Inbox inbox;
  for (const uint32_t lie : {0u, 2u, kInboxSlots + 1, UINT32_MAX}) {
    inbox.slot(0).publish.set(lie);
    EXPECT_FALSE(inbox.reader.ready()) << lie;
  }
}

}  // namespace
}  // namespace verbena::arena
