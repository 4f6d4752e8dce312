#include "verbs/memory_windows.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Verdict;

constexpr uint32_t kDomain = 1;
constexpr uint32_t kQueuePair = 0x050007;
constexpr WindowUser kUser{{kQueuePair}, kDomain};
constexpr uint32_t kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

class MemoryWindowsTest : public testing::Test {
 protected:
  [[nodiscard]] MemoryRegions& regions() { return owner_.process().regions(); }
  [[nodiscard]] MemoryWindows& windows() { return owner_.process().windows(); }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(memory_.data()); }
  [[nodiscard]] WindowBinding binding(uint32_t key, ibv_mw_type type = IBV_MW_TYPE_2) const {
    return {.type = type,
            .key = key,
            .region = region_,
            .access = kRights,
            .address = address() + 100,
            .length = 1000};
  }
  // A peer's use of the range's first bytes.
  [[nodiscard]] Verdict use(uint32_t key, uint32_t queue_pair = kQueuePair, uint32_t domain = kDomain,
                            uint32_t access = IBV_ACCESS_REMOTE_WRITE) {
    Region found;
    return check_key(owner_.own_arena(), {key, address() + 100, 8, domain, access, queue_pair}, found);
  }

  OwnerProcess owner_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  uint32_t region_ =
      *regions().add({address(), 4096, address(), kDomain, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND});
};

TEST_F(MemoryWindowsTest, ANewOneOpensNothing) {
  for (const auto type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    const uint32_t key = *windows().add(type, kDomain);
    EXPECT_EQ(Verdict::kBadKey, use(key));
    EXPECT_EQ(Verdict::kBadKey, windows().invalidate(key, kUser));
    windows().remove(key);
  }
  EXPECT_EQ(EINVAL, windows().add(static_cast<ibv_mw_type>(0), kDomain).error().code);
}

TEST_F(MemoryWindowsTest, Type2IsOpenToItsQueuePairAndDomain) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_2, kDomain);
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(key), kUser));
  EXPECT_EQ(Verdict::kDone, use(key));
  EXPECT_EQ(Verdict::kWrongQueuePair, use(key, kQueuePair + 1));
  EXPECT_EQ(Verdict::kWrongDomain, use(key, kQueuePair, kDomain + 1));
  EXPECT_EQ(Verdict::kNoAccess, use(key, kQueuePair, kDomain, IBV_ACCESS_REMOTE_ATOMIC));
  EXPECT_EQ(Verdict::kBadKey, use(key, 0, kDomain, 0)) << "it is no lkey";
  EXPECT_EQ(Verdict::kBadKey, use(key ^ 1));
}

TEST_F(MemoryWindowsTest, Type1IsOpenToTheDomain) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_1, kDomain);
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(key, IBV_MW_TYPE_1), kUser));
  EXPECT_EQ(Verdict::kDone, use(key, kQueuePair + 1));
  EXPECT_EQ(Verdict::kWrongDomain, use(key, kQueuePair, kDomain + 1));
  EXPECT_EQ(Verdict::kNotWindow, windows().invalidate(key, kUser));
  // Bound anew, and its old key is gone.
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(ibv_inc_rkey(key), IBV_MW_TYPE_1), kUser));
  EXPECT_EQ(Verdict::kBadKey, use(key));
  EXPECT_EQ(Verdict::kDone, use(ibv_inc_rkey(key)));
}

TEST_F(MemoryWindowsTest, ABindThatCantBeChangesNothing) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_1, kDomain);
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(key, IBV_MW_TYPE_1), kUser));
  const auto refused = [&](auto change, WindowUser user = kUser) {
    WindowBinding wanted = binding(ibv_inc_rkey(key), IBV_MW_TYPE_1);
    change(wanted);
    const Verdict verdict = windows().bind(wanted, user);
    EXPECT_EQ(Verdict::kDone, use(key));
    return verdict;
  };
  EXPECT_EQ(Verdict::kBadBounds, refused([](auto& w) { w.length = 3997; }));
  EXPECT_EQ(Verdict::kBadBounds, refused([](auto& w) { w.address = 0; }));
  EXPECT_EQ(Verdict::kBadKey, refused([](auto& w) { w.region ^= 1; }));
  EXPECT_EQ(Verdict::kBadKey, refused([](auto& w) { w.region = 0; }));
  EXPECT_EQ(Verdict::kBadKey, refused([&](auto& w) { w.region = key; })) << "a window on a window";
  EXPECT_EQ(Verdict::kNotWindow, refused([](auto& w) { w.type = IBV_MW_TYPE_2; }));
  EXPECT_EQ(Verdict::kNotWindow, refused([&](auto& w) { w.key = region_; }));
  EXPECT_EQ(Verdict::kWrongDomain, refused([](auto&) {}, {{kQueuePair}, kDomain + 1}));
  const uint32_t null = *regions().add_null(kDomain);
  EXPECT_EQ(Verdict::kNoAccess, refused([&](auto& w) { w.region = null; }));
}

TEST_F(MemoryWindowsTest, APeerInvalidatesWhatIsOpenToItOnly) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_2, kDomain);
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(key), kUser));
  windows().invalidate_for_peer(key, {{kQueuePair + 1}, kDomain});
  windows().invalidate_for_peer(key ^ 1, kUser);
  windows().invalidate_for_peer(region_, kUser);
  windows().invalidate_for_peer(~0u, kUser);
  EXPECT_EQ(Verdict::kDone, use(key));
  EXPECT_EQ(Verdict::kBound, windows().bind(binding(ibv_inc_rkey(key)), kUser));
  windows().invalidate_for_peer(key, kUser);
  EXPECT_EQ(Verdict::kBadKey, use(key));
  EXPECT_EQ(Verdict::kDone, windows().bind(binding(ibv_inc_rkey(key)), kUser));
}

TEST_F(MemoryWindowsTest, TheRegionStaysWhileTheyAreBound) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_2, kDomain);
  ASSERT_EQ(Verdict::kDone, windows().bind(binding(key), kUser));
  EXPECT_EQ(EBUSY, regions().remove(region_).error().code);
  EXPECT_EQ(
      EBUSY,
      regions().change(region_, IBV_REREG_MR_CHANGE_ACCESS, {.access = IBV_ACCESS_LOCAL_WRITE}).error().code);
  windows().forget({kQueuePair + 1});
  EXPECT_EQ(Verdict::kDone, use(key));
  windows().forget({kQueuePair});
  EXPECT_EQ(Verdict::kBadKey, use(key));
  EXPECT_TRUE(regions().remove(region_));
}

// A place that a window had is given out with another key than any the window had last.
TEST_F(MemoryWindowsTest, KeysAreNotUsedAgainAtOnce) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t key = *windows().add(IBV_MW_TYPE_2, kDomain);
    EXPECT_TRUE(seen.insert(key).second);
    const uint32_t bound = ibv_inc_rkey(key);
    ASSERT_EQ(Verdict::kDone, windows().bind(binding(bound), kUser));
    EXPECT_TRUE(seen.insert(bound).second);
    windows().remove(key);
    EXPECT_EQ(Verdict::kBadKey, use(bound));
  }
}

// The rule of deregistration: closing waits for who has said that it accesses the window.
TEST_F(MemoryWindowsTest, ClosingWaitsForAccesses) {
  const uint32_t key = *windows().add(IBV_MW_TYPE_2, kDomain);
  for (int way = 0; way < 2; ++way) {
    ASSERT_EQ(Verdict::kDone, windows().bind(binding(key), kUser));
    auto& word = regions().own_lane(0).regions[0];
    word.release((key >> 8) + 1);
    std::atomic<bool> closed = false;
    std::thread closer([&] {
      if (way == 0)
        EXPECT_EQ(Verdict::kDone, windows().invalidate(key, kUser));
      else
        windows().remove(key);
      closed.store(true);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(closed.load());
    EXPECT_EQ(Verdict::kBadKey, use(key)) << "nobody begins another";
    word.release(0);
    closer.join();
  }
}

}  // namespace
}  // namespace verbena::verbs
