#include "agent/view_table.hpp"

#include <set>

#include "hosts.hpp"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;
using Gids = std::vector<std::string>;
using Flags = ViewTable::Flags;

constexpr uint64_t kGuid = 0x0211223344556600;
constexpr Flags kAll = [] {
  Flags all{};
  all.fill(true);
  return all;
}();

std::vector<net::Interface> host(const std::vector<std::string>& addresses) {
  return {loopback(), interface("eth0", 2, addresses)};
}

class ViewTableTest : public testing::Test {
 protected:
  ViewTable make(const std::vector<std::string>& addresses) {
    return {registry_, directory_.path() + "/views", kGuid, host(addresses)};
  }
  unsigned find(std::string_view spec) {
    const auto view = views_.find_or_make(spec, kAll);
    EXPECT_TRUE(view) << view.error().sentence;
    return view.value_or(0);
  }
  Gids gids(unsigned view) { return gids_of(registry_.read_view(view)->devices[0].ports[0]); }
  static std::string port_file(const ViewTable& views, unsigned view, const std::string& name) {
    return views.tree_root(view) + "/sys/class/infiniband/verbena0/ports/1/" + name;
  }

  TemporaryDirectory directory_;
  arena::Registry registry_ = std::move(arena::Registry::create("test")->second);
  ViewTable views_ = make({"192.0.2.1"});
};

TEST_F(ViewTableTest, MakesAViewWithItsDevicesAndItsTree) {
  const unsigned view = find("mlx5_0=eth0");
  const auto table = registry_.read_view(view);
  ASSERT_TRUE(table);
  EXPECT_EQ("mlx5_0", arena::text(table->devices[0].name));
  EXPECT_EQ((Gids{"192.0.2.1"}), gids(view));
  EXPECT_EQ("mlx5_0=eth0", arena::text(registry_.layout().views[view].spec));
  EXPECT_TRUE(fs::exists(views_.tree_root(view) + "/sys/class/infiniband/mlx5_0/node_guid"));
}

TEST_F(ViewTableTest, GivesTheSameViewForTheSameSpecification) {
  const unsigned view = find("");
  EXPECT_EQ(view, find(""));
  EXPECT_EQ(view, find("verbena0=*"));
  const unsigned other = find("verbena0=eth0");
  EXPECT_NE(view, other);
  EXPECT_EQ(other, find("verbena0=eth0"));
  EXPECT_NE(views_.tree_root(view), views_.tree_root(other));
}

TEST_F(ViewTableTest, RefusesWhatIsNoSpecification) {
  EXPECT_EQ(EINVAL, views_.find_or_make("verbena0", kAll).error().code);
  EXPECT_EQ(EINVAL, views_.find_or_make("../../etc=lo", kAll).error().code);
  for (unsigned view = 0; view < arena::kMaxViews; ++view) EXPECT_FALSE(registry_.read_view(view));
}

TEST_F(ViewTableTest, HasRoomFor16) {
  std::set<unsigned> made;
  for (char name = 'a'; name < 'a' + 16; ++name) made.insert(find(std::string(1, name) + "=lo"));
  EXPECT_EQ(16u, made.size());
  const auto refused = views_.find_or_make("z=lo", kAll);
  ASSERT_FALSE(refused);
  EXPECT_EQ(ENOSPC, refused.error().code);
  EXPECT_TRUE(refused.error().sentence.starts_with("16 different device specifications are in use"));
  EXPECT_TRUE(made.contains(find("c=lo")));  // those that are there still serve
}

TEST_F(ViewTableTest, HasRoomForMoreWhereSomeAreNotUsed) {
  for (char name = 'a'; name < 'a' + 16; ++name) find(std::string(1, name) + "=lo");
  const unsigned unused = find("d=lo");
  Flags used = kAll;
  used[unused] = false;
  EXPECT_EQ(unused, views_.find_or_make("z=lo", used));
}

// A host whose network came up after it was first looked at.
TEST_F(ViewTableTest, BeginsAnewWhereNobodyUsesIt) {
  const unsigned view = find("");
  (void)views_.update(host({}));
  (void)views_.update(host({"192.0.2.9", "192.0.2.1"}));
  const Gids as_they_came{"192.0.2.1", "127.0.0.1", "::1", "192.0.2.9"};
  EXPECT_EQ(as_they_came, gids(view));
  EXPECT_EQ(view, find(""));
  EXPECT_EQ(as_they_came, gids(view)) << "somebody may use an index";
  EXPECT_EQ(view, views_.find_or_make("", {}));
  EXPECT_EQ((Gids{"192.0.2.9", "192.0.2.1", "127.0.0.1", "::1"}), gids(view));
  EXPECT_EQ("RoCE v2\n", content_of(port_file(views_, view, "gid_attrs/types/3")));
}

TEST_F(ViewTableTest, KeepOnlyDropsTheOthersWithTheirTrees) {
  const unsigned first = find("a=lo");
  const unsigned second = find("b=lo");
  const std::string gone = views_.tree_root(first);
  Flags used{};
  used[second] = true;
  views_.keep_only(used);
  EXPECT_FALSE(registry_.read_view(first));
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(registry_.read_view(second));
  EXPECT_TRUE(fs::exists(views_.tree_root(second)));
  EXPECT_EQ(first, find("c=lo"));  // its place is free
  EXPECT_EQ("c", arena::text(registry_.read_view(first)->devices[0].name));
}

TEST_F(ViewTableTest, APlaceUsedAgainHasNothingOfItsFormerView) {
  const unsigned view = find("a=*");
  EXPECT_EQ((Gids{"192.0.2.1", "127.0.0.1", "::1"}), gids(view));
  views_.keep_only({});
  ASSERT_EQ(view, find("a=lo"));
  EXPECT_EQ((Gids{"127.0.0.1", "::1"}), gids(view));
}

TEST_F(ViewTableTest, UpdateTellsWhichViewsChanged) {
  const unsigned all = find("");
  const unsigned lo = find("b=lo");
  const auto none = views_.update(host({"192.0.2.1"}));
  EXPECT_EQ(Flags{}, none);

  auto expected = Flags{};
  expected[all] = true;
  EXPECT_EQ(expected, views_.update(host({"192.0.2.1", "192.0.2.2"})));
  EXPECT_EQ((Gids{"192.0.2.1", "127.0.0.1", "::1", "192.0.2.2"}), gids(all));
  EXPECT_EQ((Gids{"127.0.0.1", "::1"}), gids(lo));
  EXPECT_EQ("RoCE v2\n", content_of(port_file(views_, all, "gid_attrs/types/3")));
}

TEST_F(ViewTableTest, ANewAgentGoesOnWithTheViewsItFinds) {
  const unsigned kept = find("");
  const unsigned other = find("b=lo");
  const std::string root = views_.tree_root(kept);
  ViewTable next = make({"192.0.2.9", "192.0.2.1"});  // an address came while no agent ran
  EXPECT_EQ(kept, *next.find_or_make("verbena0=*", kAll));
  EXPECT_EQ(other, *next.find_or_make("b=lo", kAll));
  EXPECT_EQ(root, next.tree_root(kept));
  EXPECT_EQ((Gids{"192.0.2.1", "127.0.0.1", "::1", "192.0.2.9"}), gids(kept));
}

TEST_F(ViewTableTest, ANewAgentDoesNotFindViewsThatWereDropped) {
  find("a=lo");
  views_.keep_only({});
  ViewTable next = make({"192.0.2.1"});
  EXPECT_EQ(0u, *next.find_or_make("b=lo", kAll));
}

// The tree of an agent that was killed is still there, with the files of an address that went since.
TEST_F(ViewTableTest, ANewAgentsTreeHasNoFilesOfAddressesThatWentMeanwhile) {
  const unsigned view = find("");
  ASSERT_TRUE(fs::exists(port_file(views_, view, "gid_attrs/types/0")));
  const ViewTable next = make({});
  EXPECT_EQ((Gids{"-", "127.0.0.1", "::1"}), gids(view));
  EXPECT_FALSE(fs::exists(port_file(next, view, "gid_attrs/types/0")));
  EXPECT_FALSE(fs::exists(port_file(next, view, "gid_attrs/ndevs/0")));
}

TEST_F(ViewTableTest, RemoveAllLeavesNothing) {
  find("a=lo");
  find("b=lo");
  fs::create_directories(directory_.path() + "/views/left-by-another");
  views_.remove_all();
  EXPECT_FALSE(fs::exists(directory_.path() + "/views"));
  for (unsigned view = 0; view < arena::kMaxViews; ++view) EXPECT_FALSE(registry_.read_view(view));
}

TEST_F(ViewTableTest, ServesWithoutATreeAndSaysSo) {
  std::ofstream(directory_.path() + "/views") << "a file where the directory should be";
  const unsigned view = find("a=eth0");
  EXPECT_EQ((Gids{"192.0.2.1"}), gids(view));
  EXPECT_EQ(1u, registry_.layout().log_next.load());
}

}  // namespace
}  // namespace verbena::agent
