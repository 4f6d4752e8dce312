#include "arena/delivery_ring.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace verbena::arena {
namespace {

// A ring in memory of exactly its size: AddressSanitizer sees whoever leaves it.
class Ring {
 public:
  explicit Ring(RingShape shape)
      : shape_(shape),
        memory_(static_cast<std::byte*>(::operator new (shape.size(), std::align_val_t{64}))),
        producer(start()),
        consumer(memory_.get(), shape) {}

  [[nodiscard]] RingHead& head() { return *reinterpret_cast<RingHead*>(memory_.get()); }
  [[nodiscard]] RingSlot& slot(uint32_t number) {
    return reinterpret_cast<RingSlot*>(memory_.get() + sizeof(RingHead))[number % shape_.slots];
  }
  [[nodiscard]] std::byte* payload() {
    return memory_.get() + sizeof(RingHead) + shape_.slots * sizeof(RingSlot);
  }
  [[nodiscard]] std::span<std::byte> all() { return {memory_.get(), shape_.size()}; }
  [[nodiscard]] RingShape shape() const { return shape_; }

  // As the responder's actions use it. False: no room.
  bool send(const Record& record, std::span<const std::byte> bytes) {
    if (!producer.has_slot()) return false;
    std::byte* into = producer.slot_bytes();
    if (bytes.size() > kBytesInSlot) {
      const auto room = producer.payload_room(static_cast<uint32_t>(bytes.size()));
      if (room.empty()) return false;
      EXPECT_EQ(bytes.size(), room.size());
      into = room.data();
    }
    std::ranges::copy(bytes, into);
    producer.publish(record, bytes.size() > kBytesInSlot);
    return true;
  }

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  RingProducer start() {
    std::memset(memory_.get(), 0, shape_.size());
    return {memory_.get(), shape_};
  }
  RingShape shape_;
  std::unique_ptr<std::byte, Delete> memory_;

 public:
  RingProducer producer;
  RingConsumer consumer;
};

Record message(uint32_t number, size_t length) {
  return {.kind = RecordKind::kSend,
          .flags = static_cast<uint8_t>(number % 4),
          .qp = number,
          .incarnation = number + 1,
          .length = static_cast<uint32_t>(length),
          .imm = number + 2};
}

std::vector<std::byte> bytes_of(uint32_t number, size_t length) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(number * 31 + i * 7);
  return bytes;
}

void expect_next(RingConsumer& consumer, uint32_t number, size_t length) {
  ASSERT_TRUE(consumer.ready());
  const auto taken = consumer.take();
  EXPECT_TRUE(taken.sane);
  EXPECT_EQ(RecordKind::kSend, taken.record.kind);
  EXPECT_EQ(number % 4, taken.record.flags);
  EXPECT_EQ(number, taken.record.qp);
  EXPECT_EQ(number + 1, taken.record.incarnation);
  EXPECT_EQ(length, taken.record.length);
  EXPECT_EQ(number + 2, taken.record.imm);
  const auto expected = bytes_of(number, length);
  EXPECT_TRUE(std::ranges::equal(expected, taken.bytes)) << "bytes of record " << number;
  consumer.release();
}

TEST(RingShape, IsSaneOrNot) {
  EXPECT_TRUE((RingShape{1, 0}).sane());
  EXPECT_TRUE((RingShape{16, 16384}).sane());
  EXPECT_TRUE((RingShape{1u << 20, 1u << 26}).sane());
  for (const RingShape bad : {RingShape{0, 0}, RingShape{3, 0}, RingShape{1u << 21, 0}, RingShape{16, 3},
                              RingShape{16, 1u << 27}, RingShape{UINT32_MAX, UINT32_MAX}})
    EXPECT_FALSE(bad.sane()) << bad.slots << ", " << bad.payload;
}

TEST(DeliveryRing, IsEmptyAtFirst) {
  EXPECT_FALSE(RingConsumer().ready());
  Ring ring({4, 1024});
  EXPECT_FALSE(ring.consumer.ready());
  EXPECT_TRUE(ring.producer.has_slot());
  EXPECT_EQ(0u, ring.consumer.taken());
}

TEST(DeliveryRing, KeepsOrderAndContentWhileSlotsWrap) {
  Ring ring({4, 1024});
  uint32_t sent = 0;
  uint32_t taken = 0;
  for (int lap = 0; lap < 20; ++lap) {
    for (int i = 0; i < 3; ++i, ++sent)
      ASSERT_TRUE(ring.send(message(sent, sent % 33), bytes_of(sent, sent % 33)));
    for (int i = 0; i < 3; ++i, ++taken) expect_next(ring.consumer, taken, taken % 33);
    EXPECT_FALSE(ring.consumer.ready());
  }
  EXPECT_EQ(60u, ring.consumer.taken());
}

TEST(DeliveryRing, IsFullAfterItsSlotsAndHasOneForEachThatIsReleased) {
  Ring ring({4, 0});
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.send(message(i, 0), {}));
  EXPECT_FALSE(ring.producer.has_slot());
  ASSERT_TRUE(ring.consumer.ready());
  (void)ring.consumer.take();
  EXPECT_FALSE(ring.producer.has_slot()) << "taken, but its bytes are still being looked at";
  ring.consumer.release();
  EXPECT_TRUE(ring.producer.has_slot());
  ASSERT_TRUE(ring.send(message(4, 0), {}));
  EXPECT_FALSE(ring.producer.has_slot());
}

TEST(DeliveryRing, CarriesOtherKindsWithoutBytes) {
  Ring ring({4, 0});
  for (const RecordKind kind : {RecordKind::kPlaced, RecordKind::kWriteImm, RecordKind::kFail}) {
    ring.producer.publish({.kind = kind, .flags = kHasImm | kSolicited, .length = 1u << 30}, false);
    ASSERT_TRUE(ring.consumer.ready());
    const auto taken = ring.consumer.take();
    EXPECT_EQ(kind, taken.record.kind);
    EXPECT_EQ(1u << 30, taken.record.length);
    EXPECT_TRUE(taken.sane);
    EXPECT_TRUE(taken.bytes.empty());
    ring.consumer.release();
  }
}

TEST(DeliveryRing, KnowsWhatWasntTakenYet) {
  Ring ring({8, 0});
  const auto waiting = [&](uint32_t qp) {
    std::vector<RecordKind> kinds;
    ring.producer.look_back(qp, [&](RecordKind kind, uint16_t) { kinds.push_back(kind); });
    return kinds;
  };
  const auto take = [&] {
    (void)ring.consumer.take();
    ring.consumer.release();
  };
  for (uint32_t lap = 0; lap < 5; ++lap) {
    const uint32_t before = ring.producer.tail();
    EXPECT_TRUE(ring.producer.all_taken(before));
    ring.producer.publish({.kind = RecordKind::kSend, .qp = 1}, false);
    ring.producer.publish({.kind = RecordKind::kSend, .qp = 2}, false);
    ring.producer.publish({.kind = RecordKind::kPlaced, .qp = 1}, false);
    EXPECT_EQ((std::vector{RecordKind::kPlaced, RecordKind::kSend}), waiting(1)) << "the latest first";
    EXPECT_EQ(std::vector{RecordKind::kSend}, waiting(2));
    EXPECT_TRUE(waiting(3).empty());
    EXPECT_FALSE(ring.producer.all_taken(before + 1));
    take();
    EXPECT_TRUE(ring.producer.all_taken(before + 1));
    EXPECT_FALSE(ring.producer.all_taken(before + 2));
    EXPECT_EQ(std::vector{RecordKind::kPlaced}, waiting(1));
    take();
    take();
    EXPECT_TRUE(ring.producer.all_taken(ring.producer.tail()));
    EXPECT_TRUE(waiting(1).empty());
  }
}

TEST(PayloadArea, AlwaysTakesHalfOfItWhenNothingWaits) {
  // From each position at which the last record may have ended.
  for (uint32_t before = 33; before <= 512; ++before) {
    Ring ring({4, 1024});
    ASSERT_TRUE(ring.send(message(0, before), bytes_of(0, before)));
    expect_next(ring.consumer, 0, before);
    for (uint32_t i = 1; i < 4; ++i) {
      ASSERT_TRUE(ring.send(message(i, 512), bytes_of(i, 512))) << "after " << before << " bytes";
      expect_next(ring.consumer, i, 512);
    }
  }
}

TEST(PayloadArea, NeverGivesMoreThanHalf) {
  Ring ring({4, 1024});
  EXPECT_TRUE(ring.producer.payload_room(513).empty());
  EXPECT_TRUE(ring.producer.payload_room(UINT32_MAX).empty());
  Ring none({4, 0});
  EXPECT_TRUE(none.producer.payload_room(33).empty());
}

TEST(PayloadArea, IsFullUntilTheConsumerReleases) {
  Ring ring({16, 1024});
  ASSERT_TRUE(ring.send(message(0, 512), bytes_of(0, 512)));
  ASSERT_TRUE(ring.send(message(1, 512), bytes_of(1, 512)));
  EXPECT_FALSE(ring.send(message(2, 33), bytes_of(2, 33)));
  EXPECT_TRUE(ring.send(message(2, 32), bytes_of(2, 32))) << "what goes into the slot needs no area";
  expect_next(ring.consumer, 0, 512);
  ASSERT_TRUE(ring.send(message(3, 448), bytes_of(3, 448)));
  expect_next(ring.consumer, 1, 512);
  expect_next(ring.consumer, 2, 32);
  expect_next(ring.consumer, 3, 448);
}

TEST(PayloadArea, RoomThatWasNotPublishedIsGivenAgain) {
  Ring ring({4, 1024});
  const auto first = ring.producer.payload_room(400);
  const auto second = ring.producer.payload_room(300);  // the first one's bytes couldn't be read
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first.data(), second.data());
  std::ranges::copy(bytes_of(7, 300), second.data());
  ring.producer.publish(message(7, 300), true);
  expect_next(ring.consumer, 7, 300);
}

TEST(DeliveryRing, AgreesWithAQueueOver300Seeds) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const RingShape shape{1u << random() % 5, random() % 4 == 0 ? 0 : 128u << random() % 6};
    Ring ring(shape);
    std::deque<std::pair<uint32_t, size_t>> waiting;
    uint32_t number = 0;
    for (int step = 0; step < 400; ++step) {
      if (random() % 2 == 0) {
        const size_t length = random() % 3 == 0 ? random() % 33 : random() % (shape.payload / 2 + 1);
        if (ring.send(message(number, length), bytes_of(number, length)))
          waiting.emplace_back(number++, length);
        else
          ASSERT_FALSE(waiting.empty())
              << "seed " << seed << ": an empty ring refused " << length << " bytes";
        ASSERT_LE(waiting.size(), shape.slots);
      } else if (waiting.empty()) {
        ASSERT_FALSE(ring.consumer.ready());
      } else {
        expect_next(ring.consumer, waiting.front().first, waiting.front().second);
        waiting.pop_front();
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(DeliveryRing, CarriesFromOneThreadToAnother) {
  constexpr uint32_t kMessages = 50'000;
  Ring ring({16, 4096});
  const auto length_of = [](uint32_t number) { return number * 37 % 700; };
  std::jthread producer([&] {
    for (uint32_t i = 0; i < kMessages;)
      if (ring.send(message(i, length_of(i)), bytes_of(i, length_of(i))))
        ++i;
      else
        std::this_thread::yield();
  });
  for (uint32_t i = 0; i < kMessages && !testing::Test::HasFailure();)
    if (ring.consumer.ready()) {
      expect_next(ring.consumer, i, length_of(i));
      ++i;
    } else {
      std::this_thread::yield();
    }
  // After a failure the producer would wait for ever: what it sends is taken all the same.
  while (ring.consumer.taken() < kMessages) {
    if (!ring.consumer.ready()) continue;
    (void)ring.consumer.take();
    ring.consumer.release();
  }
}

// ---- Lies ----

TEST(LyingConsumer, CantMakeTheProducerBelieveWhatCantBe) {
  Ring ring({4, 1024});
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.send(message(i, 0), {}));
  for (const uint32_t lie : {5u, 100u, UINT32_MAX, 1u << 31}) {  // more than was ever published
    ring.head().consumed.set(lie);
    EXPECT_FALSE(ring.producer.has_slot()) << lie;
  }
  ring.head().consumed.set(2);
  EXPECT_TRUE(ring.producer.has_slot());
  ASSERT_TRUE(ring.send(message(4, 0), {}));
  ASSERT_TRUE(ring.send(message(5, 0), {}));
  ring.head().consumed.set(1);  // back
  EXPECT_FALSE(ring.producer.has_slot());
}

TEST(LyingConsumer, NeverLeadsTheProducerOutOfItsMemory) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    Ring ring({1u << random() % 4, 128u << random() % 5});
    uint32_t sent = 0;
    for (int step = 0; step < 200; ++step) {
      switch (random() % 4) {
        case 0:
          ring.head().consumed.set(static_cast<uint32_t>(random()));
          break;
        case 1:
          ring.head().consumed.set(sent - static_cast<uint32_t>(random() % 8));
          break;
        case 2:
          ring.head().payload_consumed.set(random() % 2 == 0 ? random()
                                                             : uint64_t{random()} << 32 | random());
          break;
        default:
          break;
      }
      unsigned seen = 0;
      ring.producer.look_back(sent - 1, [&](RecordKind, uint16_t) { ++seen; });
      ASSERT_LE(seen, ring.shape().slots);
      const size_t length = random() % (ring.shape().payload + 64);
      if (ring.send(message(sent, length), bytes_of(sent, length))) ++sent;
    }
  }
}

TEST(LyingProducer, IsFoundOutByLengthAndPlace) {
  const auto sane = [](uint32_t length, uint64_t payload_end) {
    Ring ring({4, 1024});
    ring.producer.publish(message(0, length), false);
    ring.slot(0).payload_end.set(payload_end);
    EXPECT_TRUE(ring.consumer.ready());
    return ring.consumer.take().sane;
  };
  EXPECT_TRUE(sane(100, 100));
  EXPECT_TRUE(sane(100, 1024));
  EXPECT_TRUE(sane(1024, 1024));
  EXPECT_FALSE(sane(100, 0)) << "no bytes were put there";
  EXPECT_FALSE(sane(100, 99));
  EXPECT_FALSE(sane(1025, 1025));
  EXPECT_FALSE(sane(100, 1025)) << "more than the area has";
  EXPECT_FALSE(sane(UINT32_MAX, 1024));
  EXPECT_FALSE(sane(UINT32_MAX, UINT64_MAX));
  EXPECT_FALSE(sane(100, UINT64_MAX));
  EXPECT_TRUE(sane(32, UINT64_MAX)) << "its bytes are in the slot: the area doesn't matter";
}

TEST(LyingProducer, CantHaveARecordReadAcrossTheAreasEnd) {
  Ring ring({4, 1024});
  ASSERT_TRUE(ring.send(message(0, 512), bytes_of(0, 512)));
  expect_next(ring.consumer, 0, 512);
  ring.producer.publish(message(1, 400), false);
  ring.slot(1).payload_end.set(1200);  // 800 to 1200: the last 176 lie behind the area
  ASSERT_TRUE(ring.consumer.ready());
  const auto taken = ring.consumer.take();
  EXPECT_FALSE(taken.sane);
  EXPECT_TRUE(taken.bytes.empty());
}

TEST(LyingProducer, NeverLeadsTheConsumerOutOfItsMemory) {
  unsigned looked_at = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    Ring ring({1u << random() % 4, random() % 4 == 0 ? 0 : 64u << random() % 5});
    const auto memory = ring.all();
    for (uint32_t next = 0; next < 200; ++next) {
      RingSlot& slot = ring.slot(next);
      for (auto& byte : std::span(reinterpret_cast<std::byte*>(&slot), sizeof slot))
        byte = static_cast<std::byte>(random());
      // Mostly lies that come near the truth: what is wildly wrong is refused at the first look.
      if (random() % 8 != 0)
        slot.kind_flags.set(static_cast<uint32_t>((1 + random() % 5) << 8 | random() % 8));
      if (random() % 8 != 0)
        slot.length.set(static_cast<uint32_t>(random() % (2 * ring.shape().payload + 40)));
      if (random() % 8 != 0) slot.payload_end.set(ring.head().payload_consumed.get() + random() % 2048);
      slot.publish.release(next + 1);
      if (!ring.consumer.ready()) continue;
      const auto taken = ring.consumer.take();
      if (!taken.bytes.empty()) {
        ASSERT_TRUE(taken.sane);
        ASSERT_EQ(taken.record.length, taken.bytes.size());
        ASSERT_GE(taken.bytes.data(), memory.data());
        ASSERT_LE(taken.bytes.data() + taken.bytes.size(), memory.data() + memory.size());
        looked_at +=
            std::accumulate(taken.bytes.begin(), taken.bytes.end(), 0u,
                            [](unsigned sum, std::byte b) { return sum + (b == std::byte{} ? 0 : 1); });
      }
      ring.consumer.release();
    }
  }
  EXPECT_GT(looked_at, 0u);
}

TEST(LyingProducer, OnlyTheNextNumberIsReady) {
  Ring ring({4, 0});
  for (const uint32_t lie : {0u, 2u, 5u, UINT32_MAX}) {
    ring.slot(0).publish.set(lie);
    EXPECT_FALSE(ring.consumer.ready()) << lie;
  }
  ring.slot(0).publish.set(1);
  EXPECT_TRUE(ring.consumer.ready());
}

}  // namespace
}  // namespace verbena::arena
