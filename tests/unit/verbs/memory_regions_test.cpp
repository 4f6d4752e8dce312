#include "verbs/memory_regions.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <set>
#include <thread>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::Verdict;
using std::chrono::milliseconds;

class MemoryRegionsTest : public testing::Test {
 protected:
  [[nodiscard]] MemoryRegions& regions() { return owner_.process().regions(); }
  [[nodiscard]] RegionRequest request(uint64_t offset, uint64_t length, unsigned access = kAnyRemote) {
    const uint64_t address = reinterpret_cast<uint64_t>(memory_.data()) + offset;
    return {address, length, address, 1, access};
  }
  [[nodiscard]] Verdict use(uint32_t key, const RegionRequest& where,
                            unsigned access = IBV_ACCESS_LOCAL_WRITE) {
    Region found;
    return check_key(owner_.own_arena(), {key, where.iova, where.length, where.domain, access}, found);
  }
  [[nodiscard]] int refused(const RegionRequest& asked) {
    const auto key = regions().add(asked);
    return key ? 0 : key.error().code;
  }

  OwnerProcess owner_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(65536);
};

TEST_F(MemoryRegionsTest, EachRegistrationHasAKeyOfItsOwn) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 2000; ++i) {
    const uint32_t key = *regions().add(request(0, 100));
    EXPECT_TRUE(seen.insert(key).second) << "key 0x" << std::hex << key << " again";
    EXPECT_NE(0u, key >> 8) << "key 0 is never valid";
    regions().remove(key);
  }
}

TEST_F(MemoryRegionsTest, AStaleKeyIsRefusedForAsLongAsTagsLast) {
  const uint32_t first = *regions().add(request(0, 100));
  ASSERT_EQ(Verdict::kDone, use(first, request(0, 100)));
  regions().remove(first);
  EXPECT_EQ(Verdict::kBadKey, use(first, request(0, 100)));
  unsigned reuses = 0;
  for (int i = 0; i < 66 * 200; ++i) {
    const uint32_t key = *regions().add(request(0, 100));
    reuses += key >> 8 == first >> 8 ? 1 : 0;
    ASSERT_EQ(Verdict::kBadKey, use(first, request(0, 100))) << "after " << reuses << " reuses";
    regions().remove(key);
  }
  EXPECT_GT(reuses, 100u) << "the test doesn't test";
}

TEST_F(MemoryRegionsTest, ManyAreThereAtTheSameTime) {
  std::vector<uint32_t> keys;
  for (unsigned i = 0; i < 5000; ++i) keys.push_back(*regions().add(request(i, 10)));
  for (unsigned i = 0; i < 5000; ++i) EXPECT_EQ(Verdict::kDone, use(keys[i], request(i, 10)));
  for (unsigned i = 0; i < 5000; i += 2) regions().remove(keys[i]);
  for (unsigned i = 0; i < 5000; ++i)
    EXPECT_EQ(i % 2 == 0 ? Verdict::kBadKey : Verdict::kDone, use(keys[i], request(i, 10)));
}

TEST_F(MemoryRegionsTest, RefusesFlagsThatCantBe) {
  EXPECT_EQ(EINVAL, refused(request(0, 10, IBV_ACCESS_REMOTE_WRITE)));
  EXPECT_EQ(EINVAL, refused(request(0, 10, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ)));
  EXPECT_EQ(0, refused(request(0, 10, IBV_ACCESS_ON_DEMAND)));
  EXPECT_EQ(EINVAL, refused(request(0, 10, 1u << 15)));
  EXPECT_EQ(0, refused(request(0, 10, 0)));
  EXPECT_EQ(0, refused(request(0, 10, IBV_ACCESS_REMOTE_READ)));
  EXPECT_EQ(0, refused(request(0, 10, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING)));
}

TEST_F(MemoryRegionsTest, RefusesMemoryThatIsntThere) {
  auto* pages = static_cast<std::byte*>(
      ::mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(0, ::mprotect(pages, 4096, PROT_READ));
  ASSERT_EQ(0, ::munmap(pages + 8192, 4096));
  const auto at = [&](uint64_t offset, uint64_t length, unsigned access) {
    const uint64_t address = reinterpret_cast<uint64_t>(pages) + offset;
    return refused({address, length, address, 1, access});
  };
  EXPECT_EQ(0, at(0, 8192, IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(EFAULT, at(0, 8192, IBV_ACCESS_LOCAL_WRITE)) << "its first page can't be written";
  EXPECT_EQ(0, at(4096, 4096, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(EFAULT, at(8191, 2, IBV_ACCESS_REMOTE_READ)) << "nothing is behind its second page";
  EXPECT_EQ(EINVAL, refused({UINT64_MAX - 10, 100, 0, 1, 0})) << "wraps around";
  ::munmap(pages, 8192);
}

TEST_F(MemoryRegionsTest, ChangeKeepsTheKeyAndChangesWhatTheMaskSays) {
  const uint32_t key = *regions().add(request(0, 100));
  const auto moved = request(1000, 50);
  ASSERT_TRUE(regions().change(key, IBV_REREG_MR_CHANGE_TRANSLATION, moved));
  EXPECT_EQ(Verdict::kDone, use(key, moved));
  EXPECT_EQ(Verdict::kBadBounds, use(key, request(0, 100)));
  RegionRequest access = moved;
  access.access = IBV_ACCESS_REMOTE_READ;
  ASSERT_TRUE(regions().change(key, IBV_REREG_MR_CHANGE_ACCESS, access));
  EXPECT_EQ(Verdict::kNoAccess, use(key, moved));
  EXPECT_EQ(Verdict::kDone, use(key, moved, IBV_ACCESS_REMOTE_READ));
  RegionRequest domain = moved;
  domain.domain = 2;
  ASSERT_TRUE(regions().change(key, IBV_REREG_MR_CHANGE_PD, domain));
  EXPECT_EQ(Verdict::kWrongDomain, use(key, moved, IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(Verdict::kDone, use(key, domain, IBV_ACCESS_REMOTE_READ));
}

TEST_F(MemoryRegionsTest, AChangeThatIsRefusedChangesNothing) {
  const uint32_t key = *regions().add(request(0, 100));
  RegionRequest bad = request(0, 100);
  bad.access = IBV_ACCESS_REMOTE_WRITE;
  EXPECT_FALSE(regions().change(key, IBV_REREG_MR_CHANGE_ACCESS, bad));
  bad = {16, 100, 16, 1, kAnyRemote};
  EXPECT_FALSE(regions().change(key, IBV_REREG_MR_CHANGE_TRANSLATION, bad));
  EXPECT_EQ(Verdict::kDone, use(key, request(0, 100)));
}

// ---- Accesses in flight (DESIGN 2.3, Deregistration) ----

// Runs in a thread of its own; `done` once it has returned.
struct Waiter {
  explicit Waiter(std::function<void()> what)
      : thread([this, what] {
          what();
          done = true;
        }) {}
  [[nodiscard]] bool waits() const {
    for (int i = 0; i < 50 && !done; ++i) std::this_thread::sleep_for(milliseconds(1));
    return !done;
  }
  std::atomic<bool> done = false;
  std::jthread thread;
};

TEST_F(MemoryRegionsTest, RemoveWaitsForAnAccess) {
  const uint32_t key = *regions().add(request(0, 100));
  const uint32_t other = *regions().add(request(0, 100));
  const auto peer = owner_.seen_from(kRequesterSlot);
  auto guard = std::make_unique<HazardGuard>(*peer, kRequesterSlot);
  ASSERT_TRUE(guard->add(key));
  guard->seal();
  regions().remove(other);  // isn't concerned
  Waiter waiter([&] { regions().remove(key); });
  EXPECT_TRUE(waiter.waits());
  EXPECT_EQ(Verdict::kBadKey, use(key, request(0, 100))) << "nobody begins a new one meanwhile";
  guard.reset();
  waiter.thread.join();
  EXPECT_TRUE(waiter.done);
}

TEST_F(MemoryRegionsTest, RemoveGoesOnWhenTheHolderIsDead) {
  std::atomic<bool> alive = true;
  regions().set_liveness([&](base::Slot slot) { return slot != kRequesterSlot || alive; });
  const uint32_t key = *regions().add(request(0, 100));
  const auto peer = owner_.seen_from(kRequesterSlot);
  HazardGuard killed_inside(*peer, kRequesterSlot);  // never given back
  ASSERT_TRUE(killed_inside.add(key));
  Waiter waiter([&] { regions().remove(key); });
  EXPECT_TRUE(waiter.waits());
  alive = false;
  waiter.thread.join();
}

TEST_F(MemoryRegionsTest, AHolderThatLiesAboutManyRegionsDelaysOnlyThose) {
  const auto peer = owner_.seen_from(kRequesterSlot);
  std::vector<uint32_t> keys;
  for (int i = 0; i < 200; ++i) keys.push_back(*regions().add(request(0, 100)));
  HazardGuard guard(*peer, kRequesterSlot);
  unsigned held = 0;
  while (guard.add(keys[held])) ++held;
  EXPECT_EQ(arena::kHazardsPerLane, held);
  for (unsigned i = held; i < keys.size(); ++i) regions().remove(keys[i]);
}

TEST_F(MemoryRegionsTest, ChangeWaitsTooButOthersRegisterMeanwhile) {
  const uint32_t key = *regions().add(request(0, 100));
  const auto peer = owner_.seen_from(kRequesterSlot);
  auto guard = std::make_unique<HazardGuard>(*peer, kRequesterSlot);
  ASSERT_TRUE(guard->add(key));
  Waiter changes(
      [&] { EXPECT_TRUE(regions().change(key, IBV_REREG_MR_CHANGE_TRANSLATION, request(1000, 10))); });
  EXPECT_TRUE(changes.waits());
  // A stopped process delays only what it is connected to.
  Waiter adds([&] { EXPECT_TRUE(regions().add(request(0, 100))); });
  EXPECT_FALSE(adds.waits());
  guard.reset();
  changes.thread.join();
  adds.thread.join();
  EXPECT_EQ(Verdict::kDone, use(key, request(1000, 10)));
}

TEST_F(MemoryRegionsTest, AnAccessNeverSeesHalfOfAChange) {
  const uint32_t key = *regions().add(request(0, 64));
  std::atomic<bool> stop = false;
  const uint64_t base = request(0, 0).address;
  std::jthread changes([&] {
    for (uint64_t i = 1; i <= 300; ++i)
      EXPECT_TRUE(regions().change(key, IBV_REREG_MR_CHANGE_TRANSLATION,
                                   {base + i * 64, i, i * 4096, 1, kAnyRemote}));
    stop = true;
  });
  while (!stop) {
    for (uint64_t i = 1; i <= 300; ++i) {
      Region found;
      if (check_key(owner_.own_arena(), {key, i * 4096, i, 1, 0}, found) == Verdict::kDone) {
        EXPECT_EQ(base + i * 64, found.address);
      }
    }
  }
}

TEST_F(MemoryRegionsTest, LanesAreEnoughForNestedAccesses) {
  // A queue pair connected to one of its own process guards its memory twice: as requester and as target.
  constexpr unsigned kEach = arena::kHazardLanes / 2;
  const auto self = owner_.seen_from(kOwnerSlot);
  std::atomic<unsigned> inside = 0;
  std::atomic<bool> give_up = false;
  std::vector<std::jthread> threads;
  std::atomic<unsigned> done = 0;
  for (unsigned i = 0; i < kEach; ++i)
    threads.emplace_back([&] {
      const HazardGuard as_requester(*self, kOwnerSlot, AccessSide::kRequester);
      ++inside;
      while (inside < kEach && !give_up) std::this_thread::yield();
      if (give_up) return;
      const HazardGuard as_target(*self, kOwnerSlot);
      ++done;
    });
  for (int i = 0; i < 2000 && done < kEach; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(kEach, done) << "they wait for each other for ever";
  for (unsigned lane = 0; done < kEach; ++lane) {  // let them out
    self->release_lane(lane % kEach);
    std::this_thread::yield();
  }
}

}  // namespace
}  // namespace verbena::verbs
