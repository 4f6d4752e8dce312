#include "roce/crc32.hpp"

#include <libdeflate.h>

#include <cstring>

#include "base/processor.hpp"

namespace verbena::roce {
namespace {

// Both are false before they are initialised, which does no harm.
const bool wide_available = wide::available();
const bool is_emulated = base::emulated();

}  // namespace

uint32_t plain::crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return libdeflate_crc32(crc, bytes.data(), bytes.size());
}

uint32_t plain::crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                              std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  // It takes a null pointer for a beginning.
  const uint32_t behind_head = head.empty() ? crc : libdeflate_crc32(crc, head.data(), head.size());
  return from.empty() ? behind_head : libdeflate_crc32(behind_head, to, from.size());
}

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
  if (wide_available) return wide::crc32(crc, bytes);
  return is_emulated ? emulated::crc32(crc, bytes) : plain::crc32(crc, bytes);
}

uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                       std::span<const std::byte> from) {
  if (wide_available) return wide::crc32_copying(crc, head, to, from);
  return is_emulated ? emulated::crc32_copying(crc, head, to, from)
                     : plain::crc32_copying(crc, head, to, from);
}

}  // namespace verbena::roce
