// Memory that a peer may reach, as it travels to that peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace examples {

/// Where a peer may READ, WRITE or do atomics. The rkey is what lets it: whoever knows both may.
struct Region {
  uint64_t address;
  uint32_t rkey;

  /// Big-endian, 12 bytes.
  using Wire = std::array<std::byte, 12>;
  [[nodiscard]] Wire to_wire() const;
  static std::optional<Region> from_wire(std::span<const std::byte> bytes);
};

}  // namespace examples
