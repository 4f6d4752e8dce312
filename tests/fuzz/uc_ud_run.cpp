// Any sequence of packets into the responders of unreliable connections and datagrams.
#include "engine/uc_responder.hpp"
#include "engine/ud.hpp"
#include "engine_input.hpp"
#include "support/engine_model.hpp"

namespace verbena::fuzz {

using engine::DropReason;

namespace {

// What the two have in common.
template <typename Responder, typename AfterPacket>
void run(Input& input, Responder& responder, test::ModelActions& actions, AfterPacket&& after) {
  base::Instant now{1'000'000'000};
  uint64_t posted = 0;
  Step step;
  while (input.next(step)) {
    switch (step.what()) {
      case Step::Kind::kPacket:
        after(step, now);
        break;
      case Step::Kind::kTime:
        now = now + time_of(step);
        break;
      default:
        actions.post_receives(step.value & 3);
        posted += step.value & 3;
        break;
    }
    FUZZ_EXPECT(actions.completions().size() + actions.receives() == posted);
    FUZZ_EXPECT(actions.failures() == 0 && !responder.failed());  // no receive of the model's is at fault
  }
}

}  // namespace

void run_uc_responder(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const uint8_t setup = input.byte();
  const uint32_t mtu = 256u << (setup & 3);
  test::ModelActions actions(kKey, kAddress, kRegionBytes);
  actions.set_receive_bytes(3 * mtu);
  actions.set_busy((setup & 4) != 0 ? 5 : 0);
  engine::UcResponder responder({.first_psn = kFirst, .mtu = mtu}, actions);
  run(input, responder, actions, [&](const Step& step, base::Instant now) {
    roce::Packet packet;
    if (!packet_of(step, responder.expected(), packet)) return;
    const base::Psn before = responder.expected();
    const bool inside = responder.in_message();
    const size_t completions = actions.completions().size();
    const auto state = actions.state();
    const DropReason reason = responder.on_packet(now, packet);
    // Nothing of a packet that isn't taken stays.
    FUZZ_EXPECT(reason == DropReason::kNone || actions.state() == state);
    if (reason == DropReason::kDuplicate || reason == DropReason::kBadOpcode)
      FUZZ_EXPECT(responder.expected() == before && responder.in_message() == inside);
    else
      FUZZ_EXPECT(responder.expected() == packet.bth.psn + 1);
    // A completion comes of a message's last packet, and of a whole message.
    if (actions.completions().size() == completions) return;
    FUZZ_EXPECT(packet.info().last && actions.completions().size() == completions + 1);
    FUZZ_EXPECT(packet.info().first || (inside && packet.bth.psn == before));
  });
}

void run_ud(std::span<const uint8_t> bytes) {
  Input input(bytes);
  const uint8_t setup = input.byte();
  const uint32_t mtu = 256u << (setup & 3);
  test::ModelActions actions(kKey, kAddress, kRegionBytes);
  actions.set_receive_bytes(mtu - (setup >> 4));
  actions.set_busy((setup & 4) != 0 ? 5 : 0);
  engine::UdResponder responder({.qkey = kQkey, .mtu = mtu}, actions);
  run(input, responder, actions, [&](const Step& step, base::Instant now) {
    roce::Packet packet;
    if (!packet_of(step, kFirst, packet)) return;
    const auto state = actions.state();
    const size_t completions = actions.completions().size();
    const DropReason reason = responder.on_packet(now, packet);
    FUZZ_EXPECT(reason == DropReason::kNone || actions.state() == state);
    FUZZ_EXPECT((reason == DropReason::kNone) == (actions.completions().size() == completions + 1));
    if (reason != DropReason::kNone) return;
    const auto& completion = actions.completions().back();
    FUZZ_EXPECT(packet.deth.qkey == kQkey && completion.bytes.size() == packet.payload.size());
    FUZZ_EXPECT(completion.arrival.source == packet.deth.source);
  });
}

}  // namespace verbena::fuzz
