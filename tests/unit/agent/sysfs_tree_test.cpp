#include "agent/sysfs_tree.hpp"

#include <sys/stat.h>

#include "agent/device_builder.hpp"
#include "hosts.hpp"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGuid = 0x0211223344556600;
const std::string kDevice = "sys/devices/virtual/verbena/verbena0/infiniband/verbena0/";
const std::string kPort = kDevice + "ports/1/";

std::vector<net::Interface> host(const std::vector<std::string>& addresses) {
  return {loopback(), interface("eth0", 2, addresses)};
}

Tree tree_for(const std::vector<net::Interface>& interfaces, const arena::DeviceTable* previous = nullptr) {
  return tree_of(build_devices(ipc::default_specs(), interfaces, kGuid, previous), interfaces);
}

std::string file(const Tree& tree, const std::string& path) {
  const auto node = tree.find(path);
  return node != tree.end() && !node->second.is_link ? node->second.content : "(none)";
}

std::map<std::string, ino_t> inodes_below(const std::string& root) {
  std::map<std::string, ino_t> inodes;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    struct stat st {};
    EXPECT_EQ(0, ::lstat(entry.path().c_str(), &st));
    if (!S_ISDIR(st.st_mode)) inodes[entry.path().lexically_relative(root)] = st.st_ino;
  }
  return inodes;
}

TEST(SysfsTree, SaysWhatProgramsReadOfADeviceAndItsPort) {
  const auto tree = tree_for(host({"192.0.2.1"}));
  const std::pair<std::string, std::string> expected[] = {
      {kDevice + "node_type", "1: CA\n"},
      {kDevice + "node_guid", "0211:2233:4455:6600\n"},
      {kDevice + "sys_image_guid", "0211:2233:4455:6600\n"},
      {kPort + "state", "4: ACTIVE\n"},
      {kPort + "phys_state", "5: LinkUp\n"},
      {kPort + "link_layer", "Ethernet\n"},
      {kPort + "rate", "25 Gb/sec (1X EDR)\n"},
      {kPort + "pkeys/0", "0xffff\n"},
      {kPort + "gids/0", "0000:0000:0000:0000:0000:ffff:c000:0201\n"},
      {kPort + "gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001\n"},
      {kPort + "gids/63", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
      {kPort + "gids/64", "(none)"},
      {kPort + "gid_attrs/types/0", "RoCE v2\n"},
      {kPort + "gid_attrs/ndevs/0", "eth0\n"},
      {kPort + "gid_attrs/ndevs/1", "lo\n"},
      {kPort + "gid_attrs/types/3", "(none)"},
      {kPort + "counters/port_xmit_data", "0\n"},
      {"sys/class/infiniband_verbs/abi_version", "6\n"},
      {"sys/devices/virtual/verbena/verbena0/infiniband_verbs/uverbs0/ibdev", "verbena0\n"},
      {"sys/devices/virtual/verbena/verbena0/infiniband_verbs/uverbs0/dev", "231:192\n"},
  };
  for (const auto& [path, content] : expected) EXPECT_EQ(content, file(tree, path)) << path;
  EXPECT_EQ((TreeNode{true, "/dev/null"}), tree.at("dev/infiniband/uverbs0"));
}

TEST(SysfsTree, RateFollowsTheInterface) {
  const std::pair<uint32_t, std::string> cases[] = {
      {0, "100 Gb/sec (4X EDR)\n"}, {1'000, "2.5 Gb/sec (1X SDR)\n"}, {200'000, "200 Gb/sec (4X HDR)\n"}};
  for (const auto& [mbps, rate] : cases) {
    auto interfaces = host({"192.0.2.1"});
    interfaces[1].speed_mbps = mbps;
    EXPECT_EQ(rate, file(tree_for(interfaces), kPort + "rate")) << mbps;
  }
}

TEST(SysfsTree, OfADownPortSaysSo) {
  auto interfaces = host({"192.0.2.1"});
  for (auto& interface : interfaces) interface.up = false;
  EXPECT_EQ("1: DOWN\n", file(tree_for(interfaces), kPort + "state"));
}

TEST(SysfsTree, OfSeveralDevicesNumbersTheirVerbsDevices) {
  const auto interfaces = host({"192.0.2.1"});
  const auto tree = tree_of(
      build_devices({{"b", {"eth0"}}, {"a", {"lo", "eth0"}}}, interfaces, kGuid, nullptr), interfaces);
  EXPECT_EQ("b\n", file(tree, "sys/devices/virtual/verbena/b/infiniband_verbs/uverbs0/ibdev"));
  EXPECT_EQ("a\n", file(tree, "sys/devices/virtual/verbena/a/infiniband_verbs/uverbs1/ibdev"));
  EXPECT_NE("(none)", file(tree, "sys/devices/virtual/verbena/a/infiniband/a/ports/2/state"));
  EXPECT_EQ("(none)", file(tree, "sys/devices/virtual/verbena/a/infiniband/a/ports/3/state"));
  EXPECT_TRUE(tree.contains("dev/infiniband/uverbs1"));
}

class TreeWriterTest : public testing::Test {
 protected:
  void write(const Tree& tree) {
    const auto written = writer_.write(tree);
    ASSERT_TRUE(written) << written.error().sentence;
  }
  [[nodiscard]] std::string at(const std::string& path) const { return writer_.root() + "/" + path; }

  TemporaryDirectory directory_;
  TreeWriter writer_{directory_.path() + "/tree"};
};

TEST_F(TreeWriterTest, PutsEveryFileAndLinkInItsPlaceAndNothingElse) {
  const auto tree = tree_for(host({"192.0.2.1"}));
  write(tree);
  const auto there = inodes_below(writer_.root());
  EXPECT_EQ(tree.size(), there.size());
  for (const auto& [path, node] : tree) {
    ASSERT_TRUE(there.contains(path)) << path;
    ASSERT_EQ(node.is_link, fs::is_symlink(at(path))) << path;
    EXPECT_EQ(node.content, node.is_link ? fs::read_symlink(at(path)).string() : content_of(at(path)))
        << path;
  }
}

TEST_F(TreeWriterTest, ItsLinksLeadWhereProgramsFollowThem) {
  write(tree_for(host({"192.0.2.1"})));
  EXPECT_EQ("0211:2233:4455:6600\n", content_of(at("sys/class/infiniband/verbena0/node_guid")));
  EXPECT_EQ("verbena0\n", content_of(at("sys/class/infiniband_verbs/uverbs0/ibdev")));
  EXPECT_TRUE(fs::exists(at("sys/class/infiniband_verbs/uverbs0/device/infiniband/verbena0/node_type")));
  EXPECT_TRUE(fs::equivalent(at("sys/class/infiniband/verbena0/device"),
                             at("sys/class/infiniband_verbs/uverbs0/device")));
  EXPECT_TRUE(fs::equivalent(at("sys/class/infiniband/verbena0/subsystem"), at("sys/class/infiniband")));
  EXPECT_EQ("verbena", fs::canonical(at("sys/class/infiniband/verbena0/device/driver")).filename());
}

TEST_F(TreeWriterTest, LeavesUnchangedFilesUntouched) {
  write(tree_for(host({"192.0.2.1"})));
  const auto before = inodes_below(writer_.root());
  write(tree_for(host({"192.0.2.1"})));
  EXPECT_EQ(before, inodes_below(writer_.root()));

  auto slower = host({"192.0.2.1"});
  slower[1].speed_mbps = 10'000;
  write(tree_for(slower));
  auto after = inodes_below(writer_.root());
  EXPECT_NE(before.at(kPort + "rate"), after.at(kPort + "rate"));
  after[kPort + "rate"] = before.at(kPort + "rate");
  EXPECT_EQ(before, after);
}

TEST_F(TreeWriterTest, AGidThatWentTakesItsAttributesWithIt) {
  const auto both = host({"192.0.2.1", "192.0.2.2"});
  const auto table = build_devices(ipc::default_specs(), both, kGuid, nullptr);
  write(tree_of(table, both));
  ASSERT_EQ("RoCE v2\n", content_of(at(kPort + "gid_attrs/types/1")));
  write(tree_for(host({"192.0.2.1"}), &table));
  EXPECT_FALSE(fs::exists(at(kPort + "gid_attrs/types/1")));
  EXPECT_FALSE(fs::exists(at(kPort + "gid_attrs/ndevs/1")));
  EXPECT_EQ("0000:0000:0000:0000:0000:0000:0000:0000\n", content_of(at(kPort + "gids/1")));
  EXPECT_EQ("lo\n", content_of(at(kPort + "gid_attrs/ndevs/2")));
}

TEST_F(TreeWriterTest, RemovesAllItWrote) {
  write(tree_for(host({"192.0.2.1"})));
  writer_.remove();
  EXPECT_FALSE(fs::exists(writer_.root()));
  write(tree_for(host({"192.0.2.1"})));  // and writes all anew
  EXPECT_TRUE(fs::exists(at(kPort + "state")));
}

TEST_F(TreeWriterTest, SaysWhatItCouldNotWriteAndTriesAgainNextTime) {
  std::ofstream(writer_.root()) << "a file where the directory should be";
  const auto failed = writer_.write({{"a", {false, "1\n"}}});
  ASSERT_FALSE(failed);
  EXPECT_NE(std::string::npos, failed.error().sentence.find("/tree/a")) << failed.error().sentence;
  fs::remove(writer_.root());
  write({{"a", {false, "1\n"}}});
  EXPECT_EQ("1\n", content_of(at("a")));
}

TEST_F(TreeWriterTest, NobodyElseCanWriteIntoItWhateverTheUmask) {
  const mode_t old = ::umask(0);
  const auto written = writer_.write(tree_for(host({"192.0.2.1"})));
  ::umask(old);
  ASSERT_TRUE(written);
  for (const auto& entry : fs::recursive_directory_iterator(directory_.path())) {
    struct stat st {};
    ASSERT_EQ(0, ::lstat(entry.path().c_str(), &st));
    ASSERT_TRUE(S_ISLNK(st.st_mode) || (st.st_mode & 0022) == 0) << entry.path();
  }
}

}  // namespace
}  // namespace verbena::agent
