// What a client tells the server before any data moves, as the private data of its connection request: how
// many messages there will be, and how long they are. Big-endian, since the two machines may differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace examples {

/// What a server is ready to believe.
inline constexpr uint64_t kMaxCount = 1'000'000'000'000;
inline constexpr uint64_t kMaxSize = 64 << 20;

struct Terms {
  uint64_t count;
  uint64_t size;

  using Wire = std::array<std::byte, 16>;
  [[nodiscard]] Wire to_wire() const;
  /// Looks at no more than the first 16 bytes: a CM pads private data with zeros to the length its message
  /// has.
  static std::optional<Terms> from_wire(std::span<const std::byte> bytes);
  /// Why these terms make no sense; empty if they do.
  [[nodiscard]] std::string complaint() const;
};

}  // namespace examples
