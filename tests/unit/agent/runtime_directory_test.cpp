// Where an agent puts its trees: a directory that is really its own, or another.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/runtime_directory.hpp"
#include "hosts.hpp"
#include "ipc/process_id.hpp"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

class RuntimeDirectoryTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_RUNTIME_DIR", runtime_.path().c_str(), 1); }
  void TearDown() override {
    ::unsetenv("XDG_RUNTIME_DIR");
    std::error_code ignored;  // the name has this test's own namespace in it: nobody else's
    for (const char* place : {"/run/", "/dev/shm/", "/tmp/"})
      for (const auto& name : {name_, system_name_}) fs::remove_all(place + name, ignored);
  }
  std::string make(bool for_everybody = false) {
    const auto made = make_runtime_directory(for_everybody);
    EXPECT_TRUE(made) << made.error().sentence;
    return made ? made->path : "";
  }
  static mode_t mode_of(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(0, ::lstat(path.c_str(), &st));
    EXPECT_TRUE(S_ISDIR(st.st_mode));
    EXPECT_EQ(::geteuid(), st.st_uid);
    return st.st_mode & 07777;
  }
  // It must not take what is at `ours_` but make a proper one elsewhere.
  void expect_refused() {
    const std::string made = make();
    EXPECT_NE(ours_, made);
    EXPECT_EQ(0700u, mode_of(made));
  }

  TemporaryDirectory runtime_;
  const std::string namespace_ = std::to_string(ipc::namespace_inode("net"));
  const std::string name_ = "verbena-" + std::to_string(::geteuid()) + "-" + namespace_;
  const std::string system_name_ = "verbena-system-" + namespace_;
  const std::string ours_ = runtime_.path() + "/" + name_;
};

TEST_F(RuntimeDirectoryTest, IsOursAloneInTheUsersRuntimeDirectory) {
  EXPECT_EQ(ours_, make());
  EXPECT_EQ(0700u, mode_of(ours_));
}

TEST_F(RuntimeDirectoryTest, IsTheSameAgain) {
  std::ofstream(make() + "/kept") << "1";
  EXPECT_EQ(ours_, make());
  EXPECT_TRUE(fs::exists(ours_ + "/kept"));
}

TEST_F(RuntimeDirectoryTest, IsNeverASymbolicLink) {
  fs::create_directory(runtime_.path() + "/elsewhere");
  fs::create_directory_symlink(runtime_.path() + "/elsewhere", ours_);
  expect_refused();
}

TEST_F(RuntimeDirectoryTest, IsNeverADanglingLinkOrAFile) {
  fs::create_symlink(runtime_.path() + "/nowhere", ours_);
  expect_refused();
  fs::remove(ours_);
  std::ofstream(ours_) << "a file";
  expect_refused();
}

TEST_F(RuntimeDirectoryTest, IsNeverOneThatOthersCanWriteInto) {
  for (const mode_t mode : {0770, 0702, 01777}) {
    fs::create_directory(ours_);
    ASSERT_EQ(0, ::chmod(ours_.c_str(), mode));
    expect_refused();
    fs::remove(ours_);
  }
}

TEST_F(RuntimeDirectoryTest, IsNeverAForeignOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make somebody else's directory";
  fs::create_directory(ours_);
  ASSERT_EQ(0, ::chown(ours_.c_str(), 12345, 12345));
  ASSERT_EQ(0, ::chmod(ours_.c_str(), 0755));
  expect_refused();
}

TEST_F(RuntimeDirectoryTest, GoesElsewhereWhereTheRuntimeDirectoryIsNoneOrRelative) {
  for (const char* place : {"/nonexistent", "relative", ""}) {
    ::setenv("XDG_RUNTIME_DIR", place, 1);
    const std::string made = make();
    EXPECT_TRUE(made.starts_with("/run/") || made.starts_with("/dev/shm/") || made.starts_with("/tmp/"))
        << made;
    EXPECT_EQ(0700u, mode_of(made));
  }
}

TEST_F(RuntimeDirectoryTest, OfASystemAgentIsInNoUsersAndReadableByAll) {
  const std::string made = make(true);
  EXPECT_FALSE(made.starts_with(runtime_.path()));
  EXPECT_EQ(0755u, mode_of(made));
}

TEST_F(RuntimeDirectoryTest, OfASystemAgentIsReadableByAllWhateverTheUmask) {
  const mode_t old = ::umask(077);
  const std::string made = make(true);
  ::umask(old);
  EXPECT_EQ(0755u, mode_of(made));
}

TEST_F(RuntimeDirectoryTest, OfASystemAgentIsReadableByAllBesideThatOfRootsOwn) {
  ::unsetenv("XDG_RUNTIME_DIR");
  const std::string roots = make(false);
  const std::string made = make(true);
  EXPECT_NE(roots, made);
  EXPECT_EQ(0700u, mode_of(roots));
  EXPECT_EQ(0755u, mode_of(made));
}

// Sets a directory's age; an agent that lives holds its lock.
TEST_F(RuntimeDirectoryTest, ClearsAwayWhatKilledAgentsLeftLongAgo) {
  const std::string prefix = runtime_.path() + "/verbena-" + std::to_string(::geteuid()) + "-";
  const timespec long_ago[2] = {{.tv_sec = 1'000'000}, {.tv_sec = 1'000'000}};
  for (const char* other : {"1", "2", "3"}) fs::create_directory(prefix + other);
  fs::create_directory(runtime_.path() + "/somebody-elses");
  const base::UniqueFd alive(::open((prefix + "2").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(0, ::flock(alive.get(), LOCK_EX | LOCK_NB));
  for (const auto& path : {prefix + "1", prefix + "2", runtime_.path() + "/somebody-elses"})
    ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), long_ago, 0));
  make();
  EXPECT_FALSE(fs::exists(prefix + "1"));
  EXPECT_TRUE(fs::exists(prefix + "2")) << "its agent lives";
  EXPECT_TRUE(fs::exists(prefix + "3")) << "too young";
  EXPECT_TRUE(fs::exists(runtime_.path() + "/somebody-elses"));
}

}  // namespace
}  // namespace verbena::agent
