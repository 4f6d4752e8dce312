// CRC-32 of every processor's kind against zlib's.
#include "roce/crc32.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace verbena::roce {
namespace {

using Random = std::mt19937;

struct Kind {
  const char* name;
  uint32_t (*crc32)(uint32_t crc, std::span<const std::byte> bytes);
  uint32_t (*crc32_copying)(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                            std::span<const std::byte> from);
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

uint32_t expected_of(uint32_t crc, std::span<const std::byte> bytes) {
  // zlib takes a null pointer for a beginning.
  if (bytes.empty()) return crc;
  return static_cast<uint32_t>(
      ::crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::vector<std::byte> random_bytes(Random& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Crc32 : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam().crc32 == &wide::crc32 && !wide::available())
      GTEST_SKIP() << "this processor has no VPCLMULQDQ";
  }
};

constexpr size_t kLongest = 4'300;

TEST_P(Crc32, IsZlibsAtEveryLength) {
  Random random(1);
  const auto bytes = random_bytes(random, kLongest + 64);
  for (size_t length = 0; length <= kLongest; ++length) {
    const auto part = std::span(bytes).subspan(random() % 64, length);
    const auto seed = static_cast<uint32_t>(random());
    for (const uint32_t crc : {0u, ~0u, seed})
      ASSERT_EQ(expected_of(crc, part), GetParam().crc32(crc, part)) << length;
  }
}

TEST_P(Crc32, IsZlibsAtEveryAlignment) {
  Random random(2);
  const auto bytes = random_bytes(random, kLongest + 64);
  for (const size_t length : {1, 3, 4, 12, 16, 28, 60, 63, 64, 65, 67, 68, 256, 1'040, 4'112})
    for (size_t begin = 0; begin < 64; ++begin) {
      const auto part = std::span(bytes).subspan(begin, length);
      ASSERT_EQ(expected_of(7, part), GetParam().crc32(7, part)) << length << " at " << begin;
    }
}

TEST_P(Crc32, GoesOnFromACrc) {
  Random random(3);
  const auto bytes = random_bytes(random, 3'000);
  for (int round = 0; round < 1'000; ++round) {
    const size_t cut = random() % bytes.size();
    const uint32_t first = GetParam().crc32(0, std::span(bytes).first(cut));
    ASSERT_EQ(expected_of(0, bytes), GetParam().crc32(first, std::span(bytes).subspan(cut))) << cut;
  }
}

TEST_P(Crc32, CopiesExactly) {
  Random random(4);
  constexpr std::byte kGuard{0xa5};
  constexpr ptrdiff_t kMargin = 80;
  const auto bytes = random_bytes(random, kLongest + 64);
  std::vector<std::byte> to(kLongest + 2 * kMargin + 64);
  for (size_t length = 0; length <= kLongest; ++length) {
    const auto part = std::span(bytes).subspan(random() % 64, length);
    const auto seed = static_cast<uint32_t>(random());
    const size_t begin = kMargin + random() % 64;
    const auto around = std::span(to).subspan(begin - kMargin, length + 2 * kMargin);
    std::ranges::fill(around, kGuard);
    ASSERT_EQ(expected_of(seed, part), GetParam().crc32_copying(seed, {}, &to[begin], part)) << length;
    ASSERT_TRUE(std::ranges::equal(part, std::span(to).subspan(begin, length))) << length;
    ASSERT_EQ(kMargin, std::ranges::count(around.first(kMargin), kGuard)) << length;
    ASSERT_EQ(kMargin, std::ranges::count(around.last(kMargin), kGuard)) << length;
  }
}

TEST_P(Crc32, CopiesBehindAHead) {
  Random random(6);
  for (size_t head_bytes = 0; head_bytes <= 130; ++head_bytes)
    for (const size_t length : {0, 4, 60, 64, 128, 256, 1'024, 1'028, 2'048, 4'096}) {
      const auto whole = random_bytes(random, head_bytes + length);
      const std::vector<std::byte> head(whole.begin(), whole.end() - length);
      const std::vector<std::byte> from(whole.end() - length, whole.end());
      std::vector<std::byte> to(whole.size() + 1);
      ASSERT_EQ(expected_of(11, whole), GetParam().crc32_copying(11, head, to.data(), from))
          << head_bytes << " and " << length;
      ASSERT_TRUE(std::ranges::equal(whole, std::span(to).first(whole.size())));
      ASSERT_EQ(to.back(), std::byte{0});
    }
}

// A page between two that can't be touched.
class LonePage {
 public:
  LonePage() : bytes_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))) {
    base_ =
        static_cast<std::byte*>(::mmap(nullptr, 3 * bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || ::mprotect(base_ + bytes_, bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  ~LonePage() { ::munmap(base_, 3 * bytes_); }
  LonePage(const LonePage&) = delete;
  LonePage& operator=(const LonePage&) = delete;
  [[nodiscard]] std::span<std::byte> page() const { return {base_ + bytes_, bytes_}; }

 private:
  size_t bytes_;
  std::byte* base_;
};

TEST_P(Crc32, TouchesNothingBesideItsBytes) {
  Random random(5);
  const LonePage from;
  const LonePage to;
  for (std::byte& byte : from.page()) byte = static_cast<std::byte>(random());
  for (size_t length = 0; length <= 600; ++length) {
    const auto first = from.page().first(length);
    const auto last = from.page().last(length);
    ASSERT_EQ(expected_of(9, first), GetParam().crc32(9, first)) << length;
    ASSERT_EQ(expected_of(9, last), GetParam().crc32(9, last)) << length;
    ASSERT_EQ(expected_of(9, first), GetParam().crc32_copying(9, {}, to.page().last(length).data(), first));
    ASSERT_EQ(expected_of(9, last), GetParam().crc32_copying(9, {}, to.page().data(), last));
  }
}

TEST_P(Crc32, IsOfWhatWasStoredThoughTheSourceChanges) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a race is what this is about";
#endif
  std::vector<std::byte> from(1'036);
  std::vector<std::byte> to(from.size());
  std::atomic<bool> stop = false;
  std::atomic<unsigned> changes = 0;
  std::thread other([&] {
    for (uint64_t value = 0; !stop; ++value) {
      for (size_t i = 0; i + 8 <= from.size(); i += 8)
        __atomic_store_n(reinterpret_cast<uint64_t*>(&from[i]), value * 0x9e3779b97f4a7c15, __ATOMIC_RELAXED);
      ++changes;
    }
  });
  bool right = true;
  for (int round = 0; right && (round < 5'000 || changes < 100); ++round) {
    const uint32_t crc = GetParam().crc32_copying(0, {}, to.data(), from);
    right = crc == expected_of(0, to);
  }
  stop = true;
  other.join();
  EXPECT_TRUE(right);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Crc32,
                         testing::Values(Kind{"chosen", &crc32, &crc32_copying},
                                         Kind{"plain", &plain::crc32, &plain::crc32_copying},
                                         Kind{"emulated", &emulated::crc32, &emulated::crc32_copying},
                                         Kind{"wide", &wide::crc32, &wide::crc32_copying}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace verbena::roce
