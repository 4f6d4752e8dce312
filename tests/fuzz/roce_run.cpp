// Bytes as a UDP socket would hand them over, BTH to ICRC, through everything in roce/ that reads them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine_input.hpp"
#include "roce/codec.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"
#include "roce/print.hpp"

using namespace verbena::roce;

namespace {

// What was parsed comes back when it's emitted: first the bytes, then from them the same value.
void round_trip(const Packet& packet, size_t length) {
  std::vector<std::byte> once(length);
  FUZZ_EXPECT(emit(packet, once) == length);
  const auto again = parse(once);
  FUZZ_EXPECT(again && again->bth == packet.bth && again->payload.size() == packet.payload.size());
  std::vector<std::byte> twice(length);
  FUZZ_EXPECT(emit(*again, twice) == length && once == twice);
  FUZZ_EXPECT(length == 0 || emit(packet, std::span(twice).first(length - 1)) == 0);
}

void round_trip(const Mad& mad) {
  std::array<std::byte, kMadBytes> bytes;
  emit_mad(mad, bytes);
  const auto again = parse_mad(bytes);
  FUZZ_EXPECT(again && again->header == mad.header);
  FUZZ_EXPECT(verbena_data(mad).size() == verbena_data(*again).size());
}

}  // namespace

void verbena::fuzz::run_roce(std::span<const uint8_t> input) {
  const auto bytes = std::as_bytes(input);
  Flow flow;
  for (const bool ipv4 : {false, true}) {
    if (ipv4) flow.source[10] = flow.source[11] = flow.destination[10] = flow.destination[11] = 0xff;
    const auto id = sent_id(flow, 3, bytes);
    FUZZ_EXPECT(icrc_fits(flow, IdRule::kAny, 3, bytes) == id.has_value());
    if (id) {
      std::vector<std::byte> again(bytes.begin(), bytes.end());
      append_icrc(flow, *id, again);
      FUZZ_EXPECT(std::ranges::equal(again, bytes));
    }
  }
  const auto transport = bytes.first(bytes.size() < kIcrcBytes ? 0 : bytes.size() - kIcrcBytes);
  if (const auto packet = parse(transport)) {
    FUZZ_EXPECT(!to_line(*packet).empty());
    round_trip(*packet, transport.size());
    if (const auto mad = parse_mad(packet->payload)) round_trip(*mad);
  }
}
