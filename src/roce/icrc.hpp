// The invariant CRC (IBA 7.8.1, RoCEv2 annex A17.3.3): over the IP and UDP headers as far as they don't
// change on the way, the transport headers and the payload.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbena::roce {

inline constexpr size_t kIcrcBytes = 4;

// What the CRC covers of IP and UDP; IPv4 addresses as ::ffff:a.b.c.d.
struct Flow {
  std::array<uint8_t, 16> source{};
  std::array<uint8_t, 16> destination{};
  uint16_t source_port = 0;
  uint16_t destination_port = 4791;

  bool operator==(const Flow& other) const {
    return same(source, other.source) && same(destination, other.destination) &&
           source_port == other.source_port && destination_port == other.destination_port;
  }
  [[nodiscard]] bool ipv4() const;

 private:
  // Once a packet: by words, while the library's would call memcmp.
  static bool same(const std::array<uint8_t, 16>& a, const std::array<uint8_t, 16>& b) {
    using Words = std::array<uint64_t, 2>;
    const auto x = std::bit_cast<Words>(a);
    const auto y = std::bit_cast<Words>(b);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
  }
};

inline constexpr uint16_t kSegmentLimit = 128;  // the kernel cuts a send into at most so many pieces

// Don't-fragment is taken as set over IPv4: our sockets, the kernel's rxe and the hardware drivers we know of
// set it in every packet, and one that doesn't is refused.

// Which IPv4 IDs a packet may have been sent with: a receiver can't see them (DESIGN 2.4).
enum class IdRule : uint8_t {
  kSegment,  // from a recognised peer: 0, or its place in a segmented send, below 128
  kAny,      // from a foreign one: a check that lets one error in 65,536 pass
};

// What the packets of a flow have in common, for who sends or takes many of them. One thread at a time.
//
// `transport` is BTH to padding, without the ICRC; at least a BTH. `packet` is BTH to ICRC.
class FlowIcrc {
 public:
  explicit FlowIcrc(const Flow& flow = {});

  [[nodiscard]] const Flow& flow() const { return flow_; }

  // As it stands in the packet's last four bytes, first byte in the low 8 bits. `id` is ignored over IPv6.
  [[nodiscard]] uint32_t icrc(uint16_t id, std::span<const std::byte> transport) const;
  void append(uint16_t id, std::span<std::byte> packet) const;  // into its last four bytes
  // A whole packet, without padding, whose ICRC is of what is written, whatever others do to the payload.
  void write(uint16_t id, std::span<const std::byte> headers, std::span<const std::byte> payload,
             std::byte* packet) const;

  // Which ID makes the ICRC right, if any does; over IPv6 0. A packet of any length. `segment` is the place
  // at which it came in a merged receive: that and the packet before tell which ID is likely, and is tried
  // first.
  [[nodiscard]] std::optional<uint16_t> sent_id(unsigned segment, std::span<const std::byte> packet);
  [[nodiscard]] bool fits(IdRule rule, unsigned segment, std::span<const std::byte> packet) {
    const auto id = sent_id(segment, packet);
    return id && (rule == IdRule::kAny || *id < kSegmentLimit);
  }

 private:
  // The CRC before a transport of that size, whose byte of FECN and BECN is known.
  [[nodiscard]] uint32_t front_of(uint16_t id, size_t transport_bytes, std::byte congestion) const;

  Flow flow_;
  bool ipv4_;
  uint32_t front_;         // the CRC before the BTH, all lengths and the ID being zero
  uint16_t last_id_ = 0;   // of the last good packet
  uint16_t first_id_ = 0;  // what the first of its merged receive must have had
};

// The flows of late: a port or a socket has few at a time.
class RecentFlows {
 public:
  // Until the next call.
  [[nodiscard]] FlowIcrc& of(const Flow& flow) {
    FlowIcrc& found = flows_[(flow.source_port ^ flow.source[15] ^ flow.destination[15]) % flows_.size()];
    if (!(found.flow() == flow)) found = FlowIcrc(flow);
    return found;
  }

 private:
  std::array<FlowIcrc, 16> flows_;
};

// For a packet now and then, as above.
[[nodiscard]] uint32_t icrc(const Flow& flow, uint16_t id, std::span<const std::byte> transport);
void append_icrc(const Flow& flow, uint16_t id, std::span<std::byte> packet);
[[nodiscard]] bool icrc_fits(const Flow& flow, IdRule rule, unsigned segment,
                             std::span<const std::byte> packet);
[[nodiscard]] std::optional<uint16_t> sent_id(const Flow& flow, unsigned segment,
                                              std::span<const std::byte> packet);

}  // namespace verbena::roce
