// Whatever bytes arrive, receive() and as<>() answer with a message or an error, and keep no descriptor.
#include <fcntl.h>

#include <random>

#include "socket_pair.hpp"

namespace verbena::ipc {
namespace {

template <typename... M>
struct Kinds {
  // As how many kinds it can be taken.
  static int taken_as(const Message& message) {
    return (static_cast<int>(message.as<M>().has_value()) + ...);
  }
  static bool has_the_size_of_its_kind(const Message& message) {
    return ((message.kind == M::kKind && message.payload.size() == Message::payload_size<M>()) || ...);
  }
};
using AllKinds = Kinds<Hello, Welcome, Attach, Attached, Detach, Observe, DevicesChanged, Stop, Lease, Leased,
                       Done, Refused, SlotSocket, Introduce, Introduced>;

constexpr size_t kSizes[] = {0,
                             sizeof(Hello),
                             sizeof(Welcome),
                             sizeof(Attach),
                             sizeof(Stop),
                             sizeof(Lease),
                             sizeof(Refused),
                             sizeof(Introduce),
                             sizeof(Introduced)};

// Half of them with a good header, half of those with a length that some message has.
std::string random_packet(std::mt19937& random) {
  std::string bytes(1 + random() % (sizeof(Header) + kMaxPayload + 40), '\0');
  if (random() % 4 == 0) bytes.resize(1 + random() % 16);
  if (random() % 2 == 0) bytes.resize(sizeof(Header) + kSizes[random() % std::size(kSizes)]);
  for (char& c : bytes) c = static_cast<char>(random());
  Header header{.kind = static_cast<Kind>(random() % 16)};
  if (random() % 8 == 0) header.version = static_cast<uint16_t>(random());
  if (random() % 2 == 0) std::memcpy(bytes.data(), &header, std::min(bytes.size(), sizeof header));
  return bytes;
}

TEST(ChannelFuzz, TwentyThousandRandomPackets) {
  std::mt19937 random(4791);
  const SocketPair pair;
  const base::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> fds(20, file.get());
  const size_t before = open_descriptors();
  int messages = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string packet = random_packet(random);
    const size_t descriptors = random() % 4 == 0 ? random() % fds.size() : 0;
    ASSERT_NO_FATAL_FAILURE(send_raw(pair.near.get(), packet, std::span(fds).first(descriptors)));
    const auto message = receive(pair.far.get());
    if (!message) {
      ASSERT_TRUE(message.error().code == EPROTO || message.error().code == EPROTONOSUPPORT)
          << i << ": " << message.error().sentence;
      ++refused;
      continue;
    }
    ASSERT_LE(packet.size(), sizeof(Header) + kMaxPayload);
    ASSERT_LE(descriptors, kMaxDescriptors);
    ASSERT_EQ(descriptors, message->fds.size());
    const int taken_as = AllKinds::taken_as(*message);
    ASSERT_EQ(AllKinds::has_the_size_of_its_kind(*message) ? 1 : 0, taken_as) << i;
    messages += taken_as;
    (void)expect<Done>(*message);
  }
  EXPECT_EQ(before, open_descriptors());
  EXPECT_GT(messages, 200);
  EXPECT_GT(refused, 5'000);
}

}  // namespace
}  // namespace verbena::ipc
