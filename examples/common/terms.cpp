#include "common/terms.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <cstring>

namespace examples {

Terms::Wire Terms::to_wire() const {
  const uint64_t words[2] = {htobe64(count), htobe64(size)};
  Wire wire;
  std::memcpy(wire.data(), words, wire.size());
  return wire;
}

std::optional<Terms> Terms::from_wire(std::span<const std::byte> bytes) {
  uint64_t words[2];
  if (bytes.size() < sizeof words) return std::nullopt;
  std::memcpy(words, bytes.data(), sizeof words);
  return Terms{be64toh(words[0]), be64toh(words[1])};
}

std::string Terms::complaint() const {
  if (count == 0 || count > kMaxCount) return fmt::format("a count of {} makes no sense", count);
  if (size == 0 || size > kMaxSize) return fmt::format("a size of {} makes no sense", size);
  return "";
}

}  // namespace examples
