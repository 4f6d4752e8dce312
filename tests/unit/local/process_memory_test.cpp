#include "local/process_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"

namespace verbena::local {
namespace {

using engine::Copied;
using engine::Tail;

constexpr size_t kPage = 4096;

std::byte* map_pages(size_t pages, int sharing = MAP_PRIVATE, int protection = PROT_READ | PROT_WRITE) {
  void* data = ::mmap(nullptr, pages * kPage, protection, sharing | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(MAP_FAILED, data);
  return static_cast<std::byte*>(data);
}

// A forked child that does what `handler` says when asked, and has handed over its memory file.
class Peer {
 public:
  using Handler = std::function<char(char)>;

  explicit Peer(Handler handler = [](char) { return 'y'; }) {
    int ends[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    base::UniqueFd far(ends[1]);
    socket_.reset(ends[0]);
    pid_ = ::fork();
    if (pid_ == 0) serve(far.get(), handler);
    far.reset();
    receive_memory();
  }
  ~Peer() { kill(); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] base::UniqueFd memory() const { return base::UniqueFd(::dup(memory_.get())); }
  // 0: it ended, or it called exec.
  char ask(char what) {
    char answer = 0;
    tell(what);
    return ::read(socket_.get(), &answer, 1) == 1 ? answer : '\0';
  }
  // Without waiting for an answer.
  void tell(char what) { EXPECT_EQ(1, ::write(socket_.get(), &what, 1)); }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  [[noreturn]] static void serve(int socket, const Handler& handler) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (::write(socket, &fd, sizeof fd) != sizeof fd) ::_exit(1);
    char byte = 0;
    while (::read(socket, &byte, 1) == 1) {
      const char answer = handler(byte);
      if (::write(socket, &answer, 1) != 1) break;
    }
    ::_exit(0);
  }
  // As by SCM_RIGHTS: the same open file, not one that we open ourselves.
  void receive_memory() {
    int number = -1;
    ASSERT_EQ(ssize_t{sizeof number}, ::read(socket_.get(), &number, sizeof number));
    const base::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    memory_.reset(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
    ASSERT_TRUE(memory_) << std::strerror(errno);
  }

  pid_t pid_ = 0;
  base::UniqueFd socket_;
  base::UniqueFd memory_;
};

enum class Method { kBoth, kFileOnly, kPidOnly };

class ProcessMemoryTest : public testing::TestWithParam<Method> {
 protected:
  static std::unique_ptr<ProcessMemory> reach(const Peer& peer) {
    const Method method = GetParam();
    auto memory = std::make_unique<ProcessMemory>(
        peer.pid(), method == Method::kPidOnly ? base::UniqueFd() : peer.memory());
    static const int known = 0;
    if (method != Method::kFileOnly) {
      memory->probe(reinterpret_cast<uintptr_t>(&known));
      EXPECT_TRUE(memory->permitted());
    }
    return memory;
  }
};

Copied write(ProcessMemory& memory, const std::byte* here, std::byte* there, size_t size,
             Tail tail = Tail::kLast) {
  const iovec ours{const_cast<std::byte*>(here), size};
  const iovec theirs{there, size};
  return memory.write({&ours, 1}, {&theirs, 1}, tail);
}
Copied read(ProcessMemory& memory, std::byte* here, std::byte* there, size_t size, Tail tail = Tail::kLast) {
  const iovec ours{here, size};
  const iovec theirs{there, size};
  return memory.read({&ours, 1}, {&theirs, 1}, tail);
}

std::vector<std::byte> pattern(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251 + seed);
  return bytes;
}

TEST_P(ProcessMemoryTest, WritesAndReadsAnySize) {
  constexpr int kLargest = 1 << 20;
  std::byte* area = map_pages(kLargest / kPage + 1);
  Peer peer;
  const auto memory = reach(peer);
  unsigned seed = 0;
  for (const size_t size : {0, 1, 7, 8, 9, 64, 4095, 4096, 4097, 8193, 65536, kLargest})
    for (const Tail tail : {Tail::kAnyOrder, Tail::kLast})
      for (const size_t offset : {0, 61}) {
        const auto sent = pattern(size, ++seed);
        std::vector<std::byte> got(size);
        ASSERT_EQ(Copied::kAll, write(*memory, sent.data(), area + offset, size, tail));
        ASSERT_EQ(Copied::kAll, read(*memory, got.data(), area + offset, size, tail));
        ASSERT_EQ(sent, got) << size << " at " << offset;
      }
  EXPECT_EQ(std::byte{0}, area[100]);  // the peer's memory, not ours
}

TEST_P(ProcessMemoryTest, TakesManyPiecesOfUnlikeSizes) {
  std::byte* area = map_pages(64);
  Peer peer;
  const auto memory = reach(peer);
  const size_t size = 2 * IOV_MAX * 10;
  auto sent = pattern(size, 7);
  std::vector<iovec> here;
  std::vector<iovec> there;
  for (size_t done = 0; done < size; done += here.back().iov_len) {
    if (done % 3 == 0) here.push_back({nullptr, 0});
    here.push_back({&sent[done], std::min<size_t>(1 + done % 13, size - done)});
  }
  for (size_t done = 0; done < size; done += there.back().iov_len)
    there.push_back({area + done * 2, std::min<size_t>(1 + done % 11, size - done)});
  ASSERT_GT(std::min(here.size(), there.size()), size_t{IOV_MAX});
  ASSERT_EQ(Copied::kAll, memory->write(here, there, Tail::kLast));

  std::vector<std::byte> got(size);
  const iovec whole{got.data(), size};
  ASSERT_EQ(Copied::kAll, memory->read({&whole, 1}, there, Tail::kLast));
  EXPECT_EQ(sent, got);
}

TEST_P(ProcessMemoryTest, TellsAFaultThere) {
  std::byte* area = map_pages(32);
  Peer peer([area](char) { return ::munmap(area + kPage, kPage) == 0 ? 'y' : 'n'; });
  ASSERT_EQ('y', peer.ask('u'));
  const auto memory = reach(peer);
  const auto sent = pattern(20 * kPage, 1);
  std::vector<std::byte> got(sent.size());
  for (const size_t size : {size_t{100}, 20 * kPage})
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(Copied::kFaultThere, write(*memory, sent.data(), area + kPage - 50, size));
      EXPECT_EQ(Copied::kFaultThere, read(*memory, got.data(), area + kPage - 50, size));
      EXPECT_EQ(Copied::kFaultThere, write(*memory, sent.data(), area + kPage, 8));
    }
  EXPECT_EQ(Copied::kAll, read(*memory, got.data(), area + kPage - 50, 50));
  EXPECT_EQ(Copied::kFaultThere, write(*memory, sent.data(), nullptr, 8));
  EXPECT_EQ(Copied::kFaultThere, write(*memory, sent.data(), reinterpret_cast<std::byte*>(~0ull << 12), 8));
}

TEST_P(ProcessMemoryTest, TellsAFaultHere) {
  std::byte* area = map_pages(32);
  Peer peer;
  const auto memory = reach(peer);
  std::byte* ours = map_pages(32);
  ASSERT_EQ(0, ::munmap(ours + kPage, kPage));
  ASSERT_EQ(0, ::mprotect(ours + 5 * kPage, kPage, PROT_READ));
  for (const size_t size : {size_t{100}, 10 * kPage})
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(Copied::kFaultHere, write(*memory, ours + kPage - 50, area, size));
      EXPECT_EQ(Copied::kFaultHere, read(*memory, ours + kPage - 50, area, size));
      EXPECT_EQ(Copied::kFaultHere, read(*memory, ours + 5 * kPage - 50, area, size));
      EXPECT_EQ(Copied::kAll, write(*memory, ours + 5 * kPage - 50, area, size));
    }
}

TEST_P(ProcessMemoryTest, PrivatePagesTakeWritesAsPinnedOnesWould) {
  std::byte* area = map_pages(8);
  Peer peer([area](char) { return ::mprotect(area, 8 * kPage, PROT_READ) == 0 ? 'y' : 'n'; });
  ASSERT_EQ('y', peer.ask('p'));
  const auto memory = reach(peer);
  const Copied expected = GetParam() == Method::kPidOnly ? Copied::kFaultThere : Copied::kAll;
  const auto sent = pattern(6 * kPage, 3);
  for (const size_t size : {size_t{64}, size_t{64}, 6 * kPage})
    EXPECT_EQ(expected, write(*memory, sent.data(), area, size));
  std::vector<std::byte> got(sent.size());
  EXPECT_EQ(Copied::kAll, read(*memory, got.data(), area, got.size()));
  EXPECT_EQ(expected == Copied::kAll, sent == got);
}

TEST_P(ProcessMemoryTest, SharedReadOnlyPagesTakeNone) {
  std::byte* area = map_pages(8, MAP_SHARED, PROT_READ);
  Peer peer;
  const auto memory = reach(peer);
  const auto sent = pattern(6 * kPage, 3);
  for (const size_t size : {size_t{64}, size_t{64}, 6 * kPage})
    EXPECT_EQ(Copied::kFaultThere, write(*memory, sent.data(), area, size));
}

TEST_P(ProcessMemoryTest, TellsThatTheOwnerIsDead) {
  std::byte* area = map_pages(32);
  Peer peer;
  const auto memory = reach(peer);
  std::array<std::byte, 10 * kPage> ours{};
  ASSERT_EQ(Copied::kAll, write(*memory, ours.data(), area, 64));
  ::kill(peer.pid(), SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(0, ::waitid(P_PID, static_cast<id_t>(peer.pid()), &info, WEXITED | WNOWAIT));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(Copied::kOwnerGone, write(*memory, ours.data(), area, 64));
    EXPECT_EQ(Copied::kOwnerGone, write(*memory, ours.data(), area, ours.size(), Tail::kAnyOrder));
    EXPECT_EQ(Copied::kOwnerGone, read(*memory, ours.data(), area, ours.size()));
    peer.kill();  // a zombie the first time, nothing the second
  }
}

TEST_P(ProcessMemoryTest, NeedsNothingFromAStoppedOwner) {
  std::byte* area = map_pages(32);
  Peer peer([area](char) { return static_cast<char>(area[9 * kPage]); });
  const auto memory = reach(peer);
  ::kill(peer.pid(), SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(0, ::waitid(P_PID, static_cast<id_t>(peer.pid()), &info, WSTOPPED));
  const std::vector<std::byte> sent(10 * kPage, std::byte{'s'});
  std::vector<std::byte> got(sent.size());
  EXPECT_EQ(Copied::kAll, write(*memory, sent.data(), area, 64));
  EXPECT_EQ(Copied::kAll, write(*memory, sent.data(), area, sent.size()));
  EXPECT_EQ(Copied::kAll, read(*memory, got.data(), area, got.size()));
  EXPECT_EQ(sent, got);
  ::kill(peer.pid(), SIGCONT);
  EXPECT_EQ('s', peer.ask('?'));
}

// What a pid alone can't do.
class MemoryFileTest : public ProcessMemoryTest {};

TEST_P(MemoryFileTest, TellsThatTheOwnerCalledExec) {
  std::byte* area = map_pages(32);
  Peer peer([](char) { return ::execl("/bin/sleep", "sleep", "100", nullptr) == 0 ? 'y' : 'n'; });
  const auto memory = reach(peer);
  std::array<std::byte, 10 * kPage> ours{};
  ASSERT_EQ(Copied::kAll, write(*memory, ours.data(), area, 64));
  ASSERT_EQ('\0', peer.ask('x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // longer than a proof is believed
  EXPECT_EQ(Copied::kOwnerGone, read(*memory, ours.data(), area, ours.size()));
  EXPECT_EQ(Copied::kOwnerGone, write(*memory, ours.data(), area, ours.size()));
  EXPECT_EQ(Copied::kOwnerGone, write(*memory, ours.data(), area, 64));
}

bool main_thread_ended(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  return line.substr(line.rfind(')') + 2, 1) == "Z";
}

TEST_P(MemoryFileTest, OutlivesTheOwnersMainThread) {
  std::byte* area = map_pages(32);
  Peer peer([](char) {
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);
    return 'n';
  });
  const auto memory = reach(peer);
  const auto sent = pattern(20 * kPage, 1);
  ASSERT_EQ(Copied::kAll, write(*memory, sent.data(), area, 64));
  peer.tell('t');
  while (!main_thread_ended(peer.pid())) ::sched_yield();
  EXPECT_EQ(Copied::kAll, write(*memory, sent.data(), area, 64));
  EXPECT_EQ(Copied::kAll, write(*memory, sent.data(), area, sent.size()));
  std::vector<std::byte> got(sent.size());
  EXPECT_EQ(Copied::kAll, read(*memory, got.data(), area, got.size()));
  EXPECT_EQ(sent, got);
  EXPECT_FALSE(memory->permitted());
}

TEST_P(MemoryFileTest, LeavesAloneAFileThatTookItsDescriptor) {
  std::byte* area = map_pages(1);
  const Peer peer;
  auto fd = peer.memory();
  const int number = fd.get();
  ProcessMemory memory(peer.pid(), std::move(fd));
  if (GetParam() == Method::kBoth) memory.probe(reinterpret_cast<uintptr_t>(area));
  const base::UniqueFd file(::memfd_create("program", MFD_CLOEXEC));
  ASSERT_EQ(number, ::dup2(file.get(), number));
  const auto sent = pattern(64, 1);
  const Copied expected = GetParam() == Method::kBoth ? Copied::kAll : Copied::kOwnerGone;
  EXPECT_EQ(expected, write(memory, sent.data(), area, sent.size(), Tail::kAnyOrder));
  struct stat st {};
  ASSERT_EQ(0, ::fstat(file.get(), &st));
  EXPECT_EQ(0, st.st_size);
  ::close(number);
}

std::string name_of(const testing::TestParamInfo<Method>& info) {
  return info.param == Method::kBoth ? "Both" : info.param == Method::kFileOnly ? "FileOnly" : "PidOnly";
}
INSTANTIATE_TEST_SUITE_P(Methods, ProcessMemoryTest,
                         testing::Values(Method::kBoth, Method::kFileOnly, Method::kPidOnly), name_of);
INSTANTIATE_TEST_SUITE_P(Methods, MemoryFileTest, testing::Values(Method::kBoth, Method::kFileOnly), name_of);

TEST(ProcessMemory, CantReachAnybodyByNothing) {
  const Peer peer;
  std::byte byte{};
  ProcessMemory memory(peer.pid(), {});
  memory.probe(0);
  EXPECT_EQ(Copied::kOwnerGone, write(memory, &byte, &byte, 1));
  EXPECT_FALSE(memory.permitted());
}

// A poller in the peer waits for the last byte and then looks at all of them. Everything lies in memory that
// both processes map, so that the same poller serves each way of copying.
class LastByteRace {
 public:
  using Copy = std::function<Copied(std::span<const iovec> from, std::span<const iovec> to)>;
  static constexpr uint64_t kRounds = 200'000;
  static constexpr auto kPatience = std::chrono::seconds(4);

  [[nodiscard]] Peer& peer() { return *peer_; }

  void run(const Copy& copy) {
    const auto late = std::chrono::steady_clock::now() + kPatience;
    peer_->tell('g');
    uint64_t round = 1;
    for (; round <= kRounds && std::chrono::steady_clock::now() < late; ++round) {
      const Shape shape = shape_of(round);
      std::memset(source_, shape.value, shape.size);
      const iovec from{source_, shape.size};
      std::byte* end = area_ + shape.offset + shape.size;
      const std::array to{iovec{end - shape.size, shape.size - shape.cut}, iovec{end - shape.cut, shape.cut}};
      ASSERT_EQ(Copied::kAll, copy({&from, 1}, to));
      while (control_->seen.load(std::memory_order_acquire) != round) relax();
    }
    control_->stop.store(true);
    EXPECT_EQ(0u, control_->wrong.load()) << "of " << round - 1;
    testing::Test::RecordProperty("rounds", static_cast<int>(round - 1));
  }

 private:
  struct Control {
    std::atomic<uint64_t> seen;
    std::atomic<uint64_t> wrong;
    std::atomic<bool> stop;
  };
  struct Shape {
    size_t size;
    size_t offset;
    size_t cut;  // bytes that are a piece of their own, at the end
    unsigned char value;
  };
  static Shape shape_of(uint64_t round) {
    static constexpr std::array<size_t, 8> kSizes{64, 72, 100, 512, 1536, 2048, 4096, 8192};
    const size_t size = kSizes[round % kSizes.size()];
    const size_t offset = round % 3 == 0 ? round * 7 % 131 : 0;  // ends across a line are most at risk
    return {size, offset, round % 5 == 0 ? size_t{3} : 0, static_cast<unsigned char>(round % 255 + 1)};
  }
  static void relax() {
    static unsigned count = 0;
    if (++count % 4096 == 0) ::sched_yield();
  }
  char poll() {
    for (uint64_t round = 1;; ++round) {
      const Shape shape = shape_of(round);
      std::byte* data = area_ + shape.offset;
      const auto value = static_cast<std::byte>(shape.value);
      while (*static_cast<volatile std::byte*>(data + shape.size - 1) != value) {
        if (control_->stop.load(std::memory_order_relaxed)) return 'y';
        relax();
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      // All bytes are alike, so each equals its neighbour; the end first, where order is most at risk.
      const size_t near = shape.size - 64;
      const bool right = std::memcmp(data + near, data + near + 1, 63) == 0 && data[0] == value &&
                         std::memcmp(data, data + 1, shape.size - 1) == 0;
      if (!right) control_->wrong.fetch_add(1);
      std::memset(data, 0, shape.size);
      control_->seen.store(round, std::memory_order_release);
    }
  }

  Control* control_ = reinterpret_cast<Control*>(map_pages(1, MAP_SHARED));
  std::byte* area_ = map_pages(4, MAP_SHARED);
  std::byte* source_ = map_pages(4, MAP_SHARED);
  std::unique_ptr<Peer> peer_ = std::make_unique<Peer>([this](char) { return poll(); });
};

class LastByteRaceTest : public ProcessMemoryTest {};

TEST_P(LastByteRaceTest, Write) {
  LastByteRace race;
  const auto memory = reach(race.peer());
  race.run([&](auto from, auto to) { return memory->write(from, to, Tail::kLast); });
}

TEST_P(LastByteRaceTest, Read) {
  LastByteRace race;
  const auto memory = reach(race.peer());
  race.run([&](auto from, auto to) { return memory->read(to, from, Tail::kLast); });
}

INSTANTIATE_TEST_SUITE_P(Methods, LastByteRaceTest, testing::Values(Method::kFileOnly, Method::kPidOnly),
                         name_of);

TEST(LastByteRaceInOwnMemory, ByTheKernel) {
  LastByteRace race;
  verbs::OwnMemory memory;
  race.run([&](auto from, auto to) { return memory.write(from, to, Tail::kLast); });
}

TEST(LastByteRaceInOwnMemory, ByPlainCopies) {
  LastByteRace race;
  verbs::ProofStamp stamp;
  race.run([&](auto from, auto to) {
    const bool placed = verbs::place(to[0].iov_base, from[0].iov_base, from[0].iov_len, Tail::kLast, stamp);
    return placed ? Copied::kAll : Copied::kFaultThere;
  });
}

}  // namespace
}  // namespace verbena::local
