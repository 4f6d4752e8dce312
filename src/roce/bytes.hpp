// Numbers in network order at any address, and back.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace verbena::roce {

template <std::unsigned_integral T>
[[nodiscard]] inline T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::little && sizeof(T) > 1) value = std::byteswap(value);
  return value;
}

template <std::unsigned_integral T>
inline void store_be(std::byte* into, T value) {
  if constexpr (std::endian::native == std::endian::little && sizeof(T) > 1) value = std::byteswap(value);
  std::memcpy(into, &value, sizeof value);
}

}  // namespace verbena::roce
