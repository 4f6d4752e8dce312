// The invariant CRC (IBA 7.8.1, RoCEv2 annex A17.3.3): over the IP and UDP headers as far as they don't
// change on the way, the transport headers and the payload.
#pragma once

#include <array>
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

  bool operator==(const Flow&) const = default;
  [[nodiscard]] bool ipv4() const;
};

inline constexpr uint16_t kSegmentLimit = 128;  // the kernel cuts a send into at most so many pieces

// Don't-fragment is taken as set over IPv4: our sockets, the kernel's rxe and the hardware drivers we know of
// set it in every packet, and one that doesn't is refused.

// Which IPv4 IDs a packet may have been sent with: a receiver can't see them (DESIGN 2.4).
enum class IdRule : uint8_t {
  kSegment,  // from a recognised peer: 0, or its place in a segmented send, below 128
  kAny,      // from a foreign one: a check that lets one error in 65,536 pass
};

// `transport` is BTH to padding, without the ICRC. As it stands in the packet's last four bytes, first byte
// in the low 8 bits. At least a BTH. `id` is ignored over IPv6.
[[nodiscard]] uint32_t icrc(const Flow& flow, uint16_t id, std::span<const std::byte> transport);
void append_icrc(const Flow& flow, uint16_t id, std::span<std::byte> packet);  // into its last four bytes

// `packet` is BTH to ICRC, of any length; `segment` the place at which it came in a merged receive, which is
// tried first.
[[nodiscard]] bool icrc_fits(const Flow& flow, IdRule rule, unsigned segment,
                             std::span<const std::byte> packet);

// Which ID makes the ICRC right, if any does: for a capture that others are to check. Over IPv6 0.
[[nodiscard]] std::optional<uint16_t> sent_id(const Flow& flow, unsigned segment,
                                              std::span<const std::byte> packet);

}  // namespace verbena::roce
