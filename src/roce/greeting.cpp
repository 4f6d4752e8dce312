#include "roce/greeting.hpp"

#include <array>

#include "base/check.hpp"
#include "roce/codec.hpp"
#include "roce/mad.hpp"

namespace verbena::roce {
namespace {

constexpr uint16_t kGreetingAttribute = 0x0010;
constexpr uint8_t kWireVersion = 2;  // who says so takes READs in pairs (adr/0019)

}  // namespace

void emit_greeting(const Greeting& greeting, base::Qpn to, std::span<std::byte, kGreetingBytes> into) {
  std::array<std::byte, kMadBytes> mad{};
  const std::array data{std::byte{kWireVersion}};
  emit_verbena_mad({.method = greeting.answer ? mad_method::kGetResponse : mad_method::kGet,
                    .transaction = greeting.transaction,
                    .attribute = kGreetingAttribute},
                   data, mad);
  Packet packet;
  packet.bth.service = Service::kUd;
  packet.bth.operation = Operation::kSendOnly;
  packet.bth.destination = to;
  packet.deth = {kGeneralServicesQkey, greeting.from};
  packet.payload = mad;
  CHECK(emit(packet, into) == into.size());
}

std::optional<Greeting> parse_greeting(const Packet& packet) {
  if (packet.bth.opcode() != opcode_of(Service::kUd, Operation::kSendOnly) ||
      packet.deth.qkey != kGeneralServicesQkey)
    return {};
  const auto mad = parse_mad(packet.payload);
  if (!mad || mad->header.attribute != kGreetingAttribute) return {};
  const auto data = verbena_data(*mad);
  if (data.empty() || data[0] != std::byte{kWireVersion}) return {};
  const bool answer = mad->header.method == mad_method::kGetResponse;
  if (!answer && mad->header.method != mad_method::kGet) return {};
  // The kernel's MAD layer sends back what it doesn't know, byte by byte, with a status that says so.
  if (mad->header.status != mad_status::kOk) return {};
  return Greeting{answer, packet.deth.source, mad->header.transaction};
}

}  // namespace verbena::roce
