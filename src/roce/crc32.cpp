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
  const size_t bytes = head.size() + from.size();
  if (bytes == 0) return crc;  // a null pointer would be taken for a beginning
  if (!head.empty()) std::memcpy(to, head.data(), head.size());
  if (!from.empty()) std::memcpy(to + head.size(), from.data(), from.size());
  return libdeflate_crc32(crc, to, bytes);
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
