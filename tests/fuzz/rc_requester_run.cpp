// Any sequence of answers, and of none, into a reliable connection's requester.
#include "engine/rc_requester.hpp"

#include <algorithm>

#include "engine_input.hpp"
#include "support/engine_model.hpp"

namespace verbena::fuzz {

using engine::DropReason;
using engine::Request;
using engine::RequestStatus;

namespace {

constexpr size_t kPacketsATurn = 64;
constexpr uint32_t kCapacity = 8;

Request request_of(const Step& step) {
  Request request{.kind = static_cast<Request::Kind>(step.opcode % 5),
                  .has_imm = (step.flags & 4) != 0,
                  .invalidates = (step.flags & 8) != 0,
                  .solicited = (step.flags & Step::kSolicited) != 0,
                  .fenced = (step.flags & Step::kAskAck) != 0,
                  .imm = step.value,
                  .key = kKey,
                  .address = kAddress + step.place,
                  .length = step.length,
                  .compare_add = step.value,
                  .swap = step.place};
  if (request.kind != Request::Kind::kSend) request.invalidates = false;
  if (request.fetches() || request.invalidates) request.has_imm = false;
  if (request.kind > Request::Kind::kRead) request.length = 8;
  return request;
}

class Run {
 public:
  explicit Run(uint8_t setup)
      : mtu_(256u << (setup & 3)),
        requester_({.target = base::Qpn{5},
                    .first_psn = kFirst,
                    .mtu = mtu_,
                    .capacity = kCapacity,
                    .fetches = 1u + (setup >> 2 & 3),
                    .timeout = (setup & 64) != 0 ? base::Duration{} : base::milliseconds(67),
                    .retries = setup >> 4 & 3u,
                    .rnr_retries = (setup & 128) != 0 ? 7u : 2u,
                    .window_bytes = 16u << 10},
                   host_) {}

  void post(const Step& step) {
    if (requester_.full()) return;
    if (step.payload == 0xffff) host_.set_unreadable(static_cast<uint32_t>(posted_.size()));
    if (step.payload == 0xfffe) host_.set_unwritable(static_cast<uint32_t>(posted_.size()));
    posted_.push_back(request_of(step));
    requester_.post(posted_.back());
  }

  void take(const Step& step) {
    roce::Packet packet;
    if (!packet_of(step, requester_.next_psn(), packet)) return;
    const size_t ended = host_.ends().size();
    const size_t scattered = host_.scattered().size();
    const bool failed = requester_.failed();
    const DropReason reason = requester_.on_packet(now_, packet);
    FUZZ_EXPECT(reason < DropReason::kCount);
    FUZZ_EXPECT(!failed || (host_.ends().size() == ended && host_.scattered().size() == scattered));
    const bool nothing = reason == DropReason::kGhostAnswer || reason == DropReason::kBadOpcode;
    if (nothing) FUZZ_EXPECT(host_.ends().size() == ended && requester_.failed() == failed);
    if (reason != DropReason::kNone) FUZZ_EXPECT(host_.scattered().size() == scattered);
  }

  void transmit(size_t most) {
    test::KeepingSink sink;
    sink.most = most;
    size_t packets = 0;
    while (packets <= kPacketsATurn && requester_.poll_transmit(now_, sink)) ++packets;
    for (const auto& kept : sink.sent) {
      const auto& packet = kept.packet;
      FUZZ_EXPECT(packet.info().request && packet.bth.destination == base::Qpn{5});
      FUZZ_EXPECT(packet.info().last ? kept.payload.size() <= mtu_ : kept.payload.size() == mtu_);
      FUZZ_EXPECT(packet.bth.psn.before(requester_.next_psn()));
      if (packet.info().reth)
        FUZZ_EXPECT(packet.reth.key == kKey &&
                    packet.reth.address - kAddress + packet.reth.length <= 2 << 16);
    }
  }

  void pass(base::Duration time) {
    now_ = now_ + time;
    if (requester_.next_deadline() > now_) return;
    requester_.on_timer(now_);
    // A timer that has rung rings again later, not at once: else whoever drives it never comes to rest.
    FUZZ_EXPECT(requester_.next_deadline() > now_);
  }

  void check() {
    const auto& ends = host_.ends();
    FUZZ_EXPECT(ends.size() <= posted_.size());
    for (; checked_ < ends.size(); ++checked_) {
      FUZZ_EXPECT(ends[checked_].number == checked_);
      // After the first that isn't a success nothing ends.
      FUZZ_EXPECT(ends[checked_].status == RequestStatus::kSuccess || checked_ + 1 == ends.size());
      if (posted_[checked_].kind == Request::Kind::kRead && ends[checked_].status == RequestStatus::kSuccess)
        FUZZ_EXPECT(bytes_of(static_cast<uint32_t>(checked_)) == posted_[checked_].length);
    }
    FUZZ_EXPECT(requester_.failed() == (!ends.empty() && ends.back().status != RequestStatus::kSuccess));
    FUZZ_EXPECT(!requester_.failed() || requester_.next_deadline() == engine::kNoDeadline);
  }

  // Nobody answers any more: it gives up, if it may.
  void end() {
    if (!timed_) return;
    for (int i = 0; i < 10'000 && !requester_.idle() && !requester_.failed(); ++i) {
      transmit(SIZE_MAX);
      if (requester_.idle() || requester_.failed()) break;
      FUZZ_EXPECT(requester_.next_deadline() != engine::kNoDeadline);
      pass(std::max(requester_.next_deadline() - now_, base::Duration{}));
    }
    FUZZ_EXPECT(requester_.idle() || requester_.failed());
    check();
  }
  void set_timed(bool timed) { timed_ = timed; }

 private:
  // Each byte of a READ once, in order.
  [[nodiscard]] uint64_t bytes_of(uint32_t number) const {
    uint64_t reached = 0;
    for (const auto& part : host_.scattered()) {
      if (part.number != number) continue;
      FUZZ_EXPECT(part.offset == reached);
      reached += part.bytes.size();
    }
    return reached;
  }

  uint32_t mtu_;
  test::ModelHost host_;
  engine::RcRequester requester_;
  std::vector<Request> posted_;
  size_t checked_ = 0;
  bool timed_ = true;
  base::Instant now_{1'000'000'000};
};

}  // namespace

void run_rc_requester(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const uint8_t setup = input.byte();
  Run run(setup);
  run.set_timed((setup & 64) == 0);
  Step step;
  while (input.next(step)) {
    switch (step.what()) {
      case Step::Kind::kPacket:
        run.take(step);
        break;
      case Step::Kind::kTime:
        run.pass(time_of(step));
        break;
      case Step::Kind::kPost:
        run.post(step);
        break;
      case Step::Kind::kReceives:
        run.transmit(step.value);
        break;
    }
    run.check();
  }
  run.end();
}

}  // namespace verbena::fuzz
