#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace verbena::base {
namespace {

UniqueFd make_file() { return UniqueFd(::memfd_create("test", MFD_CLOEXEC)); }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwnsOnceAtItsEnd) {
  int number = -1;
  {
    const UniqueFd fd = make_file();
    number = fd.get();
    EXPECT_TRUE(fd);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, MovedFromOwnsNothing) {
  UniqueFd first = make_file();
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_EQ(-1, first.get());
  EXPECT_FALSE(first);
  EXPECT_EQ(number, second.get());
  EXPECT_TRUE(is_open(number));
}

TEST(UniqueFd, AssignmentClosesTheOldOne) {
  UniqueFd target = make_file();
  UniqueFd source = make_file();
  const int old = target.get();
  const int kept = source.get();
  target = std::move(source);
  EXPECT_FALSE(is_open(old));
  EXPECT_EQ(kept, target.get());
  EXPECT_TRUE(is_open(kept));
}

TEST(UniqueFd, ReleaseLeavesTheFileOpen) {
  UniqueFd fd = make_file();
  const int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(GuardedFd, IsOursUntilItIsClosedByUs) {
  GuardedFd guarded(make_file());
  const int number = guarded.get();
  ASSERT_GE(number, 0);
  guarded.reset();
  EXPECT_EQ(-1, guarded.get());
  EXPECT_FALSE(is_open(number));
}

TEST(GuardedFd, OfNothingIsNothing) {
  GuardedFd guarded;
  EXPECT_FALSE(guarded);
  guarded.reset();
  EXPECT_FALSE(GuardedFd(UniqueFd(-1)));
}

TEST(GuardedFd, IsGoneWhenTheProgramClosedIt) {
  GuardedFd guarded(make_file());
  ::close(guarded.get());
  EXPECT_EQ(-1, guarded.get());
  EXPECT_FALSE(guarded);
}

// The program closes our descriptor, and a file of its own gets the number.
void replace(int number, const UniqueFd& with) { ASSERT_EQ(number, ::dup2(with.get(), number)); }

TEST(GuardedFd, LeavesAFileAloneThatTookItsNumber) {
  const UniqueFd theirs = make_file();
  int number = -1;
  {
    GuardedFd guarded(make_file());
    number = guarded.get();
    replace(number, theirs);
    EXPECT_EQ(-1, guarded.get());
  }
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(GuardedFd, AssignmentLeavesAFileAloneThatTookItsNumber) {
  const UniqueFd theirs = make_file();
  GuardedFd guarded(make_file());
  const int number = guarded.get();
  replace(number, theirs);
  GuardedFd fresh(make_file());
  const int fresh_number = fresh.get();
  guarded = std::move(fresh);
  EXPECT_TRUE(is_open(number));
  EXPECT_EQ(fresh_number, guarded.get());
  ::close(number);
}

TEST(GuardedFd, KeepsItsMemoryOfTheFileWhenMoved) {
  const UniqueFd theirs = make_file();
  GuardedFd first(make_file());
  GuardedFd second(std::move(first));
  const int number = second.get();
  ASSERT_GE(number, 0);
  replace(number, theirs);
  EXPECT_EQ(-1, second.get());
  second.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(GuardedFd, ADuplicateOfTheSameFileIsStillOurs) {
  GuardedFd guarded(make_file());
  const UniqueFd copy(::dup(guarded.get()));
  const int number = guarded.get();
  replace(number, copy);
  EXPECT_EQ(number, guarded.get());
}

// What wakes a process is a socketpair: unlike eventfds, sockets have an inode each.
TEST(GuardedFd, LeavesASocketAloneThatTookTheNumberOfItsSocket) {
  int ends[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  const UniqueFd theirs(ends[0]);
  int number = -1;
  {
    GuardedFd guarded{UniqueFd(ends[1])};
    number = guarded.get();
    replace(number, theirs);
    EXPECT_EQ(-1, guarded.get());
  }
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

}  // namespace
}  // namespace verbena::base
