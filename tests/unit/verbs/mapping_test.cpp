// What the kernel says of mappings, and what is believed because of it.
#include "verbs/mapping.hpp"

#include <gtest/gtest.h>
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
#include <csignal>
#include <cstddef>
#include <functional>
#include <thread>

#include "verbs/own_memory.hpp"

namespace verbena::verbs {
namespace {

constexpr size_t kPage = 4096;
constexpr long kPages = 4;
constexpr size_t kSize = static_cast<size_t>(kPages) * kPage;

std::byte* map_pages(int protection = PROT_READ | PROT_WRITE) {
  void* data = ::mmap(nullptr, kSize, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(MAP_FAILED, data);
  return static_cast<std::byte*>(data);
}

uintptr_t number(const std::byte* place) { return reinterpret_cast<uintptr_t>(place); }

// `fork`: as a program may do it past the C library, which then tells nobody.
int in_child(const std::function<bool()>& holds, pid_t (*fork)() = &::fork) {
  const pid_t pid = fork();
  if (pid == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

// As on a kernel before 6.11, or where a sandbox filters ioctl().
bool forbid_questions() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr auto kTooOld = "this kernel is older than 6.11, and doesn't answer";

bool kernel_tells() {
  const int here = 0;
  return mapping_at(reinterpret_cast<uintptr_t>(&here), Access::kWrite).has_value();
}

TEST(Mapping, IsWhatMayBeAccessedSo) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  const std::byte* area = map_pages();
  auto found = mapping_at(number(area) + 100, Access::kWrite);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->covers(number(area), kSize));
  EXPECT_FALSE(found->covers(found->end - 8, 9) || found->covers(found->end, 0) ||
               found->covers(found->first - 1, 8) || found->covers(number(area), SIZE_MAX));
  EXPECT_FALSE(found->file);

  ASSERT_EQ(0, ::mprotect(const_cast<std::byte*>(area) + kPage, kPage, PROT_READ));
  EXPECT_TRUE(mapping_at(number(area) + kPage, Access::kRead)->covers(number(area) + kPage, kPage));
  EXPECT_FALSE(mapping_at(number(area) + kPage, Access::kWrite)->covers(number(area) + kPage, 1));
  EXPECT_FALSE(mapping_at(number(area), Access::kWrite)->covers(number(area), kPage + 1));
  ASSERT_EQ(0, ::munmap(const_cast<std::byte*>(area), kSize));
  EXPECT_FALSE(mapping_at(number(area), Access::kRead)->covers(number(area), 1));
}

TEST(Mapping, KnowsFiles) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  const int fd = ::memfd_create("file", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, kSize));
  void* shared = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* copied = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  for (void* place : {shared, copied}) {
    const auto found = mapping_at(reinterpret_cast<uintptr_t>(place), Access::kWrite);
    EXPECT_TRUE(found && found->covers(reinterpret_cast<uintptr_t>(place), kSize) && found->file);
    ::munmap(place, kSize);
  }
  ::close(fd);
}

TEST(Mapping, OfAChildIsItsOwn) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  std::byte* area = map_pages();
  ASSERT_TRUE(mapping_at(number(area), Access::kRead).has_value());  // opened from here on
  const auto unmaps = [&] {
    if (::munmap(area, kSize) != 0) return false;
    const auto found = mapping_at(number(area), Access::kRead);
    return found && !found->covers(number(area), 1);
  };
  EXPECT_EQ(0, in_child(unmaps));
  EXPECT_EQ(0,
            in_child(unmaps, [] { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }));
  EXPECT_TRUE(mapping_at(number(area), Access::kRead)->covers(number(area), kSize));
}

TEST(Mapping, IsUntoldWhereTheDescriptorIsGone) {
  EXPECT_EQ(0,
            in_child([] { return !kernel_tells() || (::close_range(3, ~0U, 0) == 0 && !kernel_tells()); }));
}

TEST(Mapping, IsUntoldWhereNobodyMayAsk) {
  EXPECT_EQ(0, in_child([] { return forbid_questions() && !kernel_tells(); }));
}

// Pages that a burst goes through again and again.
class AgainTest : public testing::Test {
 protected:
  [[nodiscard]] bool again(Access access = Access::kWrite) {
    // A burst of its own, which remembers no mapping.
    MappingProof mapping;
    return accessible_again(area_, kSize, access, stamp_, mapping).has_value();
  }
  std::byte* area_ = map_pages();
  ProofStamp stamp_;
};

TEST_F(AgainTest, FindsAtOnceWhatIsProtectedOrGone) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(again());
  ASSERT_EQ(0, ::mprotect(area_ + kPage, kPage, PROT_READ));
  EXPECT_FALSE(again());
  EXPECT_TRUE(again(Access::kRead));
  ASSERT_EQ(0, ::mprotect(area_ + kPage, kPage, PROT_READ | PROT_WRITE));
  EXPECT_TRUE(again());
  ASSERT_EQ(0, ::munmap(area_ + 2 * kPage, kPage));
  EXPECT_FALSE(again());
  EXPECT_FALSE(again(Access::kRead));
}

// Neither when a proof of them is older than what files are granted, nor when they are two mappings.
TEST_F(AgainTest, DoesNotTouchPagesOfNoFileAgain) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  const auto resident = [&] {
    std::array<unsigned char, kPages> pages{};
    EXPECT_EQ(0, ::mincore(area_, kSize, pages.data()));
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  ASSERT_TRUE(again());
  EXPECT_EQ(kPages, resident());
  for (const bool split : {false, true}) {
    ASSERT_EQ(0, ::madvise(area_, kSize, MADV_DONTNEED));
    if (split) {
      ASSERT_EQ(0, ::madvise(area_ + kPage, kPage, MADV_DONTFORK));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2 * kPermissionMicroseconds));
    EXPECT_TRUE(again());
    EXPECT_EQ(0, resident()) << (split ? "two mappings" : "one mapping");
  }
  std::this_thread::sleep_for(std::chrono::microseconds(2 * kPagesMicroseconds));
  EXPECT_TRUE(again());
  EXPECT_EQ(kPages, resident()) << "after so long they are looked at";
}

TEST_F(AgainTest, AMappingThatWasSeenIsBelievedForAMoment) {
  if (!kernel_tells()) GTEST_SKIP() << kTooOld;
  MappingProof mapping;
  ASSERT_TRUE(accessible_again(area_, kSize, Access::kWrite, stamp_, mapping));
  // Tried again, for a thread that lost its CPU meanwhile has to ask.
  bool believed = false;
  for (int tries = 0; tries < 20 && !believed; ++tries) {
    const auto first = accessible_again(area_, kSize, Access::kWrite, stamp_, mapping);
    believed = first == accessible_again(area_, kSize, Access::kWrite, stamp_, mapping);
  }
  EXPECT_TRUE(believed) << "it asks each time";
  const uint64_t seen = mapping.when();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(0, ::mprotect(area_, kPage, PROT_READ));
  EXPECT_FALSE(accessible_again(area_, kSize, Access::kWrite, stamp_, mapping));
  EXPECT_TRUE(accessible_again(area_, kSize, Access::kRead, stamp_, mapping));
  EXPECT_GT(mapping.when(), seen);
}

TEST_F(AgainTest, FindsAFileThatWasCutShort) {
  const int fd = ::memfd_create("cut", MFD_CLOEXEC);
  ASSERT_EQ(0, ::ftruncate(fd, kSize));
  ASSERT_EQ(area_, ::mmap(area_, kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
  ASSERT_TRUE(again());
  ASSERT_TRUE(again());
  ASSERT_EQ(0, ::ftruncate(fd, kPage));
  std::this_thread::sleep_for(std::chrono::microseconds(2 * kPermissionMicroseconds));
  EXPECT_FALSE(again());
  ::close(fd);
}

// Where nobody may ask, what was unmapped is found by other means, and what was protected a millisecond
// later.
TEST_F(AgainTest, DoesWithoutTheAnswer) {
  EXPECT_EQ(0, in_child([&] {
              if (!forbid_questions()) return false;
              bool right = again() && again();
              right = right && ::mprotect(area_, kPage, PROT_READ) == 0;
              std::this_thread::sleep_for(std::chrono::microseconds(2 * kPermissionMicroseconds));
              right = right && !again() && again(Access::kRead) && again(Access::kRead);
              return right && ::munmap(area_, kPage) == 0 && !again(Access::kRead);
            }));
}

}  // namespace
}  // namespace verbena::verbs
