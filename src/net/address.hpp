// An IP address of either family.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace verbena::net {

struct Address {
  std::array<uint8_t, 16> bytes{};  // IPv4 as ::ffff:a.b.c.d, which is also how a GID holds it
  // By words: a comparison by bytes is a call, and each packet has several.
  bool operator==(const Address& other) const {
    using Words = std::array<uint64_t, 2>;
    const auto mine = std::bit_cast<Words>(bytes);
    const auto theirs = std::bit_cast<Words>(other.bytes);
    return ((mine[0] ^ theirs[0]) | (mine[1] ^ theirs[1])) == 0;
  }

  [[nodiscard]] bool ipv4() const {
    return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t b) { return b == 0; }) &&
           bytes[10] == 0xff && bytes[11] == 0xff;
  }
  // fe80::/10: means something only together with an interface.
  [[nodiscard]] bool link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  [[nodiscard]] bool multicast() const { return ipv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff; }
};

// As people write it: 10.0.0.1, fd00::7.
[[nodiscard]] std::string to_text(const Address& address);

}  // namespace verbena::net
