#include "golden_replay.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "engine/uc_requester.hpp"
#include "engine/uc_responder.hpp"
#include "engine/ud.hpp"
#include "roce/codec.hpp"
#include "roce/print.hpp"

namespace verbena::test {

using engine::DropReason;
using engine::Request;
using roce::Operation;
using roce::Packet;
using roce::Service;

namespace {

constexpr uint32_t kMtu = 1024;  // of all captures
constexpr size_t kRegionBytes = 1 << 16;
constexpr uint64_t kPage = 4096;
using Source = std::array<uint8_t, 16>;

struct Captured {
  CapturedPacket raw;
  Packet packet;
};

// A message as its packets tell it.
struct Message {
  Request request;
  std::vector<std::byte> bytes;
};

uint32_t answers_of(const Packet& packet) {
  return packet.bth.operation == Operation::kReadRequest
             ? std::max(1u, (packet.reth.length + kMtu - 1) / kMtu)
             : 1;
}

class WholeReplay {
 public:
  WholeReplay(const std::string& file, Fault fault) : fault_(fault) {
    for (auto& raw : golden_packets(file)) {
      const auto packet = roce::parse(raw.transport());
      if (!packet) throw std::runtime_error(raw.where + " can't be parsed");
      // Datagrams to QP1 are the CM's.
      if (packet->bth.destination.value < 2) continue;
      packets_.push_back({raw, {}});
      packets_.back().packet = *roce::parse(packets_.back().raw.transport());
    }
    if (packets_.empty()) throw std::runtime_error(file + " has no packets");
  }

  Replay run() {
    for (size_t i = 0; i < packets_.size(); ++i) {
      const Captured& captured = packets_[i];
      Side& from = side(captured.raw.flow.source);
      Side& to = side(captured.raw.flow.destination);
      if (captured.packet.info().request)
        request(i, from, to);
      else
        response(captured, from, to);
    }
    for (auto& [source, end] : sides_) conclude(*end);
    return std::move(result_);
  }

 private:
  // One host of the capture.
  struct Side {
    ModelHost host;
    std::optional<engine::RcRequester> rc;
    std::optional<engine::UcRequester> uc;
    std::optional<engine::UdRequester> ud;
    std::unique_ptr<ModelActions> actions;
    std::optional<engine::RcResponder> rc_responder;
    std::optional<engine::UcResponder> uc_responder;
    std::optional<engine::UdResponder> ud_responder;
    base::Instant now{1'000'000'000};
    base::Psn end;  // one past the highest PSN sent
    uint32_t posted = 0;
    std::vector<std::vector<std::byte>> expected;  // what completes in its receives
  };
  struct OneWay final : engine::DatagramWays {
    engine::PacketSink& way(const engine::DatagramRequest&) override { return sink; }
    KeepingSink sink;
  };

  Side& side(const Source& address) {
    auto& place = sides_[address];
    if (!place) place = std::make_unique<Side>();
    return *place;
  }

  void request(size_t index, Side& from, Side& to) {
    const Captured& captured = packets_[index];
    const Packet& packet = captured.packet;
    open(captured, from, to);
    const bool again = packet.bth.psn.before(from.end);
    if (again) {
      from.now = from.rc->next_deadline();
      from.rc->on_timer(from.now);
      to.actions->post_receives(rnr_follows(index) ? 0 : 1);
    } else {
      from.end = packet.bth.psn + answers_of(packet);
      if (packet.info().first) post(index, from, to);
    }
    OneWay way;
    if (from.rc) (void)from.rc->poll_transmit(from.now, way.sink);
    if (from.uc) (void)from.uc->poll_transmit(from.now, way.sink);
    if (from.ud) (void)from.ud->poll_transmit(from.now, way);
    pair(captured, way.sink);
    DropReason reason = DropReason::kNone;
    if (to.rc_responder) reason = to.rc_responder->on_packet(to.now, packet);
    if (to.uc_responder) reason = to.uc_responder->on_packet(to.now, packet);
    if (to.ud_responder) reason = to.ud_responder->on_packet(to.now, packet);
    const bool told = reason == DropReason::kNotReady && rnr_follows(index);
    if (reason != DropReason::kNone && !told) refused(captured, reason);
  }

  void response(const Captured& captured, Side& from, Side& to) {
    KeepingSink sink;
    (void)from.rc_responder->poll_transmit(from.now, sink);
    pair(captured, sink);
    if (const auto reason = to.rc->on_packet(to.now, captured.packet); reason != DropReason::kNone)
      refused(captured, reason);
  }

  void pair(const Captured& captured, KeepingSink& sink) {
    Pairing pairing{.where = captured.raw.where, .rxe = captured.raw};
    if (!sink.sent.empty()) {
      pairing.sent = true;
      pairing.ours = std::move(sink.sent.front());
    }
    result_.packets.push_back(std::move(pairing));
  }

  void refused(const Captured& captured, DropReason reason) {
    result_.refused.push_back(captured.raw.where + ": " + std::string(engine::name_of(reason)));
  }

  // Both ends, when the first packet of a direction shows their numbers.
  void open(const Captured& captured, Side& from, Side& to) {
    const auto& bth = captured.packet.bth;
    if (to.actions) return;
    from.end = bth.psn;
    to.actions = std::make_unique<ModelActions>(key(captured.packet), address(captured.packet), kRegionBytes);
    switch (bth.service) {
      case Service::kRc:
        from.rc.emplace(engine::RcRequesterConfig{.target = bth.destination,
                                                  .first_psn = bth.psn,
                                                  .mtu = kMtu,
                                                  .capacity = 64,
                                                  .timeout = base::milliseconds(67)},
                        from.host);
        to.rc_responder.emplace(engine::RcResponderConfig{.requester = requester_qpn(captured),
                                                          .first_psn = bth.psn,
                                                          .mtu = kMtu,
                                                          .rnr_timer = rnr_timer()},
                                *to.actions);
        break;
      case Service::kUc:
        from.uc.emplace(
            engine::UcRequesterConfig{
                .target = bth.destination, .first_psn = bth.psn, .mtu = kMtu, .capacity = 64},
            from.host);
        to.uc_responder.emplace(engine::UcResponderConfig{.first_psn = bth.psn, .mtu = kMtu}, *to.actions);
        break;
      default:
        from.ud.emplace(
            engine::UdRequesterConfig{
                .source = captured.packet.deth.source, .first_psn = bth.psn, .mtu = kMtu, .capacity = 64},
            from.host);
        to.ud_responder.emplace(engine::UdResponderConfig{.qkey = captured.packet.deth.qkey, .mtu = kMtu},
                                *to.actions);
        break;
    }
  }

  void post(size_t index, Side& from, Side& to) {
    const Captured& captured = packets_[index];
    const Message message = message_at(index);
    const Request& request = message.request;
    from.host.set_bytes(from.posted++, message.bytes);
    result_.posted.push_back(request);
    if (request.consumes_receive() && !rnr_follows(index)) to.actions->post_receives(1);
    if (fault_ == Fault::kShortReceive) to.actions->set_receive_bytes(message.bytes.size() - 1);
    if (request.kind == Request::Kind::kSend) to.expected.push_back(message.bytes);
    if (request.fetches() && fault_ == Fault::kNone) prepare(index, *to.actions, request);
    if (from.rc) from.rc->post(request);
    if (from.uc) from.uc->post(request);
    if (from.ud)
      from.ud->post(
          {.request = request, .target = captured.packet.bth.destination, .qkey = captured.packet.deth.qkey});
  }

  // The memory holds what rxe's answer shows; words that atomics have changed are left to our own.
  void prepare(size_t index, ModelActions& actions, const Request& request) {
    const auto offset = request.address - base_;
    std::byte* const at = actions.memory().data() + offset;
    for (size_t i = index + 1, done = 0; i < packets_.size() && done < request.length; ++i) {
      const Packet& answer = packets_[i].packet;
      if (!answer.info().response) break;
      if (request.kind == Request::Kind::kRead) {
        if (!answer.payload.empty()) std::memcpy(at + done, answer.payload.data(), answer.payload.size());
        done += answer.payload.size();
      } else {
        if (!touched_[request.address]) std::memcpy(at, &answer.atomic_before, sizeof answer.atomic_before);
        touched_[request.address] = true;
        break;
      }
    }
  }

  // Puts the packets of a message together.
  Message message_at(size_t index) const {
    Message message;
    Request& request = message.request;
    const Packet& first = packets_[index].packet;
    const auto kind = [&] {
      if (first.info().send) return Request::Kind::kSend;
      if (first.info().write) return Request::Kind::kWrite;
      if (first.bth.operation == Operation::kReadRequest) return Request::Kind::kRead;
      return first.bth.operation == Operation::kFetchAdd ? Request::Kind::kFetchAdd
                                                         : Request::Kind::kCompareSwap;
    };
    request.kind = kind();
    request.key = first.info().atomic ? first.atomic.key : first.reth.key;
    request.address = first.info().atomic ? first.atomic.address : first.reth.address;
    request.compare_add =
        request.kind == Request::Kind::kFetchAdd ? first.atomic.swap_add : first.atomic.compare;
    request.swap = first.atomic.swap_add;
    base::Psn next = first.bth.psn;
    for (size_t i = index; i < packets_.size(); ++i) {
      const Packet& packet = packets_[i].packet;
      if (packets_[i].raw.flow.source != packets_[index].raw.flow.source || packet.bth.psn != next) continue;
      next = next + 1;
      message.bytes.insert(message.bytes.end(), packet.payload.begin(), packet.payload.end());
      if (!packet.info().last) continue;
      request.solicited = packet.bth.solicited;
      request.has_imm = packet.info().imm;
      request.invalidates = packet.info().ieth;
      request.imm = packet.info().imm ? packet.imm : packet.invalidate_key;
      break;
    }
    request.length = request.kind == Request::Kind::kRead ? first.reth.length
                     : first.info().atomic                ? 8
                                                          : message.bytes.size();
    return message;
  }

  [[nodiscard]] static bool is_rnr(const Packet& packet) {
    return packet.bth.operation == Operation::kAcknowledge &&
           (packet.aeth.syndrome & roce::syndrome::kKindMask) == roce::syndrome::kRnr;
  }
  [[nodiscard]] bool rnr_follows(size_t index) const {
    return index + 1 < packets_.size() && is_rnr(packets_[index + 1].packet);
  }
  [[nodiscard]] uint8_t rnr_timer() const {
    for (const auto& captured : packets_)
      if (is_rnr(captured.packet)) return captured.packet.aeth.syndrome & 0x1f;
    return 0;
  }
  // Acknowledgements are sent there.
  [[nodiscard]] base::Qpn requester_qpn(const Captured& first) const {
    for (const auto& captured : packets_)
      if (captured.packet.info().response && captured.raw.flow.destination == first.raw.flow.source)
        return captured.packet.bth.destination;
    return {};
  }
  [[nodiscard]] uint32_t key(const Packet& packet) const {
    const uint32_t seen = packet.info().atomic ? packet.atomic.key : packet.reth.key;
    return fault_ == Fault::kBadKey ? seen + 1 : seen;
  }
  uint64_t address(const Packet& packet) {
    const uint64_t seen = packet.info().atomic ? packet.atomic.address : packet.reth.address;
    base_ = seen / kPage * kPage;
    if (fault_ == Fault::kBadAddress) base_ += 2 * kRegionBytes;
    return base_;
  }

  void conclude(Side& end) {
    OneWay way;
    if (end.rc)
      while (end.rc->poll_transmit(end.now, way.sink)) {
      }
    if (end.rc_responder)
      while (end.rc_responder->poll_transmit(end.now, way.sink)) {
      }
    for (const auto& kept : way.sink.sent) result_.leftover.push_back(roce::to_line(kept.whole()));
    for (const auto& ended : end.host.ends()) result_.ended.push_back(ended.status);
    if (!end.actions) return;
    size_t sends = 0;
    for (const auto& completion : end.actions->completions())
      if (completion.arrival.kind == engine::Arrival::Kind::kSend)
        result_.received_as_sent = result_.received_as_sent && completion.bytes == end.expected.at(sends++);
    result_.receives_completed += end.actions->completions().size();
  }

  Fault fault_;
  std::vector<Captured> packets_;
  std::map<Source, std::unique_ptr<Side>> sides_;
  std::map<uint64_t, bool> touched_;
  uint64_t base_ = 0;
  Replay result_;
};

}  // namespace

Replay replay(const std::string& file, Fault fault) { return WholeReplay(file, fault).run(); }

}  // namespace verbena::test
