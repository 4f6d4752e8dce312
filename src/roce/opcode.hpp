// The opcodes of IBA table 38: what each says of the packet that carries it, as data.
#pragma once

#include <array>
#include <cstdint>

namespace verbena::roce {

// High three bits of an opcode.
enum class Service : uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

// Low five bits. Not every service has every one.
enum class Operation : uint8_t {
  kSendFirst = 0,
  kSendMiddle = 1,
  kSendLast = 2,
  kSendLastImm = 3,
  kSendOnly = 4,
  kSendOnlyImm = 5,
  kWriteFirst = 6,
  kWriteMiddle = 7,
  kWriteLast = 8,
  kWriteLastImm = 9,
  kWriteOnly = 10,
  kWriteOnlyImm = 11,
  kReadRequest = 12,
  kReadResponseFirst = 13,
  kReadResponseMiddle = 14,
  kReadResponseLast = 15,
  kReadResponseOnly = 16,
  kAcknowledge = 17,
  kAtomicAcknowledge = 18,
  kCompareSwap = 19,
  kFetchAdd = 20,
  kSendLastInvalidate = 22,
  kSendOnlyInvalidate = 23,
  kAtomicWrite = 29,  // IBA annex A19, memory placement extensions; answered as an empty READ
};

struct OpcodeInfo {
  bool known = false;
  bool request = false;   // from requester to responder
  bool response = false;  // the other way: READ responses and acknowledgements
  bool first = false;     // begins a message; both with an only packet, a READ request, an atomic
  bool last = false;      // ends one; acknowledgements do neither
  bool send = false;
  bool write = false;
  bool read_response = false;
  bool atomic = false;  // compare-and-swap, fetch-and-add
  // Which headers follow the BTH, in this order.
  bool xrc_eth = false;
  bool reth = false;
  bool atomic_eth = false;
  bool aeth = false;
  bool atomic_ack_eth = false;
  bool deth = false;
  bool imm = false;
  bool ieth = false;
  bool payload = false;      // may carry one
  uint8_t header_bytes = 0;  // BTH and the others; of a CNP its 16 reserved bytes, too
  bool atomic_write = false;
};

[[nodiscard]] constexpr uint8_t opcode_of(Service service, Operation operation) {
  return static_cast<uint8_t>(static_cast<uint8_t>(service) << 5 | static_cast<uint8_t>(operation));
}

// Congestion notification, annex A17.9. Its low five bits are no Operation, though they read as one.
inline constexpr uint8_t kCnpOpcode = 0x81;

// All 256; what isn't known says so.
extern const std::array<OpcodeInfo, 256> kOpcodes;
[[nodiscard]] inline const OpcodeInfo& opcode_info(uint8_t opcode) { return kOpcodes[opcode]; }

[[nodiscard]] constexpr bool is_acknowledgement(uint8_t opcode) {
  return opcode == opcode_of(Service::kRc, Operation::kAcknowledge) ||
         opcode == opcode_of(Service::kXrc, Operation::kAcknowledge);
}

}  // namespace verbena::roce
