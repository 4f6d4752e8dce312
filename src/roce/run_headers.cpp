#include "roce/run_headers.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "roce/bytes.hpp"
#include "roce/opcode.hpp"
#include "roce/packet.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kPsnAt = 8;  // with the byte before it
constexpr size_t kBthBytes = 12;
constexpr size_t kXrcEthBytes = 4;
constexpr size_t kRethLengthAt = 12;
constexpr uint32_t kLow24 = 0xffffff;
constexpr uint8_t kReadRequest = opcode_of(Service::kRc, Operation::kReadRequest);
constexpr uint8_t kReadResponseFirst = opcode_of(Service::kRc, Operation::kReadResponseFirst);
constexpr uint8_t kReadResponseLast = opcode_of(Service::kRc, Operation::kReadResponseLast);

// A number of 24 bits, which has another byte before it.
uint32_t add_low24(uint32_t word, uint32_t step) { return (word & ~kLow24) | ((word + step) & kLow24); }

}  // namespace

RunHeaders::RunHeaders(std::span<const std::byte> first, size_t payload_bytes)
    : bytes_(first.size()), psn_(load_be<uint32_t>(&first[kPsnAt])) {
  const auto opcode = std::to_integer<uint8_t>(first[0]);
  const OpcodeInfo& info = opcode_info(opcode);
  CHECK(first.size() == info.header_bytes && first.size() <= kMostHeaderBytes);
  std::ranges::copy(first, first_.begin());
  if (info.reth) {
    address_at_ = kBthBytes + (info.xrc_eth ? kXrcEthBytes : 0);
    address_ = load_be<uint64_t>(&first[address_at_]);
    address_step_ = payload_bytes;
  }
  if (opcode == kReadRequest) {
    psn_step_ = kPair;
    address_step_ = load_be<uint32_t>(&first[address_at_ + kRethLengthAt]);
  } else if (opcode == kReadResponseFirst || opcode == kReadResponseLast) {
    opcode_ = opcode;
    aeth_ = load_be<uint32_t>(&first[kBthBytes]);
  }
}

void RunHeaders::next(Place into) {
  std::memcpy(into.data(), first_.data(), kMostHeaderBytes);
  psn_ = add_low24(psn_, psn_step_);
  store_be(&into[kPsnAt], psn_);
  if (address_at_ != 0) {
    address_ += address_step_;
    store_be(&into[address_at_], address_);
  } else if (opcode_ != 0) {
    if (opcode_ == kReadResponseLast) aeth_ = add_low24(aeth_, 1);
    opcode_ = opcode_ == kReadResponseLast ? kReadResponseFirst : kReadResponseLast;
    into[0] = std::byte{opcode_};
    store_be(&into[kBthBytes], aeth_);
  }
}

}  // namespace verbena::roce
