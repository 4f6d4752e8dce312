// Polynomials over GF(2) modulo CRC-32's, lowest degree in bit 31, as the CRC itself has them. For constants:
// they are made when the program is compiled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbena::roce {

inline constexpr uint32_t kPolynomial = 0xedb88320;  // without its x^32
inline constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t multiply_by_x(uint32_t value) { return value >> 1 ^ (kPolynomial & -(value & 1)); }

constexpr uint32_t divide_by_x(uint32_t value) {
  return (value & kOne) != 0 ? (value ^ kPolynomial) << 1 | 1 : value << 1;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 0; bit < 32; ++bit) {
    product ^= b & -(a >> 31);
    a <<= 1;
    b = multiply_by_x(b);
  }
  return product;
}

constexpr uint32_t power_of_x(int exponent) {
  uint32_t power = kOne;
  for (; exponent > 0; --exponent) power = multiply_by_x(power);
  for (; exponent < 0; ++exponent) power = divide_by_x(power);
  return power;
}

// What a byte of each value adds to a CRC when so many bytes follow it. Fewer than none: what it would have
// had to add before they came.
using ByteTable = std::array<uint32_t, 256>;

constexpr ByteTable byte_table(int following) {
  ByteTable table{};
  uint32_t power = power_of_x(32 + 8 * following);
  for (size_t bit = 128; bit > 0; bit /= 2) {
    table[bit] = power;
    power = multiply_by_x(power);
  }
  for (size_t value = 1; value < table.size(); ++value)
    table[value] = table[value & (value - 1)] ^ table[value & -value];
  return table;
}

}  // namespace verbena::roce
