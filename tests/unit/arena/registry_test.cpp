#include "arena/registry.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <set>

namespace verbena::arena {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A file as large as a registry (or not), with a head.
base::UniqueFd forged(off_t size, int seals, uint64_t magic, uint32_t layout) {
  base::UniqueFd fd(::memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(0, ::ftruncate(fd.get(), size));
  EXPECT_EQ(8, ::pwrite(fd.get(), &magic, 8, 0));
  EXPECT_EQ(4, ::pwrite(fd.get(), &layout, 4, 8));
  EXPECT_EQ(0, ::fcntl(fd.get(), F_ADD_SEALS, seals));
  return fd;
}

int error_of(const base::Result<Registry>& registry) { return registry ? 0 : registry.error().code; }

TEST(Registry, BeginsEmptyAndIsSeenByEveryMapping) {
  const auto made = *Registry::create("test");
  const auto reader = *Registry::open(made.first.get(), Access::kRead);
  EXPECT_EQ(0u, reader.layout().generation.load());
  for (unsigned view = 0; view < kMaxViews; ++view) EXPECT_FALSE(reader.read_view(view));
  for (unsigned slot = 0; slot < 256; ++slot)
    EXPECT_EQ(SlotState::kFree,
              SlotWord::unpack(reader.slot({static_cast<uint8_t>(slot)}).word.load()).state);

  made.second.count(Counter::kAttached);
  made.second.count(Counter::kAttached);
  EXPECT_EQ(2u, reader.counted(Counter::kAttached));
  EXPECT_EQ(0u, reader.counted(Counter::kDetached));
}

TEST(Registry, IsWrittenByTheNextAgentToo) {
  const auto made = *Registry::create("test");
  const auto next = *Registry::open(made.first.get(), Access::kReadWrite);
  next.count(Counter::kAgentStarts);
  EXPECT_EQ(1u, made.second.counted(Counter::kAgentStarts));
}

TEST(Registry, KeepsItsSize) {
  const auto made = *Registry::create("test");
  EXPECT_EQ(-1, ::ftruncate(made.first.get(), 4096));
  EXPECT_EQ(-1, ::ftruncate(made.first.get(), sizeof(RegistryLayout) + 1));
  EXPECT_EQ(-1, ::fcntl(made.first.get(), F_ADD_SEALS, F_SEAL_WRITE));
}

TEST(Registry, CantBeMappedForWritingThroughAReadOnlyDescriptor) {
  const auto made = *Registry::create("test");
  const std::string path = "/proc/self/fd/" + std::to_string(made.first.get());
  const base::UniqueFd readonly(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(0, error_of(Registry::open(readonly.get(), Access::kRead)));
  EXPECT_EQ(EACCES, error_of(Registry::open(readonly.get(), Access::kReadWrite)));
}

TEST(Registry, RefusesWhatIsNotOne) {
  constexpr off_t kSize = sizeof(RegistryLayout);
  struct Case {
    const char* what;
    off_t size;
    int seals;
    uint64_t magic;
    uint32_t layout;
    int error;
  };
  const Case cases[] = {
      {"as it should be", kSize, kSizeSeals, kRegistryMagic, kRegistryLayout, 0},
      {"one byte short", kSize - 1, kSizeSeals, kRegistryMagic, kRegistryLayout, EPROTO},
      {"one byte long", kSize + 1, kSizeSeals, kRegistryMagic, kRegistryLayout, EPROTO},
      {"a page", 4096, kSizeSeals, kRegistryMagic, kRegistryLayout, EPROTO},
      {"unsealed", kSize, 0, kRegistryMagic, kRegistryLayout, EPROTO},
      {"may shrink", kSize, F_SEAL_GROW, kRegistryMagic, kRegistryLayout, EPROTO},
      {"not yet whole", kSize, kSizeSeals, 0, kRegistryLayout, EPROTO},
      {"another magic", kSize, kSizeSeals, kRegistryMagic + 1, kRegistryLayout, EPROTO},
      {"another layout", kSize, kSizeSeals, kRegistryMagic, kRegistryLayout + 1, EPROTO},
  };
  for (const auto& c : cases) {
    const auto fd = forged(c.size, c.seals, c.magic, c.layout);
    EXPECT_EQ(c.error, error_of(Registry::open(fd.get(), Access::kRead))) << c.what;
    EXPECT_EQ(c.error, error_of(Registry::open(fd.get(), Access::kReadWrite))) << c.what;
  }
}

TEST(Registry, RefusesAPipe) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  EXPECT_EQ(EPROTO, error_of(Registry::open(ends[0], Access::kRead)));
  EXPECT_EQ(EBADF, error_of(Registry::open(-1, Access::kRead)));
  for (const int end : ends) ::close(end);
}

TEST(SlotWord, PacksIntoOneWordAndBack) {
  const SlotWord words[] = {{SlotState::kFree, 0, 0},
                            {SlotState::kActive, 1, 4711},
                            {SlotState::kQuarantined, 0xffffff, 0},
                            {SlotState::kLeased, 0xabcdef, 0xffffffff}};
  for (const auto& word : words) {
    const SlotWord back = SlotWord::unpack(word.pack());
    EXPECT_EQ(word.state, back.state);
    EXPECT_EQ(word.epoch, back.epoch);
    EXPECT_EQ(word.pid, back.pid);
  }
  EXPECT_EQ(0u, SlotWord{}.pack());  // a fresh registry is all zeros
}

TEST(SlotWord, AnEpochPast24BitsDoesNotReachTheState) {
  const SlotWord back = SlotWord::unpack(SlotWord{SlotState::kActive, 0x1000000, 7}.pack());
  EXPECT_EQ(SlotState::kActive, back.state);
  EXPECT_EQ(0u, back.epoch);
  EXPECT_EQ(7u, back.pid);
}

TEST(Counter, NamesAreDistinctAndKnown) {
  std::set<std::string_view> names;
  for (uint32_t i = 0; i < static_cast<uint32_t>(Counter::kCount); ++i) {
    const auto name = counter_name(static_cast<Counter>(i));
    EXPECT_NE("unknown", name) << i;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_LE(names.size(), std::size(RegistryLayout{}.counters));
  EXPECT_EQ("unknown", counter_name(Counter::kCount));
}

}  // namespace
}  // namespace verbena::arena
