#include "roce/print.hpp"

#include <fmt/format.h>

#include <iterator>

namespace verbena::roce {
namespace {

void add_headers(std::string& line, const Packet& packet, const OpcodeInfo& info) {
  const auto out = std::back_inserter(line);
  if (info.deth)
    fmt::format_to(out, " from 0x{:06x} qkey 0x{:08x}", packet.deth.source.value, packet.deth.qkey);
  if (info.xrc_eth) fmt::format_to(out, " srq 0x{:06x}", packet.xrc_srq);
  if (info.reth) {
    fmt::format_to(out, " at 0x{:x} rkey 0x{:08x} length {}", packet.reth.address, packet.reth.key,
                   packet.reth.length);
  }
  if (info.atomic_eth) {
    fmt::format_to(out, " at 0x{:x} rkey 0x{:08x} swap_add 0x{:x} compare 0x{:x}", packet.atomic.address,
                   packet.atomic.key, packet.atomic.swap_add, packet.atomic.compare);
  }
  if (info.aeth) fmt::format_to(out, " {} msn {}", syndrome_text(packet.aeth.syndrome), packet.aeth.msn);
  if (info.atomic_ack_eth) fmt::format_to(out, " before 0x{:x}", packet.atomic_before);
  if (info.imm) fmt::format_to(out, " imm 0x{:08x}", packet.imm);
  if (info.ieth) fmt::format_to(out, " invalidate 0x{:08x}", packet.invalidate_key);
}

}  // namespace

std::string_view service_name(Service service) {
  switch (service) {
    case Service::kRc:
      return "RC";
    case Service::kUc:
      return "UC";
    case Service::kRd:
      return "RD";
    case Service::kUd:
      return "UD";
    case Service::kCnp:
      return "CNP";
    case Service::kXrc:
      return "XRC";
  }
  return "?";
}

std::string_view operation_name(Operation operation) {
  switch (operation) {
    case Operation::kSendFirst:
      return "SendFirst";
    case Operation::kSendMiddle:
      return "SendMiddle";
    case Operation::kSendLast:
      return "SendLast";
    case Operation::kSendLastImm:
      return "SendLastImm";
    case Operation::kSendOnly:
      return "SendOnly";
    case Operation::kSendOnlyImm:
      return "SendOnlyImm";
    case Operation::kWriteFirst:
      return "WriteFirst";
    case Operation::kWriteMiddle:
      return "WriteMiddle";
    case Operation::kWriteLast:
      return "WriteLast";
    case Operation::kWriteLastImm:
      return "WriteLastImm";
    case Operation::kWriteOnly:
      return "WriteOnly";
    case Operation::kWriteOnlyImm:
      return "WriteOnlyImm";
    case Operation::kReadRequest:
      return "ReadRequest";
    case Operation::kReadResponseFirst:
      return "ReadResponseFirst";
    case Operation::kReadResponseMiddle:
      return "ReadResponseMiddle";
    case Operation::kReadResponseLast:
      return "ReadResponseLast";
    case Operation::kReadResponseOnly:
      return "ReadResponseOnly";
    case Operation::kAcknowledge:
      return "Acknowledge";
    case Operation::kAtomicAcknowledge:
      return "AtomicAcknowledge";
    case Operation::kCompareSwap:
      return "CompareSwap";
    case Operation::kFetchAdd:
      return "FetchAdd";
    case Operation::kSendLastInvalidate:
      return "SendLastInvalidate";
    case Operation::kSendOnlyInvalidate:
      return "SendOnlyInvalidate";
    case Operation::kAtomicWrite:
      return "AtomicWrite";
  }
  return "?";
}

std::string_view parse_error_name(ParseError error) {
  switch (error) {
    case ParseError::kTooShort:
      return "too_short";
    case ParseError::kBadVersion:
      return "bad_version";
    case ParseError::kBadOpcode:
      return "bad_opcode";
    case ParseError::kBadPad:
      return "bad_pad";
    case ParseError::kBadLength:
      return "bad_length";
  }
  return "?";
}

std::string syndrome_text(uint8_t value) {
  const unsigned low = value & 0x1fu;
  switch (value & syndrome::kKindMask) {
    case syndrome::kAck:
      return value == syndrome::kNoCredits ? std::string("ACK") : fmt::format("ACK credits {}", low);
    case syndrome::kRnr:
      return fmt::format("RNR timer {}", low);
    default:
      break;
  }
  switch (value) {
    case syndrome::kSequence:
      return "NAK sequence";
    case syndrome::kInvalidRequest:
      return "NAK invalid request";
    case syndrome::kRemoteAccess:
      return "NAK remote access";
    case syndrome::kOperational:
      return "NAK operational";
    default:
      return fmt::format("syndrome 0x{:02x}", value);
  }
}

std::string to_line(const Packet& packet) {
  const Bth& bth = packet.bth;
  const OpcodeInfo& info = packet.info();
  std::string line;
  if (bth.opcode() == kCnpOpcode) {
    line = "CNP";
  } else if (!info.known) {
    line = fmt::format("opcode 0x{:02x}", bth.opcode());
  } else {
    line = fmt::format("{} {}", service_name(bth.service), operation_name(bth.operation));
  }
  fmt::format_to(std::back_inserter(line), " qp 0x{:06x} psn {}", bth.destination.value, bth.psn.value);
  if (bth.ack_request) line += " ack";
  if (bth.solicited) line += " solicited";
  if (bth.fecn) line += " fecn";
  if (bth.becn) line += " becn";
  if (bth.pkey != 0xffff) fmt::format_to(std::back_inserter(line), " pkey 0x{:04x}", bth.pkey);
  add_headers(line, packet, info);
  if (info.payload) fmt::format_to(std::back_inserter(line), " {} B", packet.payload.size());
  return line;
}

}  // namespace verbena::roce
