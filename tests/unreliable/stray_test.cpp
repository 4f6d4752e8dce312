// A sender that merges packets for several processes into one segmented send: the kernel steers it once, by
// its first packet, and Verbena brings the others to their owners.
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "end.hpp"
#include "roce/codec.hpp"
#include "roce/icrc.hpp"

namespace verbena::unreliable {
namespace {

constexpr uint32_t kGrh = 40;
constexpr uint16_t kRocePort = 4791;
constexpr size_t kPayload = 64;
constexpr size_t kPacket = 12 + 8 + kPayload + roce::kIcrcBytes;

// The other process: a queue pair whose first message must hold what was sent.
int other_process(int report) {
  End end(IBV_QPT_UD);
  end.ready_datagrams();
  end.receive(1, 0, 4096);
  const uint32_t number = end.number();
  if (::write(report, &number, sizeof number) != sizeof number) return 2;
  ibv_wc completion{};
  if (!end.next(completion)) return 3;
  return end.bytes()[kGrh] == std::byte{2} ? 0 : 4;
}

void craft(std::span<std::byte, kPacket> into, uint32_t target, uint8_t content, uint16_t place,
           uint16_t source_port, uint16_t pkey = 0xffff) {
  const std::vector<std::byte> payload(kPayload, std::byte{content});
  roce::Packet packet;
  packet.bth.service = roce::Service::kUd;
  packet.bth.operation = roce::Operation::kSendOnly;
  packet.bth.destination = {target};
  packet.bth.pkey = pkey;
  packet.deth = {kQkey, {0x123456}};
  packet.payload = payload;
  ASSERT_EQ(roce::emit(packet, into), kPacket - roce::kIcrcBytes);
  roce::Flow flow{.source = {}, .destination = {}, .source_port = source_port};
  for (auto* address : {&flow.source, &flow.destination}) {
    *address = {};
    (*address)[10] = (*address)[11] = 0xff;
    (*address)[12] = 127;
    (*address)[15] = 1;
  }
  roce::append_icrc(flow, place, into);
}

// A socket that sends packets of our own making, from 127.0.0.1.
struct Sender {
  Sender() : socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{
        .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    socklen_t length = sizeof own;
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length), 0);
    port = ntohs(own.sin_port);
  }
  ~Sender() { ::close(socket); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  void send(std::span<const std::byte> bytes) const {
    const sockaddr_in to{.sin_family = AF_INET,
                         .sin_port = htons(kRocePort),
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
    ASSERT_EQ(
        ::sendto(socket, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
        static_cast<ssize_t>(bytes.size()));
  }
  int socket;
  uint16_t port = 0;
};

TEST(Strays, AMixedSendReachesEachOwner) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(other_process(report[1]));
  uint32_t other = 0;
  ASSERT_EQ(::read(report[0], &other, sizeof other), static_cast<ssize_t>(sizeof other));
  End mine(IBV_QPT_UD);
  mine.ready_datagrams();
  mine.receive(1, 0, 4096);
  ASSERT_NE(mine.number() >> 16, other >> 16);

  const Sender sender;
  const int segment = kPacket;
  ASSERT_EQ(::setsockopt(sender.socket, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
  std::array<std::byte, 2 * kPacket> both{};
  craft(std::span(both).first<kPacket>(), mine.number(), 1, 0, sender.port);
  craft(std::span(both).last<kPacket>(), other, 2, 1, sender.port);
  sender.send(both);

  EXPECT_TRUE(mine.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(mine.bytes()[kGrh], std::byte{1});
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the other process";
}

// Of the one partition that there is, a limited member's packet passes: its key differs in the first bit
// only.
TEST(Partitions, APacketOfAnotherIsDroppedAndCounted) {
  End mine(IBV_QPT_UD);
  mine.ready_datagrams();
  mine.receive(1, 0, 4096);
  const Sender sender;
  const auto bad_keys = [] {
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(device(), 1, &port), 0);
    return port.bad_pkey_cntr;
  };
  const uint32_t before = bad_keys();
  std::array<std::byte, kPacket> packet{};
  craft(packet, mine.number(), 1, 0, sender.port, 0xfffe);
  sender.send(packet);
  EXPECT_TRUE(mine.nothing_comes());
  craft(packet, mine.number(), 2, 0, sender.port, 0x7fff);
  sender.send(packet);
  EXPECT_TRUE(mine.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(mine.bytes()[kGrh], std::byte{2});
  EXPECT_TRUE(mine.nothing_comes());  // what is counted is shown a moment later
  EXPECT_EQ(bad_keys(), before + 1);
}

}  // namespace
}  // namespace verbena::unreliable
