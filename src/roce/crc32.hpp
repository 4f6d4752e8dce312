// CRC-32 as zlib, gzip and Ethernet have it, by whatever this processor does best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::roce {

// Goes on from `crc`, which is 0 for a beginning.
[[nodiscard]] uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes);

// Copies `head` and behind it `from` to `to`. The CRC is of what is stored, whatever others do to `from`
// meanwhile: each byte of it is read once. They must not overlap.
[[nodiscard]] uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                                     std::span<const std::byte> from);

// On every processor.
namespace plain {
[[nodiscard]] uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes);
[[nodiscard]] uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                                     std::span<const std::byte> from);
}  // namespace plain

// By carry-less products of 512 bits, where `available`.
namespace wide {
[[nodiscard]] bool available();
[[nodiscard]] uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes);
[[nodiscard]] uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                                     std::span<const std::byte> from);
}  // namespace wide

// By shifts and tables, which is best where the processor is emulated: there a carry-less product is a loop
// over bits, and each access to memory costs ten times what a shift does.
namespace emulated {
[[nodiscard]] uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes);
[[nodiscard]] uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                                     std::span<const std::byte> from);
}  // namespace emulated

}  // namespace verbena::roce
