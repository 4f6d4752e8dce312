#include "common/region.hpp"

#include <endian.h>

#include <cstring>

namespace examples {

Region::Wire Region::to_wire() const {
  const uint64_t big_address = htobe64(address);
  const uint32_t big_rkey = htobe32(rkey);
  Wire wire;
  std::memcpy(wire.data(), &big_address, 8);
  std::memcpy(wire.data() + 8, &big_rkey, 4);
  return wire;
}

std::optional<Region> Region::from_wire(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Wire)) return std::nullopt;
  uint64_t big_address;
  uint32_t big_rkey;
  std::memcpy(&big_address, bytes.data(), 8);
  std::memcpy(&big_rkey, bytes.data() + 8, 4);
  return Region{be64toh(big_address), be32toh(big_rkey)};
}

}  // namespace examples
