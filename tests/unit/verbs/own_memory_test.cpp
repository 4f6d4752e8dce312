#include "verbs/own_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace verbena::verbs {
namespace {

using engine::Copied;
using engine::Tail;

constexpr size_t kPage = 4096;

std::byte* map_pages(size_t pages, int protection = PROT_READ | PROT_WRITE) {
  void* data = ::mmap(nullptr, pages * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(MAP_FAILED, data);
  return static_cast<std::byte*>(data);
}

Copied write(std::byte* here, std::byte* there, size_t size) {
  const iovec ours{here, size};
  const iovec theirs{there, size};
  return OwnMemory().write({&ours, 1}, {&theirs, 1}, Tail::kLast);
}
Copied read(std::byte* here, std::byte* there, size_t size) {
  const iovec ours{here, size};
  const iovec theirs{there, size};
  return OwnMemory().read({&ours, 1}, {&theirs, 1}, Tail::kLast);
}

void outlast_a_proof() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// What a forked child finds.
int in_child(const std::function<bool()>& holds) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST(Order, CutsBeforeTheLastEightBytesAndAtCacheLines) {
  const auto at = [](uintptr_t address, size_t length) {
    return iovec{reinterpret_cast<void*>(address), length};
  };
  const iovec aligned = at(0x1000, 64);
  Order order = Order::of({&aligned, 1}, Tail::kLast);
  EXPECT_EQ(56u, order.next_cut(0));
  EXPECT_EQ(64u, order.next_cut(56));
  EXPECT_EQ(64u, Order::of({&aligned, 1}, Tail::kAnyOrder).next_cut(0));

  const iovec crossing = at(0x1003, 64);  // its last 3 bytes lie in the next line
  order = Order::of({&crossing, 1}, Tail::kLast);
  EXPECT_EQ(56u, order.next_cut(55));
  EXPECT_EQ(61u, order.next_cut(56));
  EXPECT_EQ(61u, order.next_cut(60));
  EXPECT_EQ(64u, order.next_cut(61));

  const std::array pieces{at(0x103e, 4), at(0x5000, 0), at(0x207e, 4)};  // both cross
  order = Order::of(pieces, Tail::kLast);
  EXPECT_EQ(0u, order.body);
  EXPECT_EQ(2u, order.next_cut(0));
  EXPECT_EQ(6u, order.next_cut(2));
  EXPECT_EQ(8u, order.next_cut(6));

  const iovec short_one = at(0x1001, 3);
  EXPECT_EQ(3u, Order::of({&short_one, 1}, Tail::kLast).next_cut(0));
}

TEST(CopyInOrder, CopiesEveryLengthAtEveryAlignment) {
  std::array<std::byte, 128> from;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t length = 0; length <= 40; ++length)
    for (size_t to_offset = 0; to_offset < 16; ++to_offset)
      for (size_t from_offset = 0; from_offset < 9; ++from_offset) {
        alignas(64) std::array<std::byte, 128> to{};
        copy_in_order(&to[to_offset], &from[from_offset], length, Tail::kLast);
        std::array<std::byte, 128> expected{};
        std::copy_n(&from[from_offset], length, &expected[to_offset]);
        ASSERT_EQ(expected, to) << length << " bytes to " << to_offset;
      }
}

TEST(OwnMemory, CopiesManyPieces) {
  constexpr size_t kSize = 100'000;
  std::vector<std::byte> from(kSize);
  for (size_t i = 0; i < kSize; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const bool writes : {true, false}) {
    std::vector<std::byte> to(kSize);
    std::vector<iovec> sources;
    std::vector<iovec> targets;
    for (size_t done = 0; done < kSize; done += sources.back().iov_len)
      sources.push_back({&from[done], std::min(kSize - done, 1 + done % 97)});
    for (size_t done = 0; done < kSize; done += targets.back().iov_len)
      targets.push_back({&to[done], std::min(kSize - done, 1 + done % 61)});
    OwnMemory memory;
    ASSERT_EQ(Copied::kAll, writes ? memory.write(sources, targets, Tail::kLast)
                                   : memory.read(targets, sources, Tail::kLast));
    EXPECT_EQ(from, to);
  }
}

bool tells_which_side_faulted() {
  std::byte* good = map_pages(4);
  std::byte* bad = map_pages(4);
  // The first copy maps a page for its own use, which must not fill the hole below.
  bool right = write(good, good + kPage, 8) == Copied::kAll;
  right = right && ::munmap(bad + kPage, kPage) == 0 && ::mprotect(bad + 3 * kPage, kPage, PROT_READ) == 0;
  right = right && write(good, bad + kPage - 20, 100) == Copied::kFaultThere;
  right = right && write(good, bad + 3 * kPage, 8) == Copied::kFaultThere;
  right = right && write(bad + kPage - 20, good, 100) == Copied::kFaultHere;
  right = right && write(bad + 3 * kPage, good, 100) == Copied::kAll;
  right = right && read(good, bad + kPage - 20, 100) == Copied::kFaultThere;
  right = right && read(good, bad + 3 * kPage, 100) == Copied::kAll;
  right = right && read(bad + kPage - 20, good, 100) == Copied::kFaultHere;
  right = right && read(bad + 3 * kPage, good, 8) == Copied::kFaultHere;
  ::munmap(good, 4 * kPage);
  ::munmap(bad, 4 * kPage);
  return right;
}

TEST(OwnMemory, TellsWhichSideFaulted) { EXPECT_TRUE(tells_which_side_faulted()); }

TEST(OwnMemory, NeverReachesAParent) {
  std::byte* area = map_pages(1);
  std::array<std::byte, 16> from;
  from.fill(std::byte{5});
  ASSERT_EQ(Copied::kAll, write(area + 64, area + 128, 8));  // our pid is kept from here on
  EXPECT_EQ(0, in_child([&] {
              return write(from.data(), area, from.size()) == Copied::kAll && area[0] == std::byte{5};
            }));
  EXPECT_EQ(std::byte{0}, area[0]);
}

TEST(OwnMemory, OutlivesTheMainThread) {
  EXPECT_EQ(0, in_child([] {
              std::thread([] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                ::_exit(tells_which_side_faulted() ? 0 : 1);
              }).detach();
              ::syscall(SYS_exit, 0);
              return false;
            }));
}

TEST(OwnMemory, DoesWithoutProcessVmInASandbox) {
  EXPECT_EQ(0, in_child([] {
              sock_filter code[] = {
                  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
              };
              const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
              if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
              if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return false;
              return tells_which_side_faulted();
            }));
}

TEST(Place, RefusesWhatAStoreWouldCrashOn) {
  const uint64_t word = 42;
  ProofStamp stamp;
  std::byte* area = map_pages(3);
  ASSERT_EQ(0, ::munmap(area + kPage, kPage));
  ASSERT_EQ(0, ::mprotect(area + 2 * kPage, kPage, PROT_READ));
  EXPECT_TRUE(place(area, &word, 8, Tail::kLast, stamp));
  EXPECT_TRUE(place(area + 8, &word, 8, Tail::kLast, stamp));
  EXPECT_EQ(0, std::memcmp(area, &word, 8) | std::memcmp(area + 8, &word, 8));
  EXPECT_FALSE(place(area + kPage, &word, 8, Tail::kLast, stamp));
  EXPECT_FALSE(place(area + kPage - 4, &word, 8, Tail::kLast, stamp));
  EXPECT_FALSE(place(area + 2 * kPage, &word, 8, Tail::kLast, stamp));
  EXPECT_TRUE(place(nullptr, &word, 0, Tail::kLast, stamp));

  // Write-protected, then unmapped, after it was proven.
  EXPECT_TRUE(place(area, &word, 8, Tail::kLast, stamp));
  ASSERT_EQ(0, ::mprotect(area, kPage, PROT_READ));
  outlast_a_proof();
  EXPECT_FALSE(place(area, &word, 8, Tail::kLast, stamp));
  ASSERT_EQ(0, ::munmap(area, kPage));
  outlast_a_proof();
  EXPECT_FALSE(place(area, &word, 8, Tail::kLast, stamp));
}

TEST(Place, RefusesAFilePageThatWasCutOff) {
  const int fd = ::memfd_create("cut", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, kPage));
  void* area = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const uint64_t word = 42;
  ProofStamp stamp;
  EXPECT_TRUE(place(area, &word, 8, Tail::kLast, stamp));
  ASSERT_EQ(0, ::ftruncate(fd, 0));
  outlast_a_proof();
  EXPECT_FALSE(place(area, &word, 8, Tail::kLast, stamp));
  uint64_t got = 0;
  EXPECT_FALSE(fetch(&got, area, 8, stamp));
  ::close(fd);
}

TEST(Fetch, RefusesWhatALoadWouldCrashOn) {
  uint64_t word = 0;
  ProofStamp stamp;
  std::byte* area = map_pages(3);
  area[0] = std::byte{7};
  ASSERT_EQ(0, ::munmap(area + kPage, kPage));
  ASSERT_EQ(0, ::mprotect(area, kPage, PROT_READ));
  ASSERT_EQ(0, ::mprotect(area + 2 * kPage, kPage, PROT_NONE));
  EXPECT_TRUE(fetch(&word, area, 8, stamp));
  EXPECT_EQ(7u, word);
  EXPECT_FALSE(fetch(&word, area + kPage, 8, stamp));
  EXPECT_FALSE(fetch(&word, area + 2 * kPage, 8, stamp));
}

TEST(ProofStamp, HoldsForThePagesThatWereProvenAndAMomentOnly) {
  ProofStamp stamp;
  std::byte* area = map_pages(4);
  EXPECT_FALSE(stamp.covers(area, 1, Access::kRead));
  const uint64_t start = ProofClock::now();
  stamp.renew(area + kPage + 100, kPage, Access::kRead, start);  // the second and the third page
  const bool all_of_it = stamp.covers(area + kPage, 2 * kPage, Access::kRead);
  const bool to_write = stamp.covers(area + kPage, 8, Access::kWrite);
  const bool before = stamp.covers(area + kPage - 1, 8, Access::kRead);
  const bool after = stamp.covers(area + 3 * kPage - 1, 2, Access::kRead);
  const bool wraps = stamp.covers(area + kPage, SIZE_MAX, Access::kRead);
  // A thread that lost its CPU meanwhile learned nothing.
  EXPECT_TRUE(all_of_it || !ProofClock::within(start, ProofClock::now(), kProofMicroseconds));
  EXPECT_FALSE(to_write || before || after || wraps);

  stamp.renew(area, 8, Access::kWrite, ProofClock::now() + (uint64_t{1} << 40));  // the clock went backwards
  EXPECT_FALSE(stamp.covers(area, 8, Access::kWrite));
  stamp.renew(area, 8, Access::kWrite, ProofClock::now());
  outlast_a_proof();
  EXPECT_FALSE(stamp.covers(area, 8, Access::kWrite));
  stamp.renew(area, 8, Access::kWrite, ProofClock::now());
  stamp.clear();
  EXPECT_FALSE(stamp.covers(area, 8, Access::kRead));
}

TEST(ProofStamp, IsSharedByThreads) {
  ProofStamp stamp;
  constexpr size_t kThreads = 4;
  std::byte* area = map_pages(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&stamp, mine = area + t * kPage] {
      for (uint64_t i = 0; i < 20'000; ++i) {
        uint64_t got = 0;
        ASSERT_TRUE(place(mine + i % 64 * 8, &i, sizeof i, Tail::kLast, stamp));
        ASSERT_TRUE(fetch(&got, mine + i % 64 * 8, sizeof got, stamp));
        ASSERT_EQ(i, got);
      }
    });
  for (auto& thread : threads) thread.join();
}

// A page that a message was placed into.
class StandingProofsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(place_message());
    StandingProofs::remember(stamp_, page_, 8, Access::kWrite);
  }
  bool place_message() {
    const uint64_t word = 42;
    return place(page_, &word, 8, Tail::kLast, stamp_);
  }
  [[nodiscard]] bool proven() const { return stamp_.covers(page_, 8, Access::kWrite); }
  // Tried again, for a thread that lost its CPU meanwhile learned nothing.
  [[nodiscard]] bool renewed() const {
    for (int tries = 0; tries < 20; ++tries) {
      StandingProofs::renew();
      if (proven()) return true;
      outlast_a_proof();
    }
    return false;
  }

  static inline ProofStamp stamp_;
  std::byte* page_ = map_pages(1);
};

TEST_F(StandingProofsTest, AreRenewedWhileNothingComes) {
  outlast_a_proof();
  EXPECT_FALSE(proven());
  EXPECT_TRUE(renewed());
}

TEST_F(StandingProofsTest, EndAfterAWhileAndGoOnWithTheNextMessage) {
  for (int i = 0; i < 100; ++i) {
    outlast_a_proof();
    StandingProofs::renew();
  }
  EXPECT_FALSE(proven());
  StandingProofs::go_on();
  EXPECT_TRUE(renewed());
}

TEST_F(StandingProofsTest, EndWhereTheMemoryDoes) {
  ASSERT_EQ(0, ::munmap(page_, kPage));
  outlast_a_proof();
  StandingProofs::renew();
  EXPECT_FALSE(proven());
  EXPECT_FALSE(place_message());
}

TEST_F(StandingProofsTest, EndWithAnyDeregistration) {
  ProofStamp::forget_all();
  EXPECT_FALSE(proven());
  StandingProofs::renew();
  EXPECT_FALSE(proven());
  EXPECT_TRUE(place_message()) << "proven anew";
}

TEST(ProofClock, KnowsAMicrosecondOnceItRanForAWhile) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t first = ProofClock::now();
  ProofClock::calibrate();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ProofClock::calibrate();
  const auto ticks = static_cast<double>(ProofClock::now() - first);
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  EXPECT_NEAR(passed.count(), ticks / ProofClock::ticks_per_us(), passed.count() / 10);
}

}  // namespace
}  // namespace verbena::verbs
