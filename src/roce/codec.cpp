#include "roce/codec.hpp"

#include <cstring>

#include "base/check.hpp"
#include "roce/bytes.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kBthBytes = 12;
constexpr uint8_t kSolicitedBit = 0x80;
constexpr uint8_t kMigratedBit = 0x40;
constexpr unsigned kPadShift = 4;
constexpr uint8_t kVersionMask = 0x0f;
constexpr uint8_t kFecnBit = 0x80;
constexpr uint8_t kBecnBit = 0x40;
constexpr uint32_t kAckRequestBit = 0x80000000;
constexpr uint32_t kLow24 = 0xffffff;

// Walks over headers whose presence has been checked against the length as a whole.
class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <typename T>
  T take() {
    const T value = load_be<T>(at_);
    at_ += sizeof(T);
    return value;
  }

 private:
  const std::byte* at_;
};

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename T>
  void put(T value) {
    store_be(at_, value);
    at_ += sizeof(T);
  }

 private:
  std::byte* at_;
};

// Reserved bits are sent as zero and ignored on receipt (IBA 9.2), so they have no place in the value.
void read_bth(Reader& from, Bth& bth) {
  const auto opcode = from.take<uint8_t>();
  const auto flags = from.take<uint8_t>();
  bth.service = static_cast<Service>(opcode >> 5);
  bth.operation = static_cast<Operation>(opcode & 0x1f);
  bth.solicited = flags & kSolicitedBit;
  bth.migrated = flags & kMigratedBit;
  bth.pad = flags >> kPadShift & 3;
  bth.pkey = from.take<uint16_t>();
  const auto destination = from.take<uint32_t>();
  bth.fecn = destination >> 24 & kFecnBit;
  bth.becn = destination >> 24 & kBecnBit;
  bth.destination.value = destination & kLow24;
  const auto psn = from.take<uint32_t>();
  bth.ack_request = psn & kAckRequestBit;
  bth.psn.value = psn & base::Psn::kMask;
}

void write_bth(Writer& into, const Bth& bth, unsigned pad) {
  into.put(bth.opcode());
  into.put(static_cast<uint8_t>((bth.solicited ? kSolicitedBit : 0) | (bth.migrated ? kMigratedBit : 0) |
                                (pad & 3) << kPadShift));
  into.put(bth.pkey);
  const uint32_t congestion = (bth.fecn ? kFecnBit : 0u) | (bth.becn ? kBecnBit : 0u);
  into.put(congestion << 24 | (bth.destination.value & kLow24));
  into.put((bth.ack_request ? kAckRequestBit : 0) | (bth.psn.value & base::Psn::kMask));
}

void read_extended(Reader& from, const OpcodeInfo& info, Packet& packet) {
  if (info.deth) {
    packet.deth.qkey = from.take<uint32_t>();
    packet.deth.source.value = from.take<uint32_t>() & kLow24;
  }
  if (info.xrc_eth) packet.xrc_srq = from.take<uint32_t>() & kLow24;
  if (info.reth) {
    packet.reth.address = from.take<uint64_t>();
    packet.reth.key = from.take<uint32_t>();
    packet.reth.length = from.take<uint32_t>();
  }
  if (info.atomic_eth) {
    packet.atomic.address = from.take<uint64_t>();
    packet.atomic.key = from.take<uint32_t>();
    packet.atomic.swap_add = from.take<uint64_t>();
    packet.atomic.compare = from.take<uint64_t>();
  }
  if (info.aeth) {
    const auto word = from.take<uint32_t>();
    packet.aeth = {static_cast<uint8_t>(word >> 24), word & kLow24};
  }
  if (info.atomic_ack_eth) packet.atomic_before = from.take<uint64_t>();
  if (info.imm) packet.imm = from.take<uint32_t>();
  if (info.ieth) packet.invalidate_key = from.take<uint32_t>();
}

void write_extended(Writer& into, const OpcodeInfo& info, const Packet& packet) {
  if (info.deth) {
    into.put(packet.deth.qkey);
    into.put(packet.deth.source.value & kLow24);
  }
  if (info.xrc_eth) into.put(packet.xrc_srq & kLow24);
  if (info.reth) {
    into.put(packet.reth.address);
    into.put(packet.reth.key);
    into.put(packet.reth.length);
  }
  if (info.atomic_eth) {
    into.put(packet.atomic.address);
    into.put(packet.atomic.key);
    into.put(packet.atomic.swap_add);
    into.put(packet.atomic.compare);
  }
  if (info.aeth) into.put(static_cast<uint32_t>(packet.aeth.syndrome) << 24 | (packet.aeth.msn & kLow24));
  if (info.atomic_ack_eth) into.put(packet.atomic_before);
  if (info.imm) into.put(packet.imm);
  if (info.ieth) into.put(packet.invalidate_key);
}

// By itself, so that the packet is made where the caller has it: it is large, and copied it costs more than
// to read it.
std::expected<Packet, ParseError> read_packet(std::span<const std::byte> transport, const OpcodeInfo& info,
                                              std::span<const std::byte> payload) {
  std::expected<Packet, ParseError> result;
  Reader from(transport.data());
  read_bth(from, result->bth);
  read_extended(from, info, *result);
  result->payload = payload;
  return result;
}

void write_headers(const Packet& packet, const OpcodeInfo& info, unsigned pad, std::byte* at) {
  Writer into(at);
  write_bth(into, packet.bth, pad);
  write_extended(into, info, packet);
  if (packet.bth.opcode() == kCnpOpcode) std::memset(at + kBthBytes, 0, info.header_bytes - kBthBytes);
}

}  // namespace

std::expected<Packet, ParseError> parse(std::span<const std::byte> transport) {
  if (transport.size() < kBthBytes) return std::unexpected(ParseError::kTooShort);
  if ((std::to_integer<uint8_t>(transport[1]) & kVersionMask) != 0) {
    return std::unexpected(ParseError::kBadVersion);
  }
  const OpcodeInfo& info = opcode_info(std::to_integer<uint8_t>(transport[0]));
  if (!info.known) return std::unexpected(ParseError::kBadOpcode);
  if (transport.size() < info.header_bytes) return std::unexpected(ParseError::kTooShort);

  // Headers are whole words and padding makes the payload so. Whether a first or middle packet is full, and
  // so has no padding, is known to who knows the MTU.
  const auto body = transport.subspan(info.header_bytes);
  if (body.size() % 4 != 0 || (!info.payload && !body.empty())) {
    return std::unexpected(ParseError::kBadLength);
  }
  const size_t pad = std::to_integer<uint8_t>(transport[1]) >> kPadShift & 3;
  if (pad > body.size()) return std::unexpected(ParseError::kBadPad);

  return read_packet(transport, info, body.first(body.size() - pad));
}

size_t emit_headers(const Packet& packet, unsigned pad, std::span<std::byte> into) {
  const OpcodeInfo& info = packet.info();
  CHECK(info.known && into.size() >= info.header_bytes);
  write_headers(packet, info, pad, into.data());
  return info.header_bytes;
}

size_t emit(const Packet& packet, std::span<std::byte> into) {
  const OpcodeInfo& info = packet.info();
  CHECK(info.known && (info.payload || packet.payload.empty()));
  const size_t length = packet.payload.size();
  const size_t pad = -length & 3;
  const size_t total = info.header_bytes + length + pad;
  if (into.size() < total) return 0;
  write_headers(packet, info, static_cast<unsigned>(pad), into.data());
  std::byte* const body = into.data() + info.header_bytes;
  if (length != 0) std::memcpy(body, packet.payload.data(), length);
  if (pad != 0) std::memset(body + length, 0, pad);
  return total;
}

}  // namespace verbena::roce
