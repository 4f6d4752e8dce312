#include "ipc/process_id.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace verbena::ipc {
namespace {

// A child that waits to be ended.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ~Child() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(StartTicks, AreTheSameEachTimeAndNeverZeroForALivingProcess) {
  const uint64_t ticks = start_ticks_of(::getpid());
  EXPECT_GT(ticks, 0u);
  EXPECT_EQ(ticks, start_ticks_of(::getpid()));
  Child child;
  EXPECT_GE(start_ticks_of(child.pid()), ticks);
}

TEST(StartTicks, AreZeroForAProcessThatIsGone) {
  Child child;
  const pid_t pid = child.pid();
  child.end();
  EXPECT_EQ(0u, start_ticks_of(pid));
  EXPECT_EQ(0u, start_ticks_of(-1));
}

TEST(StartTicks, AreZeroForADeadProcessThatNobodyWaitedFor) {
  Child child;
  ASSERT_GT(start_ticks_of(child.pid()), 0u);
  ::kill(child.pid(), SIGKILL);
  siginfo_t dead{};
  ASSERT_EQ(0, ::waitid(P_PID, static_cast<id_t>(child.pid()), &dead, WEXITED | WNOWAIT));
  EXPECT_EQ(0u, start_ticks_of(child.pid()));
}

TEST(StartTicks, DoNotDependOnTheNameOfTheProcess) {
  char old[16]{};
  ::prctl(PR_GET_NAME, old);
  const uint64_t ticks = start_ticks_of(::getpid());
  for (const char* name : {"a) R 1 1 (b", "x y z", ")", "new\nline"}) {
    ::prctl(PR_SET_NAME, name);
    EXPECT_EQ(ticks, start_ticks_of(::getpid())) << name;
  }
  ::prctl(PR_SET_NAME, old);
}

TEST(Pidfd, NamesItsProcessAndNobodyAfterItsEnd) {
  Child child;
  const auto pidfd = open_pidfd(child.pid());
  ASSERT_TRUE(pidfd);
  EXPECT_EQ(child.pid(), pid_of_pidfd(pidfd.get()));
  EXPECT_TRUE(::fcntl(pidfd.get(), F_GETFD) & FD_CLOEXEC);
  pollfd ready{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(0, ::poll(&ready, 1, 0));
  child.end();
  EXPECT_EQ(-1, pid_of_pidfd(pidfd.get()));
  EXPECT_EQ(1, ::poll(&ready, 1, 0));
}

TEST(Pidfd, OfNobodyIsNone) {
  Child child;
  const pid_t pid = child.pid();
  child.end();
  EXPECT_FALSE(open_pidfd(pid));
}

TEST(Pidfd, AnotherKindOfFileIsNone) {
  const base::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(-1, pid_of_pidfd(file.get()));
  EXPECT_EQ(-1, pid_of_pidfd(-1));
}

TEST(OpenDescriptor, OfAnotherProcessIsTheSameMemory) {
  const base::UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(4, ::pwrite(file.get(), "seen", 4, 0));
  Child child;  // has inherited it
  const auto pidfd = open_pidfd(child.pid());
  const auto opened = copy_descriptor(pidfd.get(), file.get());
  ASSERT_TRUE(opened);
  char text[5]{};
  EXPECT_EQ(4, ::pread(opened.get(), text, 4, 0));
  EXPECT_STREQ("seen", text);
  EXPECT_TRUE(::fcntl(opened.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(OpenDescriptor, ThatIsNotThereOrOfNobodyIsNone) {
  Child child;
  const auto pidfd = open_pidfd(child.pid());
  EXPECT_FALSE(copy_descriptor(pidfd.get(), 9999));
  EXPECT_FALSE(copy_descriptor(pidfd.get(), -1));
  child.end();
  EXPECT_FALSE(copy_descriptor(pidfd.get(), 0));
}

TEST(MapsFile, SeesAMappingWhileItIsThere) {
  constexpr char kName[] = "/memfd:verbena-unit-test";
  const base::UniqueFd fd(::memfd_create("verbena-unit-test", MFD_CLOEXEC));
  ASSERT_EQ(0, ::ftruncate(fd.get(), 4096));
  EXPECT_FALSE(maps_file(::getpid(), kName));  // open alone isn't mapped
  void* data = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
  EXPECT_TRUE(maps_file(::getpid(), kName));
  EXPECT_FALSE(maps_file(::getpid(), "/memfd:verbena-unit-text"));
  ::munmap(data, 4096);
  EXPECT_FALSE(maps_file(::getpid(), kName));
  EXPECT_FALSE(maps_file(-1, kName));
}

TEST(PidHome, OfANeighbourIsOurs) {
  Child child;
  const auto pidfd = open_pidfd(child.pid());
  const auto home = home_of(pidfd.get());
  EXPECT_EQ(namespace_inode("pid"), home.inode);
  EXPECT_EQ(child.pid(), home.pid);
}

TEST(PidHome, OfADeadProcessOrOfAnotherFileIsNone) {
  Child child;
  const auto pidfd = open_pidfd(child.pid());
  child.end();
  EXPECT_EQ(0u, home_of(pidfd.get()).inode);
  const base::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(0u, home_of(file.get()).inode);
  EXPECT_EQ(0u, home_of(-1).inode);
}

TEST(PidHome, BelowUsIsAnotherWithNumbersOfItsOwn) {
  // Only a child's children live in the namespace that it makes; the pipe lives as long as they do.
  int alive[2];
  ASSERT_EQ(0, ::pipe2(alive, O_CLOEXEC));
  const pid_t maker = ::fork();
  if (maker == 0) {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t first = ::fork();
    if (first == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    [[maybe_unused]] const auto written = ::write(alive[1], &first, sizeof first);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ::close(alive[1]);
  pid_t first = 0;
  const bool made = ::read(alive[0], &first, sizeof first) == sizeof first;
  ::close(alive[0]);
  if (made) {
    const auto pidfd = open_pidfd(first);
    const auto home = home_of(pidfd.get());
    EXPECT_NE(0u, home.inode);
    EXPECT_NE(namespace_inode("pid"), home.inode);
    EXPECT_EQ(1, home.pid);
    ::kill(first, SIGKILL);
  }
  ::kill(maker, SIGKILL);
  ::waitpid(maker, nullptr, 0);
  if (!made) GTEST_SKIP() << "this machine lets nobody make a pid namespace";
}

TEST(NamespaceInode, IsTheKernelsNumber) {
  for (const char* kind : {"net", "pid", "user"}) {
    const auto link = std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind).string();
    EXPECT_EQ(link, std::string(kind) + ":[" + std::to_string(namespace_inode(kind)) + "]");
  }
  EXPECT_EQ(0u, namespace_inode("nonsense"));
}

}  // namespace
}  // namespace verbena::ipc
