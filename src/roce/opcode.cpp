#include "roce/opcode.hpp"

#include <array>
#include <initializer_list>

namespace verbena::roce {
namespace {

constexpr unsigned kBthBytes = 12;
constexpr unsigned kCnpReservedBytes = 16;

// What an operation's name says of it, whichever service it belongs to.
constexpr OpcodeInfo shape_of(Operation operation) {
  using enum Operation;
  OpcodeInfo info;
  info.known = true;
  switch (operation) {
    case kSendFirst:
      info.send = info.first = true;
      break;
    case kSendMiddle:
      info.send = true;
      break;
    case kSendLast:
      info.send = info.last = true;
      break;
    case kSendLastImm:
      info.send = info.last = info.imm = true;
      break;
    case kSendOnly:
      info.send = info.first = info.last = true;
      break;
    case kSendOnlyImm:
      info.send = info.first = info.last = info.imm = true;
      break;
    case kSendLastInvalidate:
      info.send = info.last = info.ieth = true;
      break;
    case kSendOnlyInvalidate:
      info.send = info.first = info.last = info.ieth = true;
      break;
    case kWriteFirst:
      info.write = info.first = info.reth = true;
      break;
    case kWriteMiddle:
      info.write = true;
      break;
    case kWriteLast:
      info.write = info.last = true;
      break;
    case kWriteLastImm:
      info.write = info.last = info.imm = true;
      break;
    case kWriteOnly:
      info.write = info.first = info.last = info.reth = true;
      break;
    case kWriteOnlyImm:
      info.write = info.first = info.last = info.reth = info.imm = true;
      break;
    case kReadRequest:
      info.first = info.last = info.reth = true;
      break;
    case kReadResponseFirst:
      info.read_response = info.first = info.aeth = true;
      break;
    case kReadResponseMiddle:
      info.read_response = true;
      break;
    case kReadResponseLast:
      info.read_response = info.last = info.aeth = true;
      break;
    case kReadResponseOnly:
      info.read_response = info.first = info.last = info.aeth = true;
      break;
    case kAcknowledge:
      info.aeth = true;
      break;
    case kAtomicAcknowledge:
      info.aeth = info.atomic_ack_eth = true;
      break;
    case kAtomicWrite:
      info.atomic_write = info.first = info.last = info.reth = true;
      break;
    case kCompareSwap:
    case kFetchAdd:
      info.atomic = info.first = info.last = info.atomic_eth = true;
      break;
  }
  info.response = info.read_response || info.aeth;
  info.request = !info.response;
  info.payload = info.send || info.write || info.read_response || info.atomic_write;
  return info;
}

constexpr uint8_t header_bytes_of(const OpcodeInfo& info) {
  return static_cast<uint8_t>(kBthBytes + 4 * info.xrc_eth + 16 * info.reth + 28 * info.atomic_eth +
                              4 * info.aeth + 8 * info.atomic_ack_eth + 8 * info.deth + 4 * info.imm +
                              4 * info.ieth);
}

using Table = std::array<OpcodeInfo, 256>;

constexpr void add(Table& table, Service service, std::initializer_list<Operation> operations) {
  for (const Operation operation : operations) {
    OpcodeInfo info = shape_of(operation);
    info.deth = service == Service::kUd;
    // IBA annex A14: every request says which shared receive queue it is for.
    info.xrc_eth = service == Service::kXrc && info.request;
    info.header_bytes = header_bytes_of(info);
    table[opcode_of(service, operation)] = info;
  }
}

constexpr Table make_table() {
  using enum Operation;
  Table table{};
  for (const Service service : {Service::kRc, Service::kUc, Service::kXrc}) {
    add(table, service,
        {kSendFirst, kSendMiddle, kSendLast, kSendLastImm, kSendOnly, kSendOnlyImm, kWriteFirst, kWriteMiddle,
         kWriteLast, kWriteLastImm, kWriteOnly, kWriteOnlyImm});
  }
  for (const Service service : {Service::kRc, Service::kXrc}) {
    add(table, service,
        {kReadRequest, kReadResponseFirst, kReadResponseMiddle, kReadResponseLast, kReadResponseOnly,
         kAcknowledge, kAtomicAcknowledge, kCompareSwap, kFetchAdd, kSendLastInvalidate,
         kSendOnlyInvalidate});
  }
  add(table, Service::kRc, {kAtomicWrite});
  add(table, Service::kUd, {kSendOnly, kSendOnlyImm});

  // A congestion notification (annex A17.9) is no message at all: a BTH and 16 bytes that say nothing.
  OpcodeInfo& cnp = table[kCnpOpcode];
  cnp.known = true;
  cnp.header_bytes = kBthBytes + kCnpReservedBytes;
  return table;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodes = make_table();

}  // namespace verbena::roce
