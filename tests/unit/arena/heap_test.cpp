#include "arena/heap.hpp"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace verbena::arena {
namespace {

constexpr uint64_t kBegin = 4096;
constexpr uint64_t kEnd = kBegin + 64 * 256;

// What is allocated, kept beside the heap under test.
struct Model {
  std::map<uint64_t, uint64_t> used;  // offset to size, as rounded

  static uint64_t rounded(uint64_t size) { return size == 0 ? 64 : (size + 63) / 64 * 64; }

  // The lowest place with room; 0: none.
  [[nodiscard]] uint64_t first_fit(uint64_t size) const {
    uint64_t at = kBegin;
    for (const auto& [offset, length] : used) {
      if (offset - at >= size) return at;
      at = offset + length;
    }
    return kEnd - at >= size ? at : 0;
  }
};

TEST(Heap, GivesAlignedOffsetsInsideItsRange) {
  Heap heap(kBegin, kEnd);
  EXPECT_EQ(kBegin, heap.allocate(1));
  EXPECT_EQ(kBegin + 64, heap.allocate(64));
  EXPECT_EQ(kBegin + 128, heap.allocate(65));
  EXPECT_EQ(kBegin + 256, heap.allocate(0)) << "an empty thing has a place of its own, too";
  EXPECT_EQ(kBegin + 320, heap.allocate(kEnd - kBegin - 320));
  EXPECT_EQ(0u, heap.allocate(1)) << "all is used";
}

TEST(Heap, RefusesWhatCantFit) {
  Heap heap(kBegin, kEnd);
  EXPECT_EQ(0u, heap.allocate(kEnd - kBegin + 1));
  EXPECT_EQ(0u, heap.allocate(uint64_t{1} << 63));
  EXPECT_EQ(0u, heap.allocate(UINT64_MAX)) << "rounding up must not make it small";
  EXPECT_EQ(kBegin, heap.allocate(kEnd - kBegin)) << "and the refusals cost nothing";
}

TEST(Heap, MergesNeighboursInEachOrderOfRelease) {
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    Heap heap(kBegin, kBegin + 3 * 64);
    const uint64_t places[3] = {heap.allocate(64), heap.allocate(64), heap.allocate(64)};
    for (const int i : order) heap.release(places[i]);
    EXPECT_EQ(kBegin, heap.allocate(3 * 64)) << order[0] << order[1] << order[2];
  }
}

TEST(Heap, AgreesWithAModelOver200Seeds) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    Heap heap(kBegin, kEnd);
    Model model;
    for (int step = 0; step < 400; ++step) {
      if (model.used.empty() || random() % 5 < 3) {
        const uint64_t size = random() % 8 == 0 ? random() % 8192 : random() % 512;
        const uint64_t place = heap.allocate(size);
        ASSERT_EQ(model.first_fit(Model::rounded(size)), place) << "seed " << seed << ", step " << step;
        if (place != 0) model.used[place] = Model::rounded(size);
      } else {
        const auto victim = std::next(model.used.begin(), static_cast<long>(random() % model.used.size()));
        heap.release(victim->first);
        model.used.erase(victim);
      }
    }
    for (const auto& [offset, size] : model.used) heap.release(offset);
    ASSERT_EQ(kBegin, heap.allocate(kEnd - kBegin)) << "seed " << seed << ": something was lost";
  }
}

TEST(HeapDeathTest, ReleasingWhatIsntAllocatedIsABugOfOurs) {
  Heap heap(kBegin, kEnd);
  const uint64_t place = heap.allocate(128);
  EXPECT_DEATH(heap.release(place + 64), "CHECK");
  heap.release(place);
  EXPECT_DEATH(heap.release(place), "CHECK");
}

TEST(Heap, ThreadsNeverGetTheSamePlace) {
  Heap heap(kBegin, kEnd);
  std::vector<uint8_t> owners((kEnd - kBegin) / 64);  // plain bytes: a race here is one in the heap
  std::vector<std::jthread> threads;
  for (unsigned me = 1; me <= 4; ++me)
    threads.emplace_back([&heap, &owners, me] {
      std::mt19937 random(me);
      for (int i = 0; i < 2000; ++i) {
        const uint64_t lines = 1 + random() % 16;
        const uint64_t place = heap.allocate(lines * 64);
        if (place == 0) continue;
        const uint64_t first = (place - kBegin) / 64;
        for (uint64_t line = first; line < first + lines; ++line) {
          EXPECT_EQ(0, owners[line]);
          owners[line] = static_cast<uint8_t>(me);
        }
        for (uint64_t line = first; line < first + lines; ++line) {
          EXPECT_EQ(me, owners[line]);
          owners[line] = 0;
        }
        heap.release(place);
      }
    });
}

}  // namespace
}  // namespace verbena::arena
