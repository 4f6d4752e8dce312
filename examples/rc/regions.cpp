#include <endian.h>

#include <cstring>

#include "rc/steps.hpp"

namespace examples {
namespace {

std::byte* put(std::byte* to, const Region& region) {
  const uint64_t address = htobe64(region.address);
  const uint32_t rkey = htobe32(region.rkey);
  std::memcpy(to, &address, 8);
  std::memcpy(to + 8, &rkey, 4);
  return to + 12;
}

Region get(const std::byte* from) {
  uint64_t address;
  uint32_t rkey;
  std::memcpy(&address, from, 8);
  std::memcpy(&rkey, from + 8, 4);
  return {be64toh(address), be32toh(rkey)};
}

}  // namespace

Regions::Wire Regions::to_wire() const {
  Wire wire;
  put(put(wire.data(), readable), writable);
  return wire;
}

std::optional<Regions> Regions::from_wire(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Wire)) return std::nullopt;
  return Regions{get(bytes.data()), get(bytes.data() + 12)};
}

}  // namespace examples
