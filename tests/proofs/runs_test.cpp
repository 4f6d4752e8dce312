// What comes merged is taken many packets at a time: to nobody's harm. Whatever is in such a run, it does
// what its packets do that come one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "port_rig.hpp"
#include "roce/codec.hpp"

namespace verbena::test {
namespace {

using roce::Operation;
using roce::Packet;
using roce::Service;

using Random = std::mt19937;
using Bytes = std::vector<std::byte>;
constexpr size_t kLarge = 64 * kMtu;

enum class Kind : uint8_t { kWrite, kSend, kRead, kEvenWrite, kPairs, kPairRequests };

bool answers(Kind kind) { return kind == Kind::kRead || kind == Kind::kPairs; }

Operation operation_of(Kind kind, bool first, bool last) {
  switch (kind) {
    case Kind::kPairs:
      return first && last ? Operation::kReadResponseOnly : operation_of(Kind::kRead, first, last);
    case Kind::kPairRequests:
      return Operation::kReadRequest;
    case Kind::kWrite:
      return first ? Operation::kWriteFirst : last ? Operation::kWriteLast : Operation::kWriteMiddle;
    case Kind::kSend:
      return first ? Operation::kSendFirst : last ? Operation::kSendLast : Operation::kSendMiddle;
    case Kind::kRead:
      return first  ? Operation::kReadResponseFirst
             : last ? Operation::kReadResponseLast
                    : Operation::kReadResponseMiddle;
    case Kind::kEvenWrite:
      return Operation::kWriteOnly;
  }
  return {};
}

// READs before the one that is answered in pairs: from all of the memory, so that such a one may be.
constexpr uint32_t kReadBefore = 32;
base::Psn first_number(Kind kind) {
  return kind == Kind::kPairs ? kSent + kReadBefore + 1 : answers(kind) ? kSent : kExpected;
}

std::vector<Bytes> pair_requests(uint32_t length) {
  std::vector<Bytes> all;
  for (uint32_t at = 0; at < length; at += roce::kPair * kMtu) {
    Packet packet;
    packet.bth.operation = Operation::kReadRequest;
    packet.bth.destination = kOwn;
    packet.bth.psn = kExpected + at / kMtu;
    packet.bth.ack_request = true;
    packet.reth = {kAddress + 8 + at, kKey, std::min(roce::kPair * kMtu, length - at)};
    all.push_back(bytes_of(packet, Way::kRecognised));
  }
  return all;
}

// A message as the peer sends it, in packets.
std::vector<Bytes> message(Kind kind, uint32_t length, Random& random) {
  if (kind == Kind::kPairRequests) return pair_requests(length);
  const uint32_t packets = (length + kMtu - 1) / kMtu;
  const bool pairs = kind == Kind::kPairs;
  std::vector<Bytes> all;
  for (uint32_t i = 0; i < packets; ++i) {
    Bytes payload(std::min(length - i * kMtu, kMtu));
    for (auto& byte : payload) byte = static_cast<std::byte>(random());
    Packet packet;
    packet.bth.operation = operation_of(kind, i == 0 || (pairs && i % roce::kPair == 0),
                                        i + 1 == packets || (pairs && (i + 1) % roce::kPair == 0));
    packet.bth.destination = kOwn;
    packet.bth.psn = first_number(kind) + i;
    packet.bth.ack_request = !answers(kind) && (i + 1 == packets || random() % 8 == 0);
    packet.reth = {kAddress + 8, kKey, length};
    if (kind == Kind::kEvenWrite)
      packet.reth = {kAddress + 8 + i * kMtu, kKey, static_cast<uint32_t>(payload.size())};
    packet.aeth = {.syndrome = roce::syndrome::kNoCredits, .msn = pairs ? i / roce::kPair : 0};
    packet.payload = payload;
    all.push_back(bytes_of(packet, Way::kRecognised));
    seal(all.back(), Way::kRecognised, static_cast<uint16_t>(i % 64));
  }
  return all;
}

// Something that isn't as it should be; its length stays.
void spoil(std::vector<Bytes>& packets, Random& random) {
  const size_t which = random() % packets.size();
  Bytes& bytes = packets[which];
  switch (random() % 7) {
    case 0:  // lost
      if (packets.size() > 1) packets.erase(packets.begin() + static_cast<ptrdiff_t>(which));
      return;
    case 1:  // doubled
      packets.insert(packets.begin() + static_cast<ptrdiff_t>(which), Bytes(bytes));
      return;
    case 2:  // overtaken
      if (which + 1 < packets.size()) std::swap(bytes, packets[which + 1]);
      return;
    case 3:  // damaged
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
      return;
    case 4:  // a header of the sender's own mind
      bytes[random() % 28] ^= static_cast<std::byte>(1u << random() % 8);
      break;
    case 5:  // AckReq
      bytes[8] ^= std::byte{0x80};
      break;
    default:  // another number
      bytes[11] = static_cast<std::byte>(random());
      break;
  }
  seal(bytes, Way::kRecognised);
}

// As a kernel merges them: of one length, but the last may be shorter.
std::vector<std::vector<Bytes>> runs_of(const std::vector<Bytes>& packets) {
  std::vector<std::vector<Bytes>> runs;
  for (const auto& packet : packets) {
    const bool joins = !runs.empty() && runs.back().back().size() == runs.back().front().size() &&
                       packet.size() <= runs.back().front().size();
    if (!joins) runs.emplace_back();
    runs.back().push_back(packet);
  }
  return runs;
}

struct Ends {
  explicit Ends(Kind kind, uint32_t length) : rig(Service::kRc, Way::kRecognised, kLarge) {
    rig.connection.actions.post_receives(2);
    rig.connection.actions.set_receive_bytes(kLarge - kMtu);
    if (!answers(kind)) return;
    if (kind == Kind::kPairs) {
      rig.connection.requester->set_even(true);
      read(kAddress, kReadBefore * kMtu);
      read(kAddress + kLarge - 1, 1);
      answer(kSent, kReadBefore);
      answer(kSent + kReadBefore, 1);
    }
    read(kAddress, length);
  }
  void read(uint64_t address, uint32_t length) {
    rig.connection.requester->post(
        {.kind = engine::Request::Kind::kRead, .key = kKey, .address = address, .length = length});
    rig.connection.go_on(rig.now);
  }
  void answer(base::Psn first, uint32_t packets) {
    const Bytes payload(packets == 1 ? 1 : kMtu);
    for (uint32_t i = 0; i < packets; ++i) {
      Packet packet;
      packet.bth.operation =
          packets == 1 ? Operation::kReadResponseOnly : operation_of(Kind::kRead, i == 0, i + 1 == packets);
      packet.bth.destination = kOwn;
      packet.bth.psn = first + i;
      packet.aeth = {.syndrome = roce::syndrome::kNoCredits};
      packet.payload = payload;
      EXPECT_EQ(rig.receive(bytes_of(packet, Way::kRecognised)), wire::Drop::kNone);
    }
  }
  // All that packets may have changed; bytes as a digest.
  [[nodiscard]] std::string all() const {
    const auto digest = [](std::string_view bytes) { return std::hash<std::string_view>{}(bytes)&0xffff; };
    const auto& connection = rig.connection;
    std::string text = fmt::format("state {}", digest(connection.state()));
    text +=
        fmt::format("\nwindow {}, timer {}, packets {}", connection.requester->window().size(),
                    connection.requester->next_deadline().ns, static_cast<uint64_t>(rig.counters().packets));
    text += "\ndropped:";
    for (size_t i = 0; i < rig.counters().drops.size(); ++i)
      if (const uint64_t count = rig.counters().drops[i]; count != 0)
        text += fmt::format(" {} {}", count, wire::name_of(static_cast<wire::Drop>(i)));
    text += "\nplaced:";
    for (const auto& part : connection.host.scattered())
      text += fmt::format(" {}/{}", part.offset / kMtu,
                          digest({reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()}));
    text += "\nended:";
    for (const auto& end : connection.host.ends()) text += fmt::format(" {}", static_cast<int>(end.status));
    for (const auto* sink : {&connection.requests, &connection.answers}) {
      text += "\nsent:";
      for (const auto& kept : sink->sent)
        text += fmt::format(" {:x}@{:x}/{:x}", kept.packet.bth.opcode(), kept.packet.bth.psn.value,
                            kept.packet.aeth.msn);
    }
    return text;
  }
  PortRig rig;
};

void expect_alike(Kind kind, uint32_t length, const std::vector<Bytes>& packets) {
  Ends merged(kind, length);
  Ends single(kind, length);
  for (const auto& run : runs_of(packets)) {
    merged.rig.receive_together(run, true);
    single.rig.receive_together(run, false);
    ASSERT_EQ(merged.all(), single.all());
  }
}

class RunsOf : public testing::TestWithParam<Kind> {};

TEST_P(RunsOf, AreTakenWhole) {
  Random random(1);
  const uint32_t length = 20 * kMtu - 3;
  Ends ends(GetParam(), length);
  const uint64_t before = ends.rig.counters().packets;
  for (const auto& run : runs_of(message(GetParam(), length, random))) ends.rig.receive_together(run, true);
  for (const uint64_t count : ends.rig.counters().drops) EXPECT_EQ(count, 0u);
  EXPECT_EQ(ends.rig.counters().packets - before, GetParam() == Kind::kPairRequests ? 10u : 20u);
  if (answers(GetParam()))
    EXPECT_TRUE(ends.rig.connection.requester->idle());
  else
    EXPECT_EQ(ends.rig.connection.responder->expected(), kExpected + 20);
}

TEST_P(RunsOf, DoWhatTheirPacketsDo) {
  Random random(2);
  for (int round = 0; round < 3'000; ++round) {
    const auto length = static_cast<uint32_t>(kMtu + 1 + random() % (40 * kMtu));
    auto packets = message(GetParam(), length, random);
    for (auto faults = random() % 4; faults > 0; --faults) spoil(packets, random);
    SCOPED_TRACE(round);
    expect_alike(GetParam(), length, packets);
    if (HasFatalFailure()) return;
  }
}

// More than the receive holds, or than the WRITE said, or than was asked for.
TEST_P(RunsOf, ThatAreTooLong) {
  Random random(3);
  const uint32_t length = 70 * kMtu;
  auto packets = message(GetParam(), length, random);
  expect_alike(GetParam(), length / 4, packets);
  if (GetParam() != Kind::kWrite) return;
  for (size_t at = 24; at < 28; ++at) packets[0][at] = std::byte{0};  // RETH's length
  packets[0][26] = std::byte{0x10};
  seal(packets[0], Way::kRecognised);
  expect_alike(GetParam(), length, packets);
}

Bytes packet_of(Operation operation, size_t payload_bytes) {
  const Bytes payload(payload_bytes);
  Packet packet;
  packet.bth.operation = operation;
  packet.bth.destination = kOwn;
  packet.bth.psn = kExpected;
  packet.payload = payload;
  return bytes_of(packet, Way::kRecognised);
}

std::vector<Operation> order_of(const std::vector<Bytes>& packets) {
  PortRig rig(Service::kRc, Way::kRecognised);
  rig.receive_together(packets, true);
  return rig.connection.order;
}

// It rides behind what the program sent after it, and belongs before that.
TEST(Runs, AnAcknowledgementBehindRequestsComesFirst) {
  const auto request = packet_of(Operation::kSendOnly, 100);
  EXPECT_EQ(order_of({request, request, packet_of(Operation::kAcknowledge, 0)}),
            (std::vector{Operation::kAcknowledge, Operation::kSendOnly, Operation::kSendOnly}));
}

// Behind another answer it is in its place: before a READ's it would say that one is lost.
TEST(Runs, AnAcknowledgementBehindAnotherAnswerStaysThere) {
  EXPECT_EQ(order_of({packet_of(Operation::kReadResponseOnly, 100), packet_of(Operation::kAcknowledge, 0)}),
            (std::vector{Operation::kReadResponseOnly, Operation::kAcknowledge}));
}

std::string name_of(const testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kNames[] = {"Write", "Send", "Read", "EvenWrite", "Pairs", "PairRequests"};
  return kNames[static_cast<size_t>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, RunsOf,
                         testing::Values(Kind::kWrite, Kind::kSend, Kind::kRead, Kind::kEvenWrite,
                                         Kind::kPairs, Kind::kPairRequests),
                         name_of);

}  // namespace
}  // namespace verbena::test
