#include "ipc/channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <thread>

#include "socket_pair.hpp"

namespace verbena::ipc {
namespace {

using AllMessages = testing::Types<Hello, Welcome, Attach, Attached, Detach, Observe, DevicesChanged, Stop,
                                   Lease, Leased, Done, Refused, SlotSocket, Introduce, Introduced>;

template <typename M>
class EachMessage : public testing::Test {};
TYPED_TEST_SUITE(EachMessage, AllMessages);

// Descriptors of empty files with sizes 1, 2, 3 ..., by which they are recognised.
std::vector<base::UniqueFd> numbered_files(size_t count) {
  std::vector<base::UniqueFd> files;
  for (size_t i = 1; i <= count; ++i) {
    files.emplace_back(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(0, ::ftruncate(files.back().get(), static_cast<off_t>(i)));
  }
  return files;
}

std::vector<int> numbers_of(const std::vector<base::UniqueFd>& files) {
  std::vector<int> fds;
  for (const auto& file : files) fds.push_back(file.get());
  return fds;
}

TYPED_TEST(EachMessage, ArrivesByteForByteWithItsDescriptorsInOrder) {
  const SocketPair pair;
  const auto files = numbered_files(kMaxDescriptors);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, kMaxDescriptors}) {
    TypeParam sent;
    if constexpr (!std::is_empty_v<TypeParam>) std::memset(static_cast<void*>(&sent), 0x5a, sizeof sent);
    const auto fds = numbers_of(files);
    ASSERT_TRUE(send(pair.near.get(), sent, std::span(fds).first(count)));

    const auto message = receive(pair.far.get());
    ASSERT_TRUE(message) << message.error().sentence;
    EXPECT_EQ(TypeParam::kKind, message->kind);
    const auto received = message->template as<TypeParam>();
    ASSERT_TRUE(received);
    if constexpr (!std::is_empty_v<TypeParam>) {
      EXPECT_EQ(0, std::memcmp(&sent, &*received, sizeof sent));
    }
    ASSERT_EQ(count, message->fds.size());
    for (size_t i = 0; i < count; ++i) {
      struct stat st {};
      ASSERT_EQ(0, ::fstat(message->fds[i].get(), &st));
      EXPECT_EQ(static_cast<off_t>(i + 1), st.st_size);
      EXPECT_TRUE(::fcntl(message->fds[i].get(), F_GETFD) & FD_CLOEXEC);
    }
  }
}

TYPED_TEST(EachMessage, IsNothingElseAndOfNoOtherLength) {
  const SocketPair pair;
  const auto size = Message::payload_size<TypeParam>();
  for (const size_t length : {size - (size > 0 ? 1 : 0), size + 1, size_t{0}, kMaxPayload}) {
    if (length == size) continue;
    send_raw(pair.near.get(), bytes_of({.kind = TypeParam::kKind}, length));
    const auto message = receive(pair.far.get());
    ASSERT_TRUE(message);
    EXPECT_EQ(EPROTO, message->template as<TypeParam>().error().code) << length;
  }
  send_raw(pair.near.get(), bytes_of({.kind = static_cast<Kind>(99)}, size));
  EXPECT_EQ(EPROTO, receive(pair.far.get())->template as<TypeParam>().error().code);
}

TEST(Channel, KindsAreDistinct) {
  const Kind kinds[] = {Hello::kKind,      Welcome::kKind,   Attach::kKind,    Attached::kKind,
                        Detach::kKind,     Stop::kKind,      Lease::kKind,     DevicesChanged::kKind,
                        Leased::kKind,     Done::kKind,      Observe::kKind,   Refused::kKind,
                        SlotSocket::kKind, Introduce::kKind, Introduced::kKind};
  for (const Kind& a : kinds)
    for (const Kind& b : kinds) EXPECT_TRUE(&a == &b || a != b) << static_cast<int>(a);
}

struct BadPacket {
  const char* what;
  std::string bytes;
  size_t descriptors;
  int error;
};

TEST(Channel, RefusesBadPacketsAndKeepsNoDescriptor) {
  const BadPacket cases[] = {
      {"one byte", "V", 0, EPROTO},
      {"a header cut short", bytes_of({.kind = Kind::kDone}).substr(0, 7), 3, EPROTO},
      {"another magic", bytes_of({.magic = kMagic + 1, .kind = Kind::kDone}), 3, EPROTO},
      {"an older version", bytes_of({.version = 0, .kind = Kind::kDone}), 3, EPROTONOSUPPORT},
      {"a newer version", bytes_of({.version = kProtocolVersion + 1, .kind = Kind::kDone}), 8,
       EPROTONOSUPPORT},
      {"a byte too long", bytes_of({.kind = Kind::kHello}, kMaxPayload + 1), 3, EPROTO},
      {"far too long", bytes_of({.kind = Kind::kHello}, 60'000), 8, EPROTO},
      {"one descriptor too many", bytes_of({.kind = Kind::kDone}), kMaxDescriptors + 1, EPROTO},
      {"a park's worth of descriptors", bytes_of({.kind = Kind::kDone}), 252, EPROTO},
      {"nothing at all", "", 0, ECONNRESET},
      {"nothing but descriptors", "", 8, ECONNRESET},
  };
  const auto files = numbered_files(252);
  const auto fds = numbers_of(files);
  const SocketPair pair;
  const size_t before = open_descriptors();
  for (const auto& c : cases) {
    send_raw(pair.near.get(), c.bytes, std::span(fds).first(c.descriptors));
    const auto message = receive(pair.far.get());
    ASSERT_FALSE(message) << c.what;
    EXPECT_EQ(c.error, message.error().code) << c.what;
    EXPECT_EQ(before, open_descriptors()) << c.what;
  }
  ASSERT_TRUE(send(pair.near.get(), Done{}));  // the next packet isn't the worse for it
  EXPECT_TRUE(receive(pair.far.get())->as<Done>());
}

TEST(Channel, TellsBothVersionsInItsSentence) {
  const SocketPair pair;
  send_raw(pair.near.get(), bytes_of({.version = 77, .kind = Kind::kDone}));
  const std::string sentence = receive(pair.far.get()).error().sentence;
  EXPECT_NE(std::string::npos, sentence.find(fmt::format("protocols {} and 77", kProtocolVersion)))
      << sentence;
}

TEST(Channel, DescriptorsOfAMessageThatNobodyTakesAreClosed) {
  const SocketPair pair;
  const auto files = numbered_files(3);
  const size_t before = open_descriptors();
  ASSERT_TRUE(send(pair.near.get(), Attach{}, numbers_of(files)));
  { const auto message = receive(pair.far.get()); }
  EXPECT_EQ(before, open_descriptors());
}

TEST(Channel, DoesNotWaitForAMessage) {
  const SocketPair pair;
  EXPECT_EQ(EAGAIN, receive(pair.far.get()).error().code);
}

TEST(Channel, SaysThatThePeerIsGone) {
  SocketPair pair;
  pair.near.reset();
  EXPECT_EQ(ECONNRESET, receive(pair.far.get()).error().code);
  EXPECT_EQ(EPIPE, send(pair.far.get(), Done{}).error().code);  // and raises no SIGPIPE
}

TEST(Channel, DoesNotWaitForAPeerThatDoesNotRead) {
  const SocketPair pair;
  base::Result<void> sent;
  for (int i = 0; i < 100'000 && sent; ++i) sent = send(pair.near.get(), Welcome{});
  ASSERT_FALSE(sent);
  EXPECT_EQ(EAGAIN, sent.error().code);
}

TEST(Channel, ReceiveUntilTimesOutNotBeforeItsDeadline) {
  const SocketPair pair;
  const auto deadline = base::now() + base::milliseconds(30);
  EXPECT_EQ(ETIMEDOUT, receive_until(pair.far.get(), deadline).error().code);
  EXPECT_GE(base::now(), deadline);
  EXPECT_EQ(ETIMEDOUT, receive_until(pair.far.get(), base::now() + base::seconds(-1)).error().code);
}

TEST(Channel, ReceiveUntilTakesWhatIsThereEvenPastTheDeadline) {
  const SocketPair pair;
  ASSERT_TRUE(send(pair.near.get(), Done{}));
  EXPECT_TRUE(receive_until(pair.far.get(), base::now() + base::seconds(-1)));
}

TEST(Channel, ReceiveUntilWaitsAsItIsTold) {
  SocketPair pair;
  const auto deadline = base::now() + base::seconds(20);
  int waits = 0;
  const auto message = receive_until(pair.far.get(), deadline, [&](int fd, base::Instant until) {
    EXPECT_EQ(pair.far.get(), fd);
    EXPECT_EQ(deadline, until);
    if (++waits < 3) return;  // early, which is no harm
    EXPECT_TRUE(send(pair.near.get(), Done{}));
  });
  EXPECT_TRUE(message);
  EXPECT_EQ(3, waits);
}

TEST(Channel, IdleWaitEndsWithReadinessOrInTime) {
  SocketPair pair;
  ASSERT_TRUE(send(pair.near.get(), Done{}));
  const auto begin = base::now();
  wait_idly(pair.far.get(), begin + base::seconds(20));
  wait_idly(-1, begin + base::seconds(-1));
  EXPECT_LT(base::now() - begin, base::seconds(5));
  wait_idly(-1, begin + base::milliseconds(20));
  EXPECT_GE(base::now() - begin, base::milliseconds(20));
}

TEST(Channel, ReceiveUntilWakesForAMessageAndForTheEnd) {
  SocketPair pair;
  std::thread sender([&] {
    EXPECT_TRUE(send(pair.near.get(), Leased{.first = 7, .count = 9}));
    pair.near.reset();
  });
  const auto deadline = base::now() + base::seconds(20);
  const auto message = receive_until(pair.far.get(), deadline);
  ASSERT_TRUE(message);
  EXPECT_EQ(9u, message->as<Leased>()->count);
  EXPECT_EQ(ECONNRESET, receive_until(pair.far.get(), deadline).error().code);
  sender.join();
}

TEST(Channel, ExpectTurnsARefusalIntoItsError) {
  const SocketPair pair;
  Refused refused{.code = ENOMEM};
  set_text(refused.sentence, "no free slot");
  ASSERT_TRUE(send(pair.near.get(), refused));
  const auto attached = expect<Attached>(*receive(pair.far.get()));
  ASSERT_FALSE(attached);
  EXPECT_EQ(ENOMEM, attached.error().code);
  EXPECT_EQ("no free slot", attached.error().sentence);
}

TEST(MessageText, IsCutToItsFieldWithAFinalZero) {
  char field[4];
  set_text(field, "abcdef");
  EXPECT_STREQ("abc", field);
  set_text(field, "x");
  EXPECT_EQ(0, std::memcmp("x\0\0\0", field, 4));
}

TEST(MessageText, OfAFieldWithoutAFinalZeroEndsWithTheField) {
  const char field[3] = {'a', 'b', 'c'};
  EXPECT_EQ("abc", text(field));
}

}  // namespace
}  // namespace verbena::ipc
