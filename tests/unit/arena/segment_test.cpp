#include "arena/segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstring>

namespace verbena::arena {
namespace {

constexpr size_t kSize = 8192;
constexpr size_t kLimit = 1 << 20;

Segment make(Sharing sharing) {
  auto segment = create_sealed("test", kSize, sharing);
  EXPECT_TRUE(segment);
  return std::move(*segment);
}

base::UniqueFd memfd(size_t size, int seals) {
  base::UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(0, ::ftruncate(fd.get(), static_cast<off_t>(size)));
  EXPECT_EQ(0, ::fcntl(fd.get(), F_ADD_SEALS, seals));
  return fd;
}

TEST(Segment, OfTablesIsReadOnlyForEverybodyButItsOwner) {
  const Segment tables = make(Sharing::kOwnerWrites);
  const auto peer = map(tables.fd.get(), kSize, Access::kRead);
  ASSERT_TRUE(peer);
  std::memcpy(tables.mapping.data(), "seen", 5);
  EXPECT_STREQ("seen", reinterpret_cast<const char*>(peer->data()));

  const auto writer = map(tables.fd.get(), kSize, Access::kReadWrite);
  ASSERT_FALSE(writer);
  EXPECT_EQ(EPERM, writer.error().code);
  EXPECT_EQ(-1, ::pwrite(tables.fd.get(), "x", 1, 0));
  EXPECT_NE(0, ::mprotect(peer->data(), kSize, PROT_READ | PROT_WRITE));
}

TEST(Segment, OfTablesStaysReadOnlyWhenOpenedAnew) {
  const Segment tables = make(Sharing::kOwnerWrites);
  const std::string path = "/proc/self/fd/" + std::to_string(tables.fd.get());
  const base::UniqueFd anew(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(anew);
  EXPECT_FALSE(map(anew.get(), kSize, Access::kReadWrite));
}

TEST(Segment, OfRingsIsWrittenByPeers) {
  const Segment rings = make(Sharing::kPeersWrite);
  const auto peer = map(rings.fd.get(), kSize, Access::kReadWrite);
  ASSERT_TRUE(peer);
  std::memcpy(peer->data() + kSize - 5, "rung", 5);
  EXPECT_STREQ("rung", reinterpret_cast<const char*>(rings.mapping.data() + kSize - 5));
}

TEST(Segment, KeepsItsSizeAndItsSeals) {
  for (const Sharing sharing : {Sharing::kOwnerWrites, Sharing::kPeersWrite}) {
    const Segment segment = make(sharing);
    EXPECT_EQ(kSize, segment.mapping.size());
    EXPECT_EQ(-1, ::ftruncate(segment.fd.get(), 0));
    EXPECT_EQ(EPERM, errno);
    EXPECT_EQ(-1, ::ftruncate(segment.fd.get(), kSize * 2));
    EXPECT_EQ(EPERM, errno);
    EXPECT_EQ(-1, ::fcntl(segment.fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
    EXPECT_EQ(EPERM, errno);
  }
}

TEST(Segment, IsCloseOnExec) {
  EXPECT_TRUE(::fcntl(make(Sharing::kPeersWrite).fd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(Segment, IsNotMappedInAChild) {
  const Segment segment = make(Sharing::kPeersWrite);
  std::byte* const data = segment.mapping.data();
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char resident[2]{};
    ::_exit(::mincore(data, kSize, resident) != 0 && errno == ENOMEM ? 0
                                                                     : 1);  // ENOMEM: nothing mapped there
  }
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST(Mapping, MovedFromHoldsNothingAndForgottenOnesStayMapped) {
  Segment segment = make(Sharing::kPeersWrite);
  std::byte* const data = segment.mapping.data();
  Mapping moved(std::move(segment.mapping));
  EXPECT_FALSE(segment.mapping);
  EXPECT_EQ(data, moved.data());
  moved.forget();
  EXPECT_FALSE(moved);
  data[0] = std::byte{1};  // still there
  EXPECT_EQ(0, ::munmap(data, kSize));
}

TEST(CheckSealed, GivesTheSizeOfAProperSegment) {
  const Segment tables = make(Sharing::kOwnerWrites);
  const Segment rings = make(Sharing::kPeersWrite);
  EXPECT_EQ(kSize, *check_sealed(tables.fd.get(), Sharing::kOwnerWrites, kLimit));
  EXPECT_EQ(kSize, *check_sealed(rings.fd.get(), Sharing::kPeersWrite, kLimit));
}

TEST(CheckSealed, RefusesRingsWhereTablesArePromised) {
  const Segment rings = make(Sharing::kPeersWrite);
  EXPECT_EQ(EPERM, check_sealed(rings.fd.get(), Sharing::kOwnerWrites, kLimit).error().code);
}

TEST(CheckSealed, RefusesWhatLacksASeal) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_FUTURE_WRITE}) {
    const auto fd = memfd(kSize, seals);
    for (const Sharing sharing : {Sharing::kOwnerWrites, Sharing::kPeersWrite}) {
      const auto checked = check_sealed(fd.get(), sharing, kLimit);
      ASSERT_FALSE(checked) << seals;
      EXPECT_EQ(EPERM, checked.error().code);
    }
  }
}

TEST(CheckSealed, RefusesWhatIsNoMemfd) {
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const base::UniqueFd reader(ends[0]);
  const base::UniqueFd writer(ends[1]);
  const base::UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(check_sealed(reader.get(), Sharing::kPeersWrite, kLimit));
  EXPECT_FALSE(check_sealed(file.get(), Sharing::kPeersWrite, kLimit));
  EXPECT_EQ(EBADF, check_sealed(-1, Sharing::kPeersWrite, kLimit).error().code);
}

TEST(CheckSealed, AcceptsUpToTheLimitAndNothingEmpty) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const auto size_ok = [](size_t size) {
    return check_sealed(memfd(size, kSeals).get(), Sharing::kPeersWrite, kLimit);
  };
  EXPECT_EQ(kLimit, *size_ok(kLimit));
  EXPECT_EQ(EINVAL, size_ok(kLimit + 1).error().code);
  EXPECT_EQ(EINVAL, size_ok(0).error().code);
}

}  // namespace
}  // namespace verbena::arena
