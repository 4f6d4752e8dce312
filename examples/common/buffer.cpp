#include "common/buffer.hpp"

#include <algorithm>

namespace examples {
namespace {

std::byte pattern(uint64_t place, uint64_t seed) {
  // 31 and 17 are odd, so that neighbours in place and in seed differ in their low byte.
  return static_cast<std::byte>(place * 31 + (place >> 8) + seed * 17 + 1);
}

}  // namespace

Buffer::Buffer(ibv_pd* pd, std::size_t size, int access, uint32_t sges)
    : memory_(size), mr_(check_new("ibv_reg_mr", ibv_reg_mr(pd, memory_.data(), size, access))) {
  std::size_t begin = 0;
  for (uint32_t piece = 0; piece < sges; ++piece) {
    const std::size_t end = size * (piece + 1) / sges;
    sges_.push_back({address() + begin, static_cast<uint32_t>(end - begin), mr_->lkey});
    begin = end;
  }
}

void fill_pattern(std::span<std::byte> bytes, uint64_t seed) {
  for (std::size_t place = 0; place < bytes.size(); ++place) bytes[place] = pattern(place, seed);
}

void verify_pattern(std::span<const std::byte> bytes, uint64_t seed) {
  for (std::size_t place = 0; place < bytes.size(); ++place)
    if (bytes[place] != pattern(place, seed))
      throw Failure(fmt::format("message {}: byte {} is {:#04x}, it should be {:#04x}", seed, place,
                                std::to_integer<int>(bytes[place]),
                                std::to_integer<int>(pattern(place, seed))));
}

void clear(std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{0}); }

}  // namespace examples
