#include "verbs/address_space.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/unique_fd.hpp"

namespace verbena::verbs {
namespace {

constexpr size_t kPage = 4096;

uint64_t address_of(const void* data) { return reinterpret_cast<uintptr_t>(data); }

std::byte* map(size_t pages, int flags, int fd = -1, size_t first_page = 0,
               int protection = PROT_READ | PROT_WRITE) {
  void* data = ::mmap(nullptr, pages * kPage, protection, flags, fd, static_cast<off_t>(first_page * kPage));
  EXPECT_NE(MAP_FAILED, data) << std::strerror(errno);
  return static_cast<std::byte*>(data);
}

base::UniqueFd make_memfd(size_t pages) {
  base::UniqueFd fd(::memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(0, ::ftruncate(fd.get(), static_cast<off_t>(pages * kPage)));
  return fd;
}

TEST(InspectRange, KnowsPrivateMemory) {
  std::vector<char> heap(100'000);
  int local = 0;
  static const int constant = 1;
  EXPECT_FALSE(inspect_range(address_of(heap.data()), heap.size(), true)->mappable());
  EXPECT_FALSE(inspect_range(address_of(&local), sizeof local, true)->mappable());
  EXPECT_FALSE(inspect_range(address_of(&constant), sizeof constant, false)->mappable());
  const std::byte* huge = map(1 << 18, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  EXPECT_TRUE(inspect_range(address_of(huge), size_t{1} << 30, true));
}

TEST(InspectRange, NamesTheHole) {
  std::byte* area = map(4, MAP_PRIVATE | MAP_ANONYMOUS);
  ASSERT_EQ(0, ::munmap(area + 2 * kPage, kPage));
  EXPECT_TRUE(inspect_range(address_of(area) + 5, 2 * kPage - 5, true));
  const auto refused = inspect_range(address_of(area) + 5, 3 * kPage, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(EFAULT, refused.error().code);
  char hole[32];
  std::snprintf(hole, sizeof hole, "%p", static_cast<void*>(area + 2 * kPage));
  EXPECT_NE(std::string::npos, refused.error().sentence.find(std::string("nothing is mapped at ") + hole))
      << refused.error().sentence;
  EXPECT_EQ(EFAULT, inspect_range(address_of(area) + 2 * kPage, 1, false).error().code);
  EXPECT_EQ(EFAULT, inspect_range(0, 1, false).error().code);
  EXPECT_EQ(EFAULT, inspect_range(uint64_t{1} << 63, 8, false).error().code);
}

TEST(InspectRange, NamesThePieceThatIsntWritable) {
  std::byte* area = map(4, MAP_PRIVATE | MAP_ANONYMOUS);
  ASSERT_EQ(0, ::mprotect(area + 2 * kPage, kPage, PROT_READ));
  EXPECT_TRUE(inspect_range(address_of(area), 4 * kPage, false));
  const auto refused = inspect_range(address_of(area), 4 * kPage, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(EFAULT, refused.error().code);
  EXPECT_NE(std::string::npos, refused.error().sentence.find("isn't writable")) << refused.error().sentence;
  ASSERT_EQ(0, ::mprotect(area, kPage, PROT_NONE));
  EXPECT_EQ(EFAULT, inspect_range(address_of(area), 8, false).error().code);
}

TEST(InspectRange, AnswersTheEdgesAsTheKernelDoes) {
  EXPECT_TRUE(inspect_range(0, 0, true));
  EXPECT_TRUE(inspect_range(UINT64_MAX, 0, true));
  EXPECT_EQ(EINVAL, inspect_range(UINT64_MAX - 10, 100, true).error().code);
  EXPECT_EQ(EINVAL, inspect_range(UINT64_MAX - 10, 5, true).error().code);  // wraps once rounded to a page
  EXPECT_EQ(EINVAL, inspect_range(0x1000, UINT64_MAX, true).error().code);
}

TEST(InspectRange, FindsTheFileBehindSharedMemory) {
  const base::UniqueFd fd = make_memfd(8);
  std::byte* area = map(4, MAP_SHARED, fd.get(), 2);
  ASSERT_EQ(0, ::madvise(area + kPage, kPage, MADV_DONTFORK));  // three mappings now, still one piece
  const auto backing = inspect_range(address_of(area) + 100, 3 * kPage, true);
  ASSERT_TRUE(backing);
  EXPECT_EQ(fd.get(), backing->fd);
  EXPECT_EQ(2 * kPage + 100, backing->offset);
  EXPECT_FALSE(backing->fixed_size);
  struct stat st {};
  ASSERT_EQ(0, ::fstat(fd.get(), &st));
  EXPECT_EQ(st.st_dev, backing->device);
  EXPECT_EQ(st.st_ino, backing->inode);

  ASSERT_EQ(0, ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK));
  EXPECT_TRUE(inspect_range(address_of(area), kPage, true)->fixed_size);
}

TEST(InspectRange, OffersOnlyWhatAPeerCanMap) {
  base::UniqueFd fd = make_memfd(8);
  std::byte* area = map(8, MAP_SHARED, fd.get());
  EXPECT_TRUE(inspect_range(address_of(area), 8 * kPage, true)->mappable());
  // A second file amid the first; the same file in the wrong order.
  std::byte* mixed = map(4, MAP_PRIVATE | MAP_ANONYMOUS);
  for (const size_t page : {0, 2, 1, 3})
    ASSERT_EQ(mixed + page * kPage,
              ::mmap(mixed + page * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(),
                     static_cast<off_t>(kPage * (3 - page))));
  EXPECT_FALSE(inspect_range(address_of(mixed), 4 * kPage, true)->mappable());
  EXPECT_TRUE(inspect_range(address_of(mixed) + kPage, kPage, true)->mappable());

  EXPECT_FALSE(inspect_range(address_of(map(8, MAP_PRIVATE, fd.get())), kPage, true)->mappable());
  EXPECT_FALSE(inspect_range(address_of(map(8, MAP_SHARED | MAP_ANONYMOUS)), kPage, true)->mappable());

  const base::UniqueFd read_only(
      ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  fd.reset();
  EXPECT_FALSE(inspect_range(address_of(area), kPage, true)->mappable());

  const base::UniqueFd sealed = make_memfd(1);
  const std::byte* before = map(1, MAP_SHARED, sealed.get());
  ASSERT_EQ(0, ::fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
  EXPECT_FALSE(inspect_range(address_of(before), kPage, true)->mappable());
}

TEST(InspectRange, RefusesWhatLiesPastTheFilesEnd) {
  const base::UniqueFd fd = make_memfd(2);
  const std::byte* area = map(4, MAP_SHARED, fd.get());
  EXPECT_TRUE(inspect_range(address_of(area), 2 * kPage, true));
  EXPECT_EQ(EFAULT, inspect_range(address_of(area), 2 * kPage + 1, true).error().code);
}

TEST(InspectRange, CopesWithLongNamesAndManyMappings) {
  std::byte* area = map(2000, MAP_PRIVATE | MAP_ANONYMOUS);
  for (size_t page = 0; page < 2000; page += 2)
    ASSERT_EQ(0, ::mprotect(area + page * kPage, kPage, PROT_READ));
  const base::UniqueFd fd(::memfd_create(std::string(240, 'n').c_str(), MFD_CLOEXEC));
  ASSERT_EQ(0, ::ftruncate(fd.get(), 64 * kPage));
  for (int i = 0; i < 64; ++i) map(1, MAP_SHARED, fd.get(), static_cast<size_t>(i));
  EXPECT_TRUE(inspect_range(address_of(area), 2000 * kPage, false));
  EXPECT_EQ(EFAULT, inspect_range(address_of(area) + 1997 * kPage, 2 * kPage, true).error().code);
  ::munmap(area, 2000 * kPage);
}

// A child with a memfd of its own that it fills with 'c' and describes to us.
class Owner {
 public:
  Owner() {
    int ends[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    socket_.reset(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) serve(ends[1]);
    ::close(ends[1]);
    EXPECT_EQ(ssize_t{sizeof backing_}, ::read(socket_.get(), &backing_, sizeof backing_));
  }
  ~Owner() { end(); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const Backing& backing() const { return backing_; }
  // Returns a byte of its memory; before that closes its descriptor (x), puts another file in its place (o),
  // or cuts the file (t).
  char ask(char what) {
    char answer = 0;
    EXPECT_EQ(1, ::write(socket_.get(), &what, 1));
    EXPECT_EQ(1, ::read(socket_.get(), &answer, 1));
    return answer;
  }
  void end() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  [[noreturn]] static void serve(int socket) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    base::UniqueFd fd = make_memfd(4);
    std::byte* area = map(4, MAP_SHARED, fd.get());
    std::memset(area, 'c', 4 * kPage);
    const auto backing = inspect_range(address_of(area) + kPage + 10, 2 * kPage, true);
    if (!backing || ::write(socket, &*backing, sizeof *backing) != sizeof *backing) ::_exit(1);
    for (char byte = 0; ::read(socket, &byte, 1) == 1;) {
      if (byte == 'x') fd.reset();
      if (byte == 'o') ::dup2(2, fd.get());
      if (byte == 't' && ::ftruncate(fd.get(), kPage) != 0) ::_exit(1);
      const char answer = byte == 't' ? 't' : static_cast<char>(area[kPage + 10]);
      if (::write(socket, &answer, 1) != 1) break;
    }
    ::_exit(0);
  }

  base::UniqueFd socket_;
  pid_t pid_ = 0;
  Backing backing_;
};

TEST(MapPeerFile, SharesTheOwnersMemory) {
  Owner owner;
  auto mapping = map_peer_file(owner.pid(), owner.backing(), 2 * kPage);
  ASSERT_TRUE(mapping) << mapping.error().sentence;
  EXPECT_EQ(2 * kPage, mapping->size());
  EXPECT_EQ(std::byte{'c'}, mapping->data()[0]);
  EXPECT_EQ(std::byte{'c'}, mapping->data()[2 * kPage - 1]);
  mapping->data()[0] = std::byte{'p'};
  EXPECT_EQ('p', owner.ask('?'));

  const PeerMapping moved = std::move(*mapping);
  EXPECT_EQ(nullptr, mapping->data());
  EXPECT_EQ('x', (moved.data()[0] = std::byte{'x'}, owner.ask('?')));
  owner.end();  // the memory stays as long as somebody maps it
  EXPECT_EQ(std::byte{'x'}, moved.data()[0]);
}

TEST(MapPeerFile, TrustsNoNumber) {
  Owner owner;
  Backing other = owner.backing();
  ++other.inode;
  EXPECT_EQ(ESTALE, map_peer_file(owner.pid(), other, kPage).error().code);
  other = owner.backing();
  other.fd = 1000;
  EXPECT_EQ(ESTALE, map_peer_file(owner.pid(), other, kPage).error().code);
  EXPECT_EQ(EINVAL, map_peer_file(owner.pid(), Backing{}, kPage).error().code);
  EXPECT_EQ(EFAULT, map_peer_file(owner.pid(), owner.backing(), 3 * kPage).error().code);
  EXPECT_EQ(EFAULT, map_peer_file(owner.pid(), owner.backing(), UINT64_MAX).error().code);
  owner.ask('o');
  EXPECT_EQ(ESTALE, map_peer_file(owner.pid(), owner.backing(), kPage).error().code);
  owner.ask('x');
  EXPECT_EQ(ESTALE, map_peer_file(owner.pid(), owner.backing(), kPage).error().code);
  const pid_t gone = owner.pid();
  owner.end();
  EXPECT_EQ(ESTALE, map_peer_file(gone, owner.backing(), kPage).error().code);
}

TEST(MapPeerFile, RefusesAFileThatWasCutOff) {
  Owner owner;
  owner.ask('t');
  EXPECT_EQ(EFAULT, map_peer_file(owner.pid(), owner.backing(), kPage).error().code);
}

TEST(MapPeerFile, MapsHugePages) {
  constexpr size_t kHuge = 2 << 20;
  const base::UniqueFd fd(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (!fd || ::ftruncate(fd.get(), kHuge) != 0) GTEST_SKIP() << "this kernel has no huge pages";
  void* area = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (area == MAP_FAILED) GTEST_SKIP() << "no huge page is free";
  const auto backing = inspect_range(address_of(area) + 5000, 100, true);
  ASSERT_TRUE(backing && backing->mappable());
  static_cast<char*>(area)[5000] = 'h';
  const auto mapping = map_peer_file(::getpid(), *backing, 100);
  ASSERT_TRUE(mapping) << mapping.error().sentence;
  EXPECT_EQ(std::byte{'h'}, mapping->data()[0]);
}

}  // namespace
}  // namespace verbena::verbs
