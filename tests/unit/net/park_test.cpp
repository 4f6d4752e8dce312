#include "net/park.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <span>

#include "packets.hpp"

namespace verbena::net {
namespace {

using Fds = std::vector<base::UniqueFd>;

base::UniqueFd make_registry() { return base::UniqueFd(::memfd_create("registry", MFD_CLOEXEC)); }

std::vector<ino_t> files_of(const Fds& fds) {
  std::vector<ino_t> files;
  for (const auto& fd : fds) {
    struct stat st {};
    EXPECT_EQ(0, ::fstat(fd.get(), &st));
    files.push_back(st.st_ino);
  }
  return files;
}

Fds group_of(Fds parked) {
  parked.erase(parked.begin());
  return parked;
}

TEST(Park, KeepsRegistryAndGroupInOrderHoweverOftenOneLooks) {
  const auto registry = make_registry();
  const auto group = *create_group();
  const auto park = *create_park(registry.get(), group);
  Fds all;
  all.emplace_back(::dup(registry.get()));
  for (const auto& socket : group) all.emplace_back(::dup(socket.get()));
  for (int i = 0; i < 3; ++i) {
    const auto parked = look_into_park(park.get());
    ASSERT_TRUE(parked) << parked.error().sentence;
    EXPECT_EQ(files_of(all), files_of(*parked));
    for (const auto& fd : *parked) EXPECT_TRUE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  }
}

TEST(Park, SteeringHoldsAfterAllOriginalsAreClosed) {
  auto group = *create_group();
  const auto park = *create_park(make_registry().get(), group);
  group.clear();
  const auto first = group_of(*look_into_park(park.get()));
  expect_steered(first);
  const auto second = group_of(*look_into_park(park.get()));
  expect_steered(second);
}

TEST(Park, PacketsForSocketsThatOnlyItHoldsWait) {
  auto group = *create_group();
  const auto park = *create_park(make_registry().get(), group);
  group.clear();
  const auto sender = connect_to_port(AF_INET6);
  send_packet(sender.get(), packet_for(99));
  const auto revived = group_of(*look_into_park(park.get()));
  EXPECT_EQ((std::map<size_t, std::vector<std::string>>{{99, {packet_for(99)}}}), arrivals(revived, 1));
}

TEST(Park, AnyCopyOfItIsAsGood) {
  auto group = *create_group();
  auto park = *create_park(make_registry().get(), group);
  group.clear();
  const base::UniqueFd copy(::dup(park.get()));
  park.reset();
  expect_steered(group_of(*look_into_park(copy.get())));
}

TEST(Park, GivesThePortFreeWithItsLastCopy) {
  auto group = *create_group();
  auto park = *create_park(make_registry().get(), group);
  group.clear();
  EXPECT_EQ(EADDRINUSE, create_group().error().code);
  park.reset();
  EXPECT_TRUE(support::eventually([] { return create_group().has_value(); }));
}

TEST(Park, HoldsARegistryAlone) {
  const auto park = *create_park(make_registry().get(), {});
  EXPECT_EQ(1u, look_into_park(park.get())->size());
}

TEST(Park, RefusesWhatCannotBeSent) {
  const size_t before = open_descriptors();
  EXPECT_EQ(EBADF, create_park(-1, {}).error().code);
  EXPECT_EQ(before, open_descriptors());
}

// A packet in a socketpair with these bytes and descriptors.
base::UniqueFd forged_park(const std::string& bytes, size_t descriptors) {
  int ends[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  const base::UniqueFd sender(ends[0]);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 253)]{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptors > 0) {
    const std::vector<int> fds(descriptors, sender.get());
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), descriptors * sizeof(int));
  }
  EXPECT_EQ(static_cast<ssize_t>(bytes.size()), ::sendmsg(sender.get(), &header, MSG_NOSIGNAL));
  return base::UniqueFd(ends[1]);
}

void expect_no_park(int fd, const char* what) {
  const size_t before = open_descriptors();
  const auto parked = look_into_park(fd);
  ASSERT_FALSE(parked) << what;
  EXPECT_EQ(EPROTO, parked.error().code) << what;
  EXPECT_EQ(before, open_descriptors()) << what;
}

TEST(Park, OtherSocketsAndFilesAreNone) {
  expect_no_park(-1, "nothing");
  expect_no_park(make_registry().get(), "a file");
  expect_no_park(udp_socket(AF_INET).get(), "a UDP socket");
  int ends[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  const base::UniqueFd one(ends[0]);
  base::UniqueFd other(ends[1]);
  expect_no_park(one.get(), "an empty connection");
  other.reset();
  expect_no_park(one.get(), "a closed connection");
}

TEST(Park, PacketsOfAnotherShapeAreNone) {
  expect_no_park(forged_park("P", 0).get(), "no descriptors");
  expect_no_park(forged_park("Q", 1).get(), "another mark");
  expect_no_park(forged_park("P", 2).get(), "two descriptors");
  expect_no_park(forged_park("P", base::kSteeredSlots).get(), "a group without a registry");
  expect_no_park(forged_park("P", 253).get(), "one too many");
}

TEST(Park, LookingAtSomebodysMessageLeavesItWhole) {
  const auto message = forged_park("hello", 3);
  expect_no_park(message.get(), "a message of five bytes");
  char buffer[16];
  EXPECT_EQ(5, ::recv(message.get(), buffer, sizeof buffer, MSG_DONTWAIT));
}

TEST(Park, HalfAGroupIsNone) {
  const auto group = *create_group();
  const auto park = *create_park(make_registry().get(), group);
  rlimit limit{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &limit));
  // UBSan looks at a type with the help of a pipe, once: let it, while there are descriptors.
  expect_no_park(-1, "nothing");
  const rlimit low{open_descriptors() + 100, limit.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &low));
  expect_no_park(park.get(), "a park that a descriptor limit cuts");
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &limit));
  EXPECT_TRUE(look_into_park(park.get()));
}

}  // namespace
}  // namespace verbena::net
