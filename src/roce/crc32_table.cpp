// Eight bytes a step in pieces of 11 bits, which takes fewer look-ups than bytes do; and in two strands,
// words by turns, which takes fewer turns of the loop. The tables have 84 KiB.
#include <array>
#include <bit>
#include <cstring>

#include "roce/crc32.hpp"
#include "roce/polynomial.hpp"

namespace verbena::roce::table {
namespace {

using Word = uint64_t;
constexpr unsigned kWordBits = 64;
constexpr unsigned kPieceBits = 11;
constexpr Word kPieceMask = (1 << kPieceBits) - 1;
constexpr size_t kPieces = (kWordBits + kPieceBits - 1) / kPieceBits;

// What a piece of each value adds to a CRC.
using PieceTables = std::array<std::array<uint32_t, 1 << kPieceBits>, kPieces>;

// So many words follow the one that it is in.
constexpr PieceTables piece_tables(unsigned words) {
  PieceTables tables{};
  for (unsigned bit = 0; bit < kWordBits; ++bit)
    tables[bit / kPieceBits][1 << bit % kPieceBits] =
        power_of_x(static_cast<int>(32 + kWordBits - 1 - bit + words * kWordBits));
  for (auto& table : tables)
    for (size_t value = 1; value < table.size(); ++value)
      table[value] = table[value & (value - 1)] ^ table[value & -value];
  return tables;
}

constexpr PieceTables kLast = piece_tables(0);
constexpr PieceTables kByTurns = piece_tables(1);
constexpr ByteTable kByte = byte_table(0);

// Written out: to an emulator a turn of a loop costs twice as much as a look-up.
[[gnu::always_inline]] inline uint32_t look_up(const PieceTables& tables, Word word) {
  static_assert(kPieces == 6);
  const auto piece = [&](size_t place) { return tables[place][word >> place * kPieceBits & kPieceMask]; };
  return piece(0) ^ piece(1) ^ piece(2) ^ piece(3) ^ piece(4) ^ piece(5);
}

// Bytes to take the CRC of, and where they are copied to, if they are.
template <bool kCopies>
class Reader {
 public:
  Reader(std::byte* to, const std::byte* from) : to_(to), from_(from) {}

  // As a number whose lowest byte came first.
  template <typename T>
  [[gnu::always_inline]] T next() {
    T value;
    std::memcpy(&value, from_, sizeof value);
    from_ += sizeof value;
    if constexpr (kCopies) {
      asm volatile("" : "+r"(value));  // read once: the compiler can't know that it is still in memory
      std::memcpy(to_, &value, sizeof value);
      to_ += sizeof value;
    }
    if constexpr (std::endian::native == std::endian::big) value = std::byteswap(value);
    return value;
  }

 private:
  std::byte* to_;
  const std::byte* from_;
};

// In one page of code, being shorter than its alignment: an emulator takes twice as long for a loop that lies
// across two.
template <bool kCopies>
[[gnu::noinline, gnu::noclone, gnu::aligned(1024)]] uint32_t run(uint32_t crc, Reader<kCopies> reader,
                                                                 size_t bytes) {
  constexpr size_t kPair = 2 * sizeof(Word);
  uint32_t state = ~crc;
  if (bytes >= kPair) {
    uint32_t other = 0;
    for (; bytes >= 2 * kPair; bytes -= kPair) {
      state = look_up(kByTurns, reader.template next<Word>() ^ state);
      other = look_up(kByTurns, reader.template next<Word>() ^ other);
    }
    state = look_up(kLast, reader.template next<Word>() ^ state);
    state = look_up(kLast, reader.template next<Word>() ^ state ^ other);
    bytes -= kPair;
  }
  if (bytes >= sizeof(Word)) {
    state = look_up(kLast, reader.template next<Word>() ^ state);
    bytes -= sizeof(Word);
  }
  // Zeros before a message change nothing.
  if (bytes >= sizeof(uint32_t)) {
    state = look_up(kLast, Word{reader.template next<uint32_t>() ^ state} << 32);
    bytes -= sizeof(uint32_t);
  }
  for (; bytes > 0; --bytes) state = state >> 8 ^ kByte[(state ^ reader.template next<uint8_t>()) & 0xff];
  return ~state;
}

}  // namespace

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return run<false>(crc, {nullptr, bytes.data()}, bytes.size());
}

uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                       std::span<const std::byte> from) {
  return run<true>(crc32(crc, head), {to, from.data()}, from.size());
}

}  // namespace verbena::roce::table
