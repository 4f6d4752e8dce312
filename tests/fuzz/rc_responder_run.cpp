// Any sequence of requests into a reliable connection's responder, or XRC's.
#include "engine/rc_responder.hpp"

#include <algorithm>

#include "engine_input.hpp"
#include "support/engine_model.hpp"

namespace verbena::fuzz {

using engine::DropReason;

namespace {

constexpr size_t kAnswersATurn = 64;

// What the responder may send: answers, to its requester, about packets that it has seen.
void check_answer(const test::KeptPacket& kept, const engine::RcResponder& responder, uint32_t mtu,
                  roce::Service service) {
  const auto& packet = kept.packet;
  FUZZ_EXPECT(packet.info().response && packet.bth.service == service);
  FUZZ_EXPECT(packet.bth.destination == base::Qpn{5} && !packet.bth.ack_request && !packet.bth.solicited);
  FUZZ_EXPECT(kept.payload.size() <= mtu);
  const bool nak = (packet.aeth.syndrome & roce::syndrome::kKindMask) != roce::syndrome::kAck;
  // A NAK names the packet that is awaited, or the one at fault.
  if (packet.bth.operation != roce::Operation::kAcknowledge || !nak || responder.failed())
    FUZZ_EXPECT(packet.bth.psn.before(responder.expected()) || responder.failed());
  else
    FUZZ_EXPECT(packet.bth.psn == responder.expected());
}

}  // namespace

void run_rc_responder(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const uint8_t setup = input.byte();
  const uint32_t mtu = 256u << (setup & 3);
  test::ModelActions actions(kKey, kAddress, kRegionBytes);
  actions.set_receive_bytes(3 * mtu);
  actions.set_busy((setup & 4) != 0 ? 5 : 0);
  if ((setup & 8) != 0) actions.count_credits();
  const auto service = (setup & 64) != 0 ? roce::Service::kXrc : roce::Service::kRc;
  if (service == roce::Service::kXrc) actions.set_queues(3);
  engine::RcResponder responder({.service = service,
                                 .requester = base::Qpn{5},
                                 .first_psn = kFirst,
                                 .mtu = mtu,
                                 .fetches = 1u + (setup >> 4 & 3),
                                 .rnr_timer = 9},
                                actions);
  base::Instant now{1'000'000'000};
  uint64_t posted = 0;
  Step step;
  while (input.next(step)) {
    switch (step.what()) {
      case Step::Kind::kPacket: {
        roce::Packet packet;
        if (!packet_of(step, responder.expected(), packet)) break;
        const base::Psn before = responder.expected();
        const bool failed = responder.failed();
        const auto state = actions.state();
        const DropReason reason = responder.on_packet(now, packet);
        const bool taken = reason == DropReason::kNone && !responder.failed();
        // Only what is taken moves the numbers and changes memory.
        FUZZ_EXPECT(taken || responder.expected() == before);
        FUZZ_EXPECT(!taken || packet.bth.psn == before);
        FUZZ_EXPECT(taken || responder.failed() || actions.state() == state);
        FUZZ_EXPECT(!failed || responder.failed());
        break;
      }
      case Step::Kind::kTime:
        now = now + time_of(step);
        break;
      case Step::Kind::kReceives:
        actions.post_receives(step.value & 3);
        posted += step.value & 3;
        break;
      case Step::Kind::kPost: {
        test::KeepingSink sink;
        sink.most = step.value;
        size_t answers = 0;
        while (answers <= kAnswersATurn && responder.poll_transmit(now, sink)) ++answers;
        for (const auto& kept : sink.sent) check_answer(kept, responder, mtu, service);
        break;
      }
    }
    FUZZ_EXPECT(actions.completions().size() + actions.receives() == posted);
    FUZZ_EXPECT(actions.failures() <= 1);
  }
  // All that is due comes to an end: a READ is at most the region, asked for again a few times.
  test::KeepingSink sink;
  actions.set_busy(0);
  size_t answers = 0;
  while (responder.poll_transmit(now, sink)) FUZZ_EXPECT(++answers < 100'000);
  FUZZ_EXPECT(!responder.has_answers());
  FUZZ_EXPECT(actions.failures() == (responder.failed() ? 1u : 0u));
}

}  // namespace verbena::fuzz
