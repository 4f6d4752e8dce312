// By shifts for the most part, and tables for the end. To an emulator a shift costs what it costs a
// processor, a look-up ten times as much.
//
// CRC-32's polynomial divides x^300 + x^155 + x^117 + x^89 + 1, which has fewer terms than any other multiple
// up to x^420 (idea and multiple: Russell, "Chorba: a novel CRC32 implementation", arXiv 2412.16398). So a
// bit of the message may be taken away if the bits 145, 183, 211 and 300 places behind it are changed
// instead. All are taken away from front to back but the last 300.
#include <array>
#include <bit>
#include <cstring>

#include "roce/crc32.hpp"
#include "roce/polynomial.hpp"

namespace verbena::roce::emulated {
namespace {

using Word = uint64_t;
constexpr unsigned kWordBits = 64;
constexpr size_t kWordBytes = sizeof(Word);
constexpr unsigned kPieceBits = 11;
constexpr Word kPieceMask = (1 << kPieceBits) - 1;
constexpr size_t kPieces = (kWordBits + kPieceBits - 1) / kPieceBits;

// What a piece of each value, of the word before the CRC, adds to it.
using PieceTables = std::array<std::array<uint32_t, 1 << kPieceBits>, kPieces>;

constexpr PieceTables kPieceTables = [] {
  PieceTables tables{};
  for (unsigned bit = 0; bit < kWordBits; ++bit)
    tables[bit / kPieceBits][1 << bit % kPieceBits] = power_of_x(static_cast<int>(32 + kWordBits - 1 - bit));
  for (auto& table : tables)
    for (size_t value = 1; value < table.size(); ++value)
      table[value] = table[value & (value - 1)] ^ table[value & -value];
  return tables;
}();
constexpr ByteTable kByte = byte_table(0);

// Written out: to an emulator a turn of a loop costs twice as much as a look-up.
[[gnu::always_inline]] inline uint32_t look_up(Word word) {
  static_assert(kPieces == 6);
  const auto piece = [&](size_t place) {
    return kPieceTables[place][word >> place * kPieceBits & kPieceMask];
  };
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

// A word is taken away: `first` is what words before it have changed in it, the others are of those that
// follow. Afterwards `first` is of the one behind `fifth`'s.
[[gnu::always_inline]] inline void take_away(Word word, Word& first, Word& third, Word& fourth, Word& fifth) {
  word ^= first;
  third ^= word << (145 - 128) ^ word << (183 - 128);
  fourth ^= word >> (192 - 145) ^ word >> (192 - 183) ^ word << (211 - 192);
  fifth ^= word >> (256 - 211) ^ word << (300 - 256);
  first = word >> (320 - 300);
}

constexpr size_t kReach = 5;  // words that one word changes, if not the next
constexpr size_t kTurn = 5;   // words, after which each of the variables below has its first meaning again

// In one page of code, being shorter than its alignment: an emulator takes twice as long for a loop that lies
// across two.
template <bool kCopies>
[[gnu::noinline, gnu::noclone, gnu::aligned(2048)]] uint32_t run(uint32_t crc, Reader<kCopies> reader,
                                                                 size_t bytes) {
  uint32_t state = ~crc;
  if (bytes >= (kTurn + kReach) * kWordBytes) {
    Word a = state;
    Word b = 0;
    Word c = 0;
    Word d = 0;
    Word e = 0;
    const auto next = [&] { return reader.template next<Word>(); };
    do {
      take_away(next(), a, c, d, e);
      take_away(next(), b, d, e, a);
      take_away(next(), c, e, a, b);
      take_away(next(), d, a, b, c);
      take_away(next(), e, b, c, d);
      bytes -= kTurn * kWordBytes;
    } while (bytes >= (kTurn + kReach) * kWordBytes);
    state = look_up(next() ^ a);
    state = look_up(next() ^ b ^ state);
    state = look_up(next() ^ c ^ state);
    state = look_up(next() ^ d ^ state);
    state = look_up(next() ^ e ^ state);
    bytes -= kReach * kWordBytes;
  }
  for (; bytes >= kWordBytes; bytes -= kWordBytes) state = look_up(reader.template next<Word>() ^ state);
  // Zeros before a message change nothing.
  if (bytes >= sizeof(uint32_t)) {
    state = look_up(Word{reader.template next<uint32_t>() ^ state} << 32);
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
  const uint32_t behind_head = run<true>(crc, {to, head.data()}, head.size());
  return run<true>(behind_head, {to + head.size(), from.data()}, from.size());
}

}  // namespace verbena::roce::emulated
