// A RoCEv2 packet as a value: what lies between the UDP header and the ICRC. Only values reach the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "roce/opcode.hpp"

namespace verbena::roce {

// Base transport header, IBA 9.2.
struct Bth {
  Service service = Service::kRc;
  Operation operation = Operation::kSendOnly;
  bool solicited = false;
  bool migrated = true;  // MigReq: accepted both ways
  uint8_t pad = 0;       // bytes after the payload that make it a multiple of 4
  uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  base::Qpn destination;
  bool ack_request = false;
  base::Psn psn;

  bool operator==(const Bth&) const = default;
  [[nodiscard]] uint8_t opcode() const { return opcode_of(service, operation); }
};

// RDMA extended transport header, IBA 9.3.3.
struct Reth {
  uint64_t address = 0;
  uint32_t key = 0;
  uint32_t length = 0;
  bool operator==(const Reth&) const = default;
};

// IBA 9.3.4.
struct AtomicEth {
  uint64_t address = 0;
  uint32_t key = 0;
  uint64_t swap_add = 0;
  uint64_t compare = 0;
  bool operator==(const AtomicEth&) const = default;
};

// ACK extended transport header, IBA 9.3.5.
struct Aeth {
  uint8_t syndrome = 0;
  uint32_t msn = 0;  // 24 bits
  bool operator==(const Aeth&) const = default;
};

// Datagram extended transport header, IBA 9.3.2.
struct Deth {
  uint32_t qkey = 0;
  base::Qpn source;
  bool operator==(const Deth&) const = default;
};

// The headers that the opcode names hold; the others are as made. Immediates and keys are in host order; an
// immediate is what ntohl() of ibv_send_wr::imm_data gives.
struct Packet {
  Bth bth;
  uint32_t xrc_srq = 0;  // XRCETH: number of the shared receive queue, 24 bits
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  uint64_t atomic_before = 0;  // AtomicAckETH
  Deth deth;
  uint32_t imm = 0;
  uint32_t invalidate_key = 0;         // IETH
  std::span<const std::byte> payload;  // without padding; not owned

  [[nodiscard]] const OpcodeInfo& info() const { return opcode_info(bth.opcode()); }
};

// A READ that is asked for in pairs is answered in packets of one length: each pair has a first and a last
// one, with an AETH in both (adr/0019).
inline constexpr uint32_t kPair = 2;

// Packets of a run differ in their numbers, which follow each other, in their payloads, which are as long,
// and in the address where they name one: each one's lies behind the bytes of the one before. READ requests
// ask for a pair each, and behind a first answer comes a pair's last.
inline void next_in_run(Packet& packet, size_t payload_bytes) {
  if (packet.bth.service == Service::kRc && packet.bth.operation == Operation::kReadRequest) {
    packet.bth.psn = packet.bth.psn + kPair;
    packet.reth.address += packet.reth.length;
    return;
  }
  packet.bth.psn = packet.bth.psn + 1;
  if (packet.info().reth) packet.reth.address += payload_bytes;
  if (packet.bth.service != Service::kRc) return;
  if (packet.bth.operation == Operation::kReadResponseFirst) {
    packet.bth.operation = Operation::kReadResponseLast;
  } else if (packet.bth.operation == Operation::kReadResponseLast) {
    packet.bth.operation = Operation::kReadResponseFirst;
    packet.aeth.msn = (packet.aeth.msn + 1) & 0xffffff;
  }
}

// AETH syndromes, IBA table 45.
namespace syndrome {
inline constexpr uint8_t kAck = 0x00;        // low 5 bits: credit count
inline constexpr uint8_t kNoCredits = 0x1f;  // of an ACK: credits aren't counted
inline constexpr uint8_t kRnr = 0x20;        // low 5 bits: timer code
inline constexpr uint8_t kSequence = 0x60;
inline constexpr uint8_t kInvalidRequest = 0x61;
inline constexpr uint8_t kRemoteAccess = 0x62;
inline constexpr uint8_t kOperational = 0x63;
inline constexpr uint8_t kKindMask = 0xe0;
}  // namespace syndrome

}  // namespace verbena::roce
