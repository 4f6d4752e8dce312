// Bytes as a UDP socket would hand them over, BTH to ICRC, through everything in roce/ that reads them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "roce/codec.hpp"
#include "roce/icrc.hpp"
#include "roce/mad.hpp"
#include "roce/print.hpp"

using namespace verbena::roce;

namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

// What was parsed comes back when it's emitted: first the bytes, then from them the same value.
void round_trip(const Packet& packet, size_t length) {
  std::vector<std::byte> once(length);
  expect(emit(packet, once) == length);
  const auto again = parse(once);
  expect(again && again->bth == packet.bth && again->payload.size() == packet.payload.size());
  std::vector<std::byte> twice(length);
  expect(emit(*again, twice) == length && once == twice);
  expect(length == 0 || emit(packet, std::span(twice).first(length - 1)) == 0);
}

void round_trip(const Mad& mad) {
  std::array<std::byte, kMadBytes> bytes;
  emit_mad(mad, bytes);
  const auto again = parse_mad(bytes);
  expect(again && again->header == mad.header);
  expect(verbena_data(mad).size() == verbena_data(*again).size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Flow flow;
  for (const bool ipv4 : {false, true}) {
    if (ipv4) flow.source[10] = flow.source[11] = flow.destination[10] = flow.destination[11] = 0xff;
    const auto id = sent_id(flow, 3, bytes);
    expect(icrc_fits(flow, IdRule::kAny, 3, bytes) == id.has_value());
    if (id) {
      std::vector<std::byte> again(bytes.begin(), bytes.end());
      append_icrc(flow, *id, again);
      expect(std::ranges::equal(again, bytes));
    }
  }
  const auto transport = bytes.first(size < kIcrcBytes ? 0 : size - kIcrcBytes);
  if (const auto packet = parse(transport)) {
    expect(!to_line(*packet).empty());
    round_trip(*packet, transport.size());
    if (const auto mad = parse_mad(packet->payload)) round_trip(*mad);
  }
  return 0;
}
