#include "wire/port.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "roce/bytes.hpp"
#include "roce/codec.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"
#include "verbs/access_burst.hpp"
#include "verbs/queue_owner.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::wire {

namespace {

constexpr size_t kReceiveBudget = 256;  // packets, then others have their turn
constexpr size_t kSmallestPacket = 12 + roce::kIcrcBytes;
constexpr uint16_t kPkeyBits = 0x7fff;  // without the membership bit
constexpr base::Qpn kMulticastQpn{0xffffff};
constexpr std::byte kMigrated{0x40};     // in the BTH's second byte, IBA 9.2.3; packets have it set
constexpr size_t kMostHeaderBytes = 64;  // of any packet

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

// Neither the first nor the last of a message, and of no consequence but that its bytes have come.
bool is_middle(const roce::Packet& packet) {
  const auto& info = packet.info();
  return info.payload && !info.first && !info.last && !packet.bth.ack_request;
}

}  // namespace

Port::Port(std::unique_ptr<net::Link> link, base::Slot slot, Environment environment)
    : link_(std::move(link)),
      slot_(slot),
      environment_(std::move(environment)),
      connections_(1u << 16),
      transmitter_(*link_),
      lanes_(environment_.own, slot, environment_.meet) {}

Port::~Port() = default;

void Port::add(Connection& connection) {
  {
    const std::lock_guard lock(receiving_);
    connections_[connection.own().value & 0xffff] = &connection;
    count_.fetch_add(1);
    if (const net::Route* route = connection.route(); route != nullptr && !route->recognised && knows(*route))
      connection.recognise();
  }
  environment_.wake();  // the helper thread watches the socket from now on
}

void Port::remove(Connection& connection) {
  const std::lock_guard lock(receiving_);
  auto& place = connections_[connection.own().value & 0xffff];
  if (place == &connection) place = nullptr;
  std::erase(dirty_, &connection);
  if (std::erase(owing_, &connection) != 0) {
    connection.acknowledge(base::now());
    const std::lock_guard sending(sending_);
    transmitter_.flush();
  }
  count_.fetch_sub(1);
}

// Once: a peer that sends on and on would never be answered.
bool Port::put_off(Connection& connection) {
  if (!may_put_off_ || connection.owes_acknowledgement()) return false;
  connection.owes_.store(true, std::memory_order_relaxed);
  owing_.push_back(&connection);
  return true;
}

bool Port::owes() {
  std::erase_if(owing_, [](const Connection* connection) { return !connection->owes_acknowledgement(); });
  return !owing_.empty();
}

void Port::pay(std::vector<Connection*>& owing, base::Instant now) {
  for (Connection* connection : owing) {
    connection->acknowledge(now);
    settle(*connection);
  }
  owing.clear();
}

void Port::acknowledge_all() {
  const std::unique_lock lock(receiving_, std::try_to_lock);
  if (!lock) return;  // somebody drives, and may be this very thread: an ending program doesn't wait
  pay(owing_, base::now());
  const std::lock_guard sending(sending_);
  transmitter_.flush();
}

bool Port::drive(base::Instant now, Driver driver) {
  if (driver == Driver::kPoller) driven_at_.store(now.ns, std::memory_order_relaxed);
  bool worked = false;
  {
    const verbs::HeldBells bells;  // rung when all below is sent
    const std::unique_lock lock(receiving_, std::try_to_lock);
    if (!lock) {
      // Whoever holds it may wait for this very core.
      ::sched_yield();
      return false;
    }
    const verbs::AccessBurst memory;
    now_ = now;
    const size_t near = lanes_.receive(
        kReceiveBudget, [&](const auto& header, const auto& payload) { take_near(header, payload); });
    worked = near > 0;
    if (look_at_socket(near)) worked |= take_in(now) > 0;
    // Most turns of those who spin find nothing at all. A stray may have come before (take_stray).
    if (owes() || worked || !dirty_.empty() || something_due(now)) send_due(now, driver);
    if (environment_.shown != nullptr) publish_counters(now);
  }
  return conclude_failures() || worked;
}

void Port::send_due(base::Instant now, Driver driver) {
  may_put_off_ = driver == Driver::kPoller;
  owed_.swap(owing_);
  for (Connection* connection : dirty_) {
    connection->dirty_ = false;
    connection->go_on(now);
  }
  dirty_.clear();
  pay(owed_, now);
  run_scheduled(now);
  may_put_off_ = false;
  if (now >= acquaintances_.next_due()) greet(now);
  const std::lock_guard sending(sending_);
  transmitter_.flush();
}

bool Port::conclude_failures() {
  if (!failed_.load(std::memory_order_relaxed)) return false;
  std::vector<verbs::SendQueue::Failure> failures;
  {
    const std::lock_guard lock(failures_lock_);
    failures.swap(failures_);
    failed_.store(false, std::memory_order_relaxed);
  }
  for (auto& failure : failures) failure.queue_pair->fail_as_requester(failure.life);
  return !failures.empty();
}

// A timer may be due only because nobody has looked for a while: then what it waits for may be here, behind
// what is handed over first.
size_t Port::take_in(base::Instant now) {
  size_t taken = 0;
  size_t more = 0;
  do {
    more = link_->receive(*this, kReceiveBudget - taken);
    taken += more;
  } while (more > 0 && taken < kReceiveBudget && scheduled_.load(std::memory_order_relaxed) <= now.ns);
  link_due_.store(link_->next_deadline().value_or(base::Instant{INT64_MAX}).ns, std::memory_order_relaxed);
  return taken;
}

bool Port::something_due(base::Instant now) const {
  return scheduled_.load(std::memory_order_relaxed) <= now.ns || now >= acquaintances_.next_due();
}

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

void Port::conclude_later(verbs::SendQueue::Failure failure) {
  if (!failure.queue_pair) return;
  const std::lock_guard lock(failures_lock_);
  failures_.push_back(std::move(failure));
  failed_.store(true, std::memory_order_relaxed);
}

void Port::on_packet(const net::Received& received) {
  ++counters_.packets;
  if (const Drop drop = take(received); drop != Drop::kNone) ++counters_.drops[static_cast<size_t>(drop)];
}

// Packets of a run behind one of them that differ from it in number and payload only.
class Port::Followers final : public engine::MorePayloads {
 public:
  Followers(const net::ReceivedRun& run, size_t first) : run_(run), index_(first) {}

  // Where the first one was good: who checks the others, and how.
  void follow(roce::FlowIcrc& flow, roce::IdRule rule, const roce::Packet& first) {
    flow_ = &flow;
    rule_ = rule;
    headers_ = first.info().header_bytes;
  }
  [[nodiscard]] size_t taken() const { return taken_; }

  [[nodiscard]] size_t most() const override { return run_.packets() - index_ - 1; }
  [[nodiscard]] std::span<const std::byte> next() override {
    const auto before = run_.packet_bytes(index_);
    if (most() == 0) return {};
    const auto packet = run_.packet_bytes(index_ + 1);
    if (packet.size() != before.size() || !follows(packet.data(), before.data()) ||
        !flow_->fits(rule_, static_cast<unsigned>(index_ + 1), packet))
      return {};
    ++index_;
    ++taken_;
    return packet.subspan(headers_, packet.size() - headers_ - roce::kIcrcBytes);
  }

 private:
  // The same headers but for the PSN, which is the next one. AckReq, before the PSN, is the same.
  [[nodiscard]] bool follows(const std::byte* packet, const std::byte* before) const {
    constexpr size_t kPsnAt = 8;
    constexpr size_t kBehindPsn = 12;
    const auto number = [](const std::byte* headers) { return roce::load_be<uint32_t>(headers + kPsnAt); };
    const uint32_t last = number(before);
    const uint32_t next = (last & ~base::Psn::kMask) | ((last + 1) & base::Psn::kMask);
    return std::memcmp(packet, before, kPsnAt) == 0 && number(packet) == next &&
           std::memcmp(packet + kBehindPsn, before + kBehindPsn, headers_ - kBehindPsn) == 0;
  }

  const net::ReceivedRun& run_;
  size_t index_;
  size_t taken_ = 0;
  roce::FlowIcrc* flow_ = nullptr;
  roce::IdRule rule_{};
  size_t headers_ = 0;
};

void Port::on_run(const net::ReceivedRun& run) {
  const size_t packets = run.packets();
  const bool answer_first = answer_rides_last(run);
  if (answer_first) on_packet(run.packet(packets - 1));
  for (size_t i = 0; i + (answer_first ? 1 : 0) < packets; ++i) {
    Followers followers(run, i);
    ++counters_.packets;
    if (const Drop drop = take(run.packet(i), &followers); drop != Drop::kNone)
      ++counters_.drops[static_cast<size_t>(drop)];
    counters_.packets += followers.taken();
    i += followers.taken();
  }
}

// A look at the socket costs more than a datagram by lane. While those come it is looked at now and then.
bool Port::look_at_socket(size_t near) {
  constexpr unsigned kLately = 256;
  constexpr unsigned kEach = 8;
  if (near > 0)
    near_lately_ = kLately;
  else if (near_lately_ > 0)
    --near_lately_;
  return near_lately_ == 0 || ++round_ % kEach == 0;
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
  if (followers != nullptr && drop == Drop::kNone && followers->most() > 0 && is_middle(*packet)) {
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

void Port::greet(base::Instant now) {
  for (const auto& greeting : acquaintances_.due(now)) {
    const std::lock_guard sending(sending_);
    send_greeting({.from = own_number(), .transaction = greeting.transaction}, roce::kGeneralServicesQpn,
                  greeting.route);
  }
}

void Port::send_greeting(const roce::Greeting& greeting, base::Qpn to, const net::Route& route) {
  const auto space = transmitter_.space(roce::kGreetingBytes + roce::kIcrcBytes);
  roce::emit_greeting(greeting, to, space.first<roce::kGreetingBytes>());
  transmitter_.commit(route, roce::kGreetingBytes + roce::kIcrcBytes);
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

void Port::schedule(Connection& connection, base::Instant due, base::Instant now) {
  const auto index = static_cast<uint16_t>(connection.own().value);
  {
    const std::lock_guard lock(schedule_lock_);
    if (due <= now) {
      if (std::exchange(connection.queued_, true)) return;
      ready_.push_back(index);
      scheduled_.store(0, std::memory_order_relaxed);
    } else {
      // One that is there earlier asks again when it is due.
      if (connection.timer_ <= due) return;
      connection.timer_ = due;
      timers_.push({due, index});
      if (due.ns < scheduled_.load(std::memory_order_relaxed))
        scheduled_.store(due.ns, std::memory_order_relaxed);
    }
  }
  if (due.ns < promised_.load(std::memory_order_relaxed)) environment_.wake();
}

base::Instant Port::next_due() {
  const std::lock_guard lock(schedule_lock_);
  if (!ready_.empty() || lanes_.waiting()) return {};
  const base::Instant others{
      std::min({acquaintances_.next_due().ns, link_due_.load(std::memory_order_relaxed),
                show_at_.load(std::memory_order_relaxed)})};
  return timers_.empty() ? others : std::min(timers_.top().due, others);
}

void Port::run_scheduled(base::Instant now) {
  due_.clear();
  {
    const std::lock_guard lock(schedule_lock_);
    due_.swap(ready_);
    for (const uint16_t index : due_)
      if (auto* connection = connections_[index]) connection->queued_ = false;
    for (; !timers_.empty() && timers_.top().due <= now; timers_.pop()) {
      auto* connection = connections_[timers_.top().index];
      // A timer of a connection that was here before counts for nothing.
      if (connection == nullptr || connection->timer_ != timers_.top().due) continue;
      connection->timer_ = {INT64_MAX};
      due_.push_back(timers_.top().index);
    }
    scheduled_.store(timers_.empty() ? INT64_MAX : timers_.top().due.ns, std::memory_order_relaxed);
  }
  for (const uint16_t index : due_)
    if (auto* connection = connections_[index]) connection->go_on(now);
}

std::span<std::byte> Port::Sending::room(uint8_t opcode, size_t payload_bytes) {
  const size_t headers = roce::opcode_info(opcode).header_bytes;
  space_ = port_.transmitter_.space(headers + ((payload_bytes + 3) & ~size_t{3}) + roce::kIcrcBytes);
  return space_.subspan(headers, payload_bytes);
}

void Port::Sending::commit(const roce::Packet& packet) {
  const size_t payload = packet.payload.size();
  const size_t pad = -payload & 3;
  const size_t headers = roce::emit_headers(packet, static_cast<unsigned>(pad), space_);
  if (!migrated_) space_[1] &= ~kMigrated;
  std::ranges::fill(space_.subspan(headers + payload, pad), std::byte{0});
  const size_t bytes = headers + payload + pad + roce::kIcrcBytes;
  port_.transmitter_.commit(route_, bytes);
  if (!paced_) return;
  if (const auto number = port_.pacing_.sent(route_, bytes, now_))
    port_.send_greeting({.from = port_.own_number(), .transaction = *number},
                        base::Qpn::make(packet.bth.destination.slot(), 0), route_);
}

size_t Port::Sending::run_room(uint8_t opcode, size_t payload_bytes) {
  if (paced_) return 0;
  return port_.transmitter_.room_for(
      route_, roce::opcode_info(opcode).header_bytes + payload_bytes + roce::kIcrcBytes);
}

void Port::Sending::commit_run(const roce::Packet& first, std::span<const std::byte> memory,
                               size_t payload_bytes) {
  std::array<std::byte, kMostHeaderBytes> space;
  const auto headers = std::span(space).first(roce::emit_headers(first, 0, space));
  if (!migrated_) headers[1] &= ~kMigrated;
  const verbs::AsAdapter as_adapter;
  for (base::Psn psn = first.bth.psn; !memory.empty(); psn = psn + 1) {
    roce::set_psn(headers, psn);
    port_.transmitter_.append(route_, headers, memory.first(payload_bytes));
    memory = memory.subspan(payload_bytes);
  }
}

void Port::Sending::carry(const roce::Packet& acknowledgement) {
  const auto space = port_.transmitter_.rider_space();
  const size_t headers = roce::emit_headers(acknowledgement, 0, space);
  if (!migrated_) space[1] &= ~kMigrated;
  port_.transmitter_.carry(route_, headers + roce::kIcrcBytes);
}

void Port::Sending::await_turn(Connection& connection) {
  if (ready()) return;
  port_.pacing_.wait(route_, static_cast<uint16_t>(connection.own().value));
  port_.schedule(connection, port_.pacing_.opens_at(route_), now_);
}

}  // namespace verbena::wire
