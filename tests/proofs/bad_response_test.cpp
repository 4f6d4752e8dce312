// IBV_WC_BAD_RESP_ERR as a program sees it: a peer that is a plain socket and answers a READ with what nobody
// asked for. The right answer first, so that the script is known to work.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <stdexcept>

#include "base/unique_fd.hpp"
#include "rc/pair_test.hpp"
#include "roce/codec.hpp"
#include "roce/icrc.hpp"

namespace verbena::rc {
namespace {

using roce::Operation;
using roce::Packet;

constexpr const char* kOurs = "127.0.0.1";
constexpr const char* kPeers =
    "127.0.0.9";  // no address of the device: whoever is there is another host to it
constexpr base::Qpn kPeerQpn{0x050607};
constexpr uint32_t kPeerPsn = 0x111;
constexpr uint32_t kOurPsn = 0xfffffe;
constexpr uint32_t kReadBytes = 100;

sockaddr_in address_of(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(4791);
  ::inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

std::array<uint8_t, 16> mapped(const char* text) {
  std::array<uint8_t, 16> bytes{};
  bytes[10] = bytes[11] = 0xff;
  const sockaddr_in address = address_of(text);
  std::memcpy(bytes.data() + 12, &address.sin_addr, 4);
  return bytes;
}

class ScriptedPeer {
 public:
  ScriptedPeer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const int one = 1;
    const int whole = IP_PMTUDISC_DO;  // and so the ID is 0
    const timeval patience{10, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    ::setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const sockaddr_in own = address_of(kPeers);
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
      throw std::runtime_error("the scripted peer has no port");
  }

  // The next request to our queue pair; greetings and the like aren't.
  Packet next_request() {
    for (;;) {
      const ssize_t got = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
      if (got < 16) throw std::runtime_error("no request came");
      const auto packet = roce::parse(std::span(buffer_).first(static_cast<size_t>(got) - roce::kIcrcBytes));
      if (packet && packet->bth.destination == kPeerQpn) return *packet;
    }
  }

  void send(const Packet& packet) {
    std::vector<std::byte> bytes(packet.payload.size() + 128);
    bytes.resize(roce::emit(packet, bytes) + roce::kIcrcBytes);
    roce::append_icrc({.source = mapped(kPeers), .destination = mapped(kOurs), .source_port = 4791}, 0,
                      bytes);
    const sockaddr_in to = address_of(kOurs);
    if (::sendto(socket_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                 sizeof to) < 0)
      throw std::runtime_error("the scripted peer can't send");
  }

 private:
  base::UniqueFd socket_;
  std::array<std::byte, 8192> buffer_;
};

class BadResponse : public testing::Test {
 protected:
  BadResponse() {
    Link link;
    std::memcpy(link.peer.raw, mapped(kPeers).data(), sizeof link.peer.raw);
    link.peer_qpn = kPeerQpn.value;
    link.rq_psn = kPeerPsn;
    link.sq_psn = kOurPsn;
    EXPECT_EQ(side_.to_init(link), 0);
    EXPECT_EQ(side_.to_rtr(link), 0);
    EXPECT_EQ(side_.to_rts(link), 0);
    peer_.emplace();  // after the agent, which begins with the port for itself
    local_ = side_.add_buffer(4096);
    side_.fill(local_, 1);
  }

  // Posts a READ and a SEND behind it, and gives back the answer that would be right.
  Packet read() {
    EXPECT_EQ(side_
                  .post_sends({SendOrder{.wr_id = 1,
                                         .opcode = IBV_WR_RDMA_READ,
                                         .remote_address = 0x1000,
                                         .rkey = 7,
                                         .pieces = {local_.piece(0, kReadBytes)}},
                               send_of(2, {local_.piece(200, 8)})})
                  .error,
              0);
    const Packet request = peer_->next_request();
    EXPECT_EQ(request.bth.operation, Operation::kReadRequest);
    EXPECT_EQ(request.reth.length, kReadBytes);
    Packet answer;
    answer.bth.operation = Operation::kReadResponseOnly;
    answer.bth.destination = base::Qpn{side_.address().qpn};
    answer.bth.psn = request.bth.psn;
    answer.aeth = {roce::syndrome::kNoCredits, 1};
    answer.payload = std::span(bytes_).first(kReadBytes);
    return answer;
  }

  void expect_bad_response(const std::function<void(Packet&)>& spoil) {
    Packet answer = read();
    spoil(answer);
    peer_->send(answer);
    EXPECT_TRUE(next_is(side_, Queue::kSend, 1, IBV_WC_BAD_RESP_ERR));
    EXPECT_TRUE(next_is(side_, Queue::kSend, 2, IBV_WC_WR_FLUSH_ERR));
    EXPECT_TRUE(state_is(side_, IBV_QPS_ERR));
    EXPECT_EQ(side_.mismatch(local_, 0, 4096, 1), -1) << "nothing of it is placed";
  }

  std::optional<ScriptedPeer> peer_;
  Side side_{Host::here()};
  Buffer local_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096, std::byte{0x5a});
};

TEST_F(BadResponse, TheRightOneIsTaken) {
  const Packet answer = read();
  peer_->send(answer);
  EXPECT_TRUE(next_is(side_, Queue::kSend, 1, IBV_WC_SUCCESS));
  Packet ack = answer;
  ack.bth.operation = Operation::kAcknowledge;
  ack.bth.psn = answer.bth.psn + 1;
  ack.payload = {};
  peer_->send(ack);
  EXPECT_TRUE(next_is(side_, Queue::kSend, 2, IBV_WC_SUCCESS));
}

TEST_F(BadResponse, TooShort) {
  expect_bad_response([&](Packet& answer) { answer.payload = std::span(bytes_).first(kReadBytes - 4); });
}

TEST_F(BadResponse, TooLong) {
  expect_bad_response([&](Packet& answer) { answer.payload = std::span(bytes_).first(kReadBytes + 1); });
}

TEST_F(BadResponse, AFirstOneOfAnswersThatAreOnlyOne) {
  expect_bad_response([](Packet& answer) { answer.bth.operation = Operation::kReadResponseFirst; });
}

TEST_F(BadResponse, ThatSaysNak) {
  expect_bad_response([](Packet& answer) { answer.aeth.syndrome = roce::syndrome::kRemoteAccess; });
}

}  // namespace
}  // namespace verbena::rc
