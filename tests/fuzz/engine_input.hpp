// A fuzzer's bytes as a sequence of steps for the engine: packets, time, posts. Every byte string is one, and
// a packet is 12 bytes, so that mutations meet fields rather than payload (run_roce has the codec).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/psn.hpp"
#include "base/time.hpp"
#include "roce/packet.hpp"

namespace verbena::fuzz {

inline constexpr uint32_t kKey = 0x11223344;
inline constexpr uint64_t kAddress = 0x10000;
inline constexpr size_t kRegionBytes = 8192;
inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr base::Psn kFirst{0xfffff0};  // goes round soon

// Aborts, which is what a fuzzer looks for.
inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}
#define FUZZ_EXPECT(condition) ::verbena::fuzz::expect((condition), #condition)

// As it lies in the input.
struct Step {
  enum class Kind : uint8_t { kPacket = 0, kTime = 1, kPost = 2, kReceives = 3 };
  static constexpr uint8_t kSolicited = 1, kAskAck = 2, kWrongKey = 4, kAbsolutePsn = 8, kLongReth = 16;
  // The next two bits are XRC's shared receive queue.

  uint8_t kind = 0;    // Kind in the low two bits
  uint8_t opcode = 0;  // of a packet; what to post
  int8_t psn = 0;      // from the one that is awaited
  uint8_t flags = 0;
  uint16_t payload = 0;  // bytes; or so many microseconds
  uint16_t length = 0;   // of the RETH, of what is posted
  uint16_t place = 0;    // in the region; with kAbsolutePsn the PSN
  uint8_t syndrome = 0;
  uint8_t value = 0;  // immediate, what to add, how many

  [[nodiscard]] Kind what() const { return static_cast<Kind>(kind & 3); }
};

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t byte() {
    if (at_ >= bytes_.size()) return 0;
    return bytes_[at_++];
  }
  uint16_t word() {
    const unsigned low = byte();
    return static_cast<uint16_t>(low | static_cast<unsigned>(byte()) << 8);
  }
  // False: the input has ended.
  bool next(Step& step) {
    if (at_ >= bytes_.size()) return false;
    step.kind = byte();
    step.opcode = byte();
    step.psn = static_cast<int8_t>(byte());
    step.flags = byte();
    step.payload = word();
    step.length = word();
    step.place = word();
    step.syndrome = byte();
    step.value = byte();
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

inline void append(std::vector<uint8_t>& bytes, const Step& step) {
  const auto word = [&](uint16_t value) {
    bytes.push_back(static_cast<uint8_t>(value));
    bytes.push_back(static_cast<uint8_t>(value >> 8));
  };
  bytes.insert(bytes.end(), {step.kind, step.opcode, static_cast<uint8_t>(step.psn), step.flags});
  word(step.payload);
  word(step.length);
  word(step.place);
  bytes.insert(bytes.end(), {step.syndrome, step.value});
}

// Null bytes of payload; `awaited` is the PSN that step.psn counts from. False: an opcode that parse() would
// refuse, so that no engine ever sees it.
[[nodiscard]] inline bool packet_of(const Step& step, base::Psn awaited, roce::Packet& packet) {
  static const std::vector<std::byte> kBytes(8192, std::byte{0x5a});
  packet = {};
  packet.bth.service = static_cast<roce::Service>(step.opcode >> 5);
  packet.bth.operation = static_cast<roce::Operation>(step.opcode & 0x1f);
  const auto& info = packet.info();
  if (!info.known) return false;
  packet.bth.solicited = (step.flags & Step::kSolicited) != 0;
  packet.bth.ack_request = (step.flags & Step::kAskAck) != 0;
  packet.bth.psn = (step.flags & Step::kAbsolutePsn) != 0 ? base::Psn{uint32_t{step.place} << 8 | step.value}
                                                          : awaited + static_cast<uint32_t>(step.psn);
  const uint32_t key = (step.flags & Step::kWrongKey) != 0 ? kKey + 1 : kKey;
  const uint32_t length = (step.flags & Step::kLongReth) != 0 ? uint32_t{step.length} << 16 : step.length;
  if (info.xrc_eth) packet.xrc_srq = step.flags >> 5 & 3u;
  if (info.reth) packet.reth = {kAddress + step.place, key, length};
  if (info.atomic_eth) packet.atomic = {kAddress + step.place, key, step.value, step.length};
  if (info.aeth) packet.aeth = {step.syndrome, step.value};
  if (info.atomic_ack_eth) packet.atomic_before = step.length;
  if (info.deth)
    packet.deth = {(step.flags & Step::kWrongKey) != 0 ? kQkey + 1 : kQkey, base::Qpn{step.place}};
  if (info.imm) packet.imm = step.value;
  if (info.ieth) packet.invalidate_key = key;
  if (info.payload) packet.payload = std::span(kBytes).first(step.payload % (kBytes.size() + 1));
  return true;
}

// Up to 65 ms, or by 2^n µs up to some minutes, so that every timer can ring.
[[nodiscard]] inline base::Duration time_of(const Step& step) {
  return std::chrono::microseconds(step.payload) +
         (step.value == 0 ? base::Duration{} : std::chrono::microseconds(1u << step.value % 28));
}

// One each: the first byte sets it up, the rest are steps. They abort where something is wrong.
void run_rc_requester(std::span<const uint8_t> bytes);
void run_rc_responder(std::span<const uint8_t> bytes);
void run_uc_responder(std::span<const uint8_t> bytes);
void run_ud(std::span<const uint8_t> bytes);

// No steps: bytes as a socket hands them over, BTH to ICRC.
void run_roce(std::span<const uint8_t> input);

}  // namespace verbena::fuzz
