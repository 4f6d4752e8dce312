// libc functions called from a C program under the preload, and what kind of guest the library is.
#include <gtest/gtest.h>

#include "hand_made_tree.hpp"

namespace verbena::abi::view {
namespace {

class ViewLibrary : public ::testing::Test {
 protected:
  [[nodiscard]] std::string probe(const std::string& what, const std::string& path) const {
    return tree_.run(VIEW_PROBE " " + what + " '" + path + "'").output;
  }
  HandMadeTree tree_;
};

TEST_F(ViewLibrary, GlobKeepsTheNamesAskedFor) {
  EXPECT_EQ(probe("glob", "/sys/class/infiniband/*/ports/*/lid"),
            "/sys/class/infiniband/verbena0/ports/1/lid\n");
  EXPECT_EQ(probe("globmark", "/{dev/infiniband,sys/class/infiniband}/*"),
            "/dev/infiniband/uverbs0\n/sys/class/infiniband/verbena0/\n");
  EXPECT_EQ(probe("glob", "/sys/class/infiniband/verbena0/fw_ver"),
            "/sys/class/infiniband/verbena0/fw_ver\n");
  EXPECT_EQ(probe("glob", "/sys/class/infiniband/none*"), "glob 3\n");
  EXPECT_EQ(probe("glob", "/proc/self/stat"), "/proc/self/stat\n");
}

TEST_F(ViewLibrary, DirectoriesAndFiles) {
  EXPECT_EQ(probe("scandir", "/sys/class/infiniband"), ". .. verbena0 \n");
  EXPECT_EQ(probe("statx", "/sys/class/infiniband/verbena0"), "dir 755\n");
  EXPECT_EQ(probe("statx", "/dev/infiniband/uverbs0"), "char 666\n");
  EXPECT_EQ(probe("fopen", "/sys/class/infiniband/verbena0/node_type"), "1: CA\n");
  EXPECT_EQ(probe("others", "/sys/class/infiniband/verbena0/node_type"), "all\n");
  EXPECT_EQ(probe("fopen", "/sys/class/infiniband_verbs/uverbs0/ibdev"), "verbena0\n");
}

TEST_F(ViewLibrary, WalksShowTheNamesAskedFor) {
  EXPECT_EQ(probe("nftw", "/sys/class/infiniband"),
            "0 1 /sys/class/infiniband infiniband\n1 4 /sys/class/infiniband/verbena0 verbena0\n");
  EXPECT_EQ(probe("ftw", "/dev/infiniband"), "1 /dev/infiniband\n0 /dev/infiniband/uverbs0\n");
}

TEST_F(ViewLibrary, ResolvedNamesDoNotShowTheTree) {
  const std::string device = "/sys/devices/virtual/verbena/verbena0\n";
  for (const char* how : {"realpath", "realpathbuf", "canonicalize"}) {
    EXPECT_EQ(probe(how, "/sys/class/infiniband/verbena0"), device) << how;
    EXPECT_EQ(probe(how, "/sys/class/net/../infiniband/verbena0/"), device) << how;
  }
  EXPECT_EQ(probe("realpathbuf", "/sys/class/infiniband/none"), "/sys/class/infiniband/none\nENOENT\n");
  EXPECT_EQ(probe("realpath", tree_.top()), tree_.top() + "\n");
}

TEST_F(ViewLibrary, WorkingDirectoryAndDescriptors) {
  const std::string name = "/sys/class/infiniband";
  EXPECT_EQ(probe("cwd", name), name + " " + name + " ERANGE " + name + "\n");
  EXPECT_EQ(probe("cwd", "/sys/class"), "/sys/class /sys/class ERANGE /sys/class\n");
  EXPECT_EQ(probe("at", name), name + " /sys 0 -1 0\n");
}

TEST_F(ViewLibrary, MissingIsMissingAndLongIsTooLong) {
  EXPECT_EQ(probe("fopen", "/sys/class/infiniband/mlx5_0/node_type"), "ENOENT\n");
  EXPECT_EQ(probe("statx", "/sys/class/infiniband_cm"), "ENOENT\n");
  EXPECT_EQ(probe("statx", "/dev/infiniband/" + std::string(PATH_MAX - 20, 'x')), "ENAMETOOLONG\n");
}

TEST_F(ViewLibrary, LeavesErrnoAndModesAlone) {
  EXPECT_EQ(probe("errno", "/sys/class/infiniband/verbena0/lid"), "0 2\n");
  EXPECT_EQ(probe("errno", "/sys/class/infiniband/verbena0/fw_ver"), "1 77\n");
  EXPECT_EQ(probe("create", tree_.top() + "/new"), "640\n");
  EXPECT_EQ(probe("create", "/dev/infiniband/new"), "640\n");
}

// The tree is often below a link, such as /tmp on some systems.
TEST_F(ViewLibrary, TreeReachedThroughALink) {
  tree_.link(tree_.top(), "alias");
  const auto aliased = [&](const std::string& command) {
    return tree_.run(command, "VERBENA_VIEW=" + tree_.top() + "/alias/").output;
  };
  EXPECT_EQ(aliased(VIEW_PROBE " realpath /sys/class/infiniband/verbena0"),
            "/sys/devices/virtual/verbena/verbena0\n");
  EXPECT_EQ(aliased("cd /sys/class/infiniband && env -u PWD /bin/pwd"), "/sys/class/infiniband\n");
}

TEST_F(ViewLibrary, NeedsOnlyLibcAndExportsOnlyWhatItInterposes) {
  const Outcome needed = run_shell("LC_ALL=C", "readelf -dW " VIEW_LIBRARY " | grep NEEDED");
  EXPECT_NE(needed.output.find("[libc.so.6]"), std::string::npos);
  EXPECT_EQ(needed.output.find('\n'), needed.output.size() - 1) << needed.output;
  // Each name that it defines is one that libc has too.
  const Outcome foreign = run_shell(
      "LC_ALL=C", "libc=$(ldd " VIEW_LIBRARY
                  " | sed -n 's/.*libc.so.6 => \\([^ ]*\\).*/\\1/p');"
                  "names() { nm -D --defined-only $1 | sed 's/.* //; s/@.*//' | sort -u; };"
                  "names $libc > " +
                      tree_.top() + "/libc; names " VIEW_LIBRARY " | comm -23 - " + tree_.top() + "/libc");
  EXPECT_EQ(foreign.output, "");
}

}  // namespace
}  // namespace verbena::abi::view
