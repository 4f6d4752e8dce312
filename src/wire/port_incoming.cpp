// What becomes of packets that come.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "roce/bytes.hpp"
#include "roce/codec.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"
#include "roce/run_headers.hpp"
#include "wire/port.hpp"

namespace verbena::wire {
namespace {

constexpr size_t kSmallestPacket = 12 + roce::kIcrcBytes;
constexpr uint16_t kPkeyBits = 0x7fff;  // without the membership bit
constexpr base::Qpn kMulticastQpn{0xffffff};

base::Qpn destination_of(std::span<const std::byte> bytes) {
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(bytes[i]); };
  return {at(5) << 16 | at(6) << 8 | at(7)};
}

// An acknowledgement at the end of a run of requests belongs before them (adr/0015); behind other answers it
// is where it belongs.
bool answer_rides_last(const net::ReceivedRun& run) {
  const auto opcode = [&](size_t index) {
    const auto packet = run.packet_bytes(index);
    return packet.empty() ? uint8_t{0} : std::to_integer<uint8_t>(packet[0]);
  };
  const size_t packets = run.packets();
  if (packets < 2 || !roce::is_acknowledgement(opcode(packets - 1))) return false;
  for (size_t i = 0; i + 1 < packets; ++i)
    if (!roce::opcode_info(opcode(i)).request) return false;
  return true;
}

}  // namespace

void Port::take_stray(base::Instant now, const net::Received& received) {
  {
    const std::lock_guard lock(receiving_);
    now_ = now;
    // One that isn't ours after all isn't passed on again.
    if (received.bytes.size() >= kSmallestPacket && destination_of(received.bytes).slot() == slot_)
      on_packet(received);
  }
  environment_.wake();  // drive() does the rest
}

void Port::on_packet(const net::Received& received) {
  ++counters_.packets;
  if (const Drop drop = take(received); drop != Drop::kNone) ++counters_.drops[static_cast<size_t>(drop)];
}

// The packets of a run behind one of them.
class Port::Followers final : public engine::MorePayloads {
 public:
  explicit Followers(const net::ReceivedRun& run) : run_(run), packets_(run.packets()) {}

  void begin(size_t first) {
    index_ = first;
    taken_ = 0;
  }
  [[nodiscard]] bool any() const { return index_ + 1 < packets_; }
  // Behind one that was good: who checks the others, and how.
  void follow(roce::FlowIcrc& flow, roce::IdRule rule, const roce::Packet& first) {
    flow_ = &flow;
    rule_ = rule;
    headers_ = first.info().header_bytes;
    payload_ = first.payload.size();
    // Headers that followed an earlier one's follow this one's as well: they aren't looked at for each again.
    if (index_ >= end_) end_ = end_of_run();
  }
  [[nodiscard]] size_t taken() const { return taken_; }

  [[nodiscard]] size_t most() const override { return end_ - index_ - 1; }
  [[nodiscard]] std::span<const std::byte> next() override {
    if (most() == 0) return {};
    const auto packet = run_.packet_bytes(index_ + 1);
    if (!flow_->fits(rule_, static_cast<unsigned>(index_ + 1), packet)) return {};
    ++index_;
    ++taken_;
    return packet.subspan(headers_, payload_);
  }

 private:
  // Behind those whose headers follow each other.
  [[nodiscard]] size_t end_of_run() const {
    const auto first = run_.packet_bytes(index_);
    roce::RunHeaders expected(first.first(headers_), payload_);
    std::array<std::byte, roce::kMostHeaderBytes> headers;
    size_t end = index_ + 1;
    for (; end < packets_; ++end) {
      const auto packet = run_.packet_bytes(end);
      expected.next(headers);
      if (packet.size() != first.size() || std::memcmp(packet.data(), headers.data(), headers_) != 0) break;
    }
    return end;
  }

  const net::ReceivedRun& run_;
  size_t packets_;
  size_t index_ = 0;
  size_t end_ = 0;  // of the packets whose headers follow each other
  size_t taken_ = 0;
  roce::FlowIcrc* flow_ = nullptr;
  roce::IdRule rule_{};
  size_t headers_ = 0;
  size_t payload_ = 0;
};

void Port::on_run(const net::ReceivedRun& run) {
  const size_t packets = run.packets();
  const bool answer_first = answer_rides_last(run);
  if (answer_first) on_packet(run.packet(packets - 1));
  Followers followers(run);
  for (size_t i = 0; i + (answer_first ? 1 : 0) < packets; ++i) {
    followers.begin(i);
    ++counters_.packets;
    if (const Drop drop = take(run.packet(i), &followers); drop != Drop::kNone)
      ++counters_.drops[static_cast<size_t>(drop)];
    counters_.packets += followers.taken();
    i += followers.taken();
  }
}

// The headers were a process's of this host, so there is no ICRC; all else is as in a packet.
void Port::take_near(const arena::DatagramHeader& header, std::span<const std::byte> payload) {
  const base::Qpn destination{header.target & 0xffffff};
  auto drop = Drop::kNoConnection;
  Connection* connection = connections_[destination.value & 0xffff];
  if (destination.slot() == slot_ && connection != nullptr) {
    roce::Packet packet;
    packet.bth.service = roce::Service::kUd;
    const bool imm = (header.flags & arena::kDatagramImm) != 0;
    packet.bth.operation = imm ? roce::Operation::kSendOnlyImm : roce::Operation::kSendOnly;
    packet.bth.solicited = (header.flags & arena::kDatagramSolicited) != 0;
    packet.bth.pkey = header.pkey;
    packet.bth.destination = destination;
    packet.deth = {header.qkey, {header.source & 0xffffff}};
    packet.imm = header.imm;
    packet.payload = payload;
    const net::Received received{.from = {header.from},
                                 .to = {header.to},
                                 .traffic_class = header.traffic_class,
                                 .hop_limit = header.hop_limit,
                                 .bytes = payload};
    drop = (header.pkey & kPkeyBits) != kPkeyBits ? Drop::kBadPkey
                                                  : connection->on_packet(now_, packet, received);
  }
  if (drop != Drop::kNone) ++counters_.drops[static_cast<size_t>(drop)];
}

Drop Port::take(const net::Received& received, Followers* followers) {
  if (received.bytes.size() < kSmallestPacket) return Drop::kRunt;
  const base::Qpn destination = destination_of(received.bytes);
  if (destination == kMulticastQpn) return take_multicast(received);
  if (destination.slot() != slot_) {
    // It may be a datagram for who wants to know its hop limit. Of the first one that isn't known.
    if (!std::exchange(tells_hops_, true)) link_->tell_hops();
    if (environment_.pass_on) environment_.pass_on(received);
    return Drop::kStray;
  }
  if (destination == own_number()) return take_greeting(received);
  Connection* connection = connections_[destination.value & 0xffff];
  if (connection == nullptr) return Drop::kNoConnection;
  return take_for(*connection, received, followers);
}

Drop Port::take_for(Connection& connection, const net::Received& received, Followers* followers) {
  const net::Route* route = connection.route();
  const auto comes_by = [&](const net::Route& way) {
    return received.from == way.to && received.to == way.from;
  };
  bool known = route == nullptr || comes_by(*route);
  if (!known)
    if (const auto* other = connection.alternate(); other != nullptr && comes_by(*other)) {
      route = other;
      known = true;
    }
  const bool verbena = route != nullptr ? connection.recognised() : acquaintances_.is_verbena(received.from);
  const auto rule = verbena ? roce::IdRule::kSegment : roce::IdRule::kAny;
  roce::Flow flow = received.flow();
  roce::FlowIcrc& checks = flows_.of(flow);
  if (!checks.fits(rule, received.segment, received.bytes)) {
    if (route == nullptr || received.from == route->to) return Drop::kBadIcrc;
    flow.source = route->to.bytes;
    const bool rewritten = roce::icrc_fits(flow, rule, received.segment, received.bytes);
    return rewritten ? Drop::kNatRewritten : Drop::kBadIcrc;
  }
  const auto packet = roce::parse(received.bytes.first(received.bytes.size() - roce::kIcrcBytes));
  if (!known) {
    if (packet && packet->bth.migrated) connection.refuse_path();
    return Drop::kWrongAddress;
  }
  if (!packet) return drop_of(packet.error());
  if ((packet->bth.pkey & kPkeyBits) != kPkeyBits) return Drop::kBadPkey;
  if (!connection.dirty_) {
    connection.dirty_ = true;
    dirty_.push_back(&connection);
  }
  const Drop drop = connection.on_packet(now_, *packet, received);
  if (followers != nullptr && drop == Drop::kNone && followers->any() && engine::may_be_followed(*packet)) {
    followers->follow(checks, rule, *packet);
    (void)connection.on_more(now_, *packet, *followers);
  }
  // Whose datagram was good is worth knowing; who isn't heard of in any other way is not asked.
  if (route == nullptr && drop == Drop::kNone && !received.to.multicast())
    (void)knows({.from = received.to, .to = received.from, .interface = received.interface});
  return drop;
}

Drop Port::take_greeting(const net::Received& received) {
  if (!roce::icrc_fits(received.flow(), roce::IdRule::kAny, received.segment, received.bytes))
    return Drop::kBadIcrc;
  const auto packet = roce::parse(received.bytes.first(received.bytes.size() - roce::kIcrcBytes));
  if (!packet) return drop_of(packet.error());
  const auto greeting = roce::parse_greeting(*packet);
  if (!greeting) return Drop::kNoConnection;
  if (!greeting->answer) return answer_greeting(*greeting, received);
  if (greeting->from != roce::kGeneralServicesQpn) return take_pace(greeting->transaction);
  if (acquaintances_.recognise(received.from, greeting->transaction))
    for (Connection* connection : connections_)
      if (connection != nullptr && connection->route() != nullptr && connection->route()->to == received.from)
        connection->recognise();
  return Drop::kNone;
}

// A process that sends unreliably wants to know that we have come so far (pacing.hpp).
Drop Port::answer_greeting(const roce::Greeting& greeting, const net::Received& received) {
  const net::Route back{.from = received.to,
                        .to = received.from,
                        .interface = received.interface,
                        .slot = greeting.from.slot(),
                        .recognised = true};
  const std::lock_guard sending(sending_);
  send_greeting({.answer = true, .from = own_number(), .transaction = greeting.transaction}, greeting.from,
                back);
  return Drop::kNone;
}

Drop Port::take_pace(uint64_t number) {
  std::vector<uint16_t> waiting;
  {
    const std::lock_guard sending(sending_);
    waiting = pacing_.answered(number);
  }
  for (const uint16_t index : waiting)
    if (auto* connection = connections_[index]) schedule(*connection, now_, now_);
  return Drop::kNone;
}

}  // namespace verbena::wire
