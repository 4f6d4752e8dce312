// By tables, eight bytes a step in pieces of 11 bits: fewer look-ups than by bytes, from tables of 42 KiB.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "roce/crc32.hpp"
#include "roce/polynomial.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace verbena::roce::table {
namespace {

static_assert(std::endian::native == std::endian::little, "words are taken as the wire has their bytes");

using Word = uint64_t;
constexpr unsigned kWordBits = 64;
constexpr unsigned kPieceBits = 11;
constexpr Word kPieceMask = (1 << kPieceBits) - 1;
constexpr size_t kPieces = (kWordBits + kPieceBits - 1) / kPieceBits;

// What a piece of each value adds to the CRC of the word that it is in.
constexpr auto kPieceTables = [] {
  std::array<std::array<uint32_t, 1 << kPieceBits>, kPieces> tables{};
  for (unsigned bit = 0; bit < kWordBits; ++bit)
    tables[bit / kPieceBits][1 << bit % kPieceBits] = power_of_x(static_cast<int>(32 + kWordBits - 1 - bit));
  for (auto& table : tables)
    for (size_t value = 1; value < table.size(); ++value)
      table[value] = table[value & (value - 1)] ^ table[value & -value];
  return tables;
}();

constexpr ByteTable kByte = byte_table(0);

// Written out: an emulator takes a loop's turn for as much as six look-ups.
[[gnu::always_inline]] inline uint32_t crc_of(Word word) {
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
    return value;
  }

 private:
  std::byte* to_;
  const std::byte* from_;
};

template <bool kCopies>
uint32_t run(uint32_t crc, Reader<kCopies> reader, size_t bytes) {
  constexpr size_t kStep = 4 * sizeof(Word);
  uint32_t state = ~crc;
  for (; bytes >= kStep; bytes -= kStep) {
    state = crc_of(reader.template next<Word>() ^ state);
    state = crc_of(reader.template next<Word>() ^ state);
    state = crc_of(reader.template next<Word>() ^ state);
    state = crc_of(reader.template next<Word>() ^ state);
  }
  for (; bytes >= sizeof(Word); bytes -= sizeof(Word)) state = crc_of(reader.template next<Word>() ^ state);
  // Zeros before a message change nothing.
  if (bytes >= 4) {
    state = crc_of(Word{reader.template next<uint32_t>() ^ state} << 32);
    bytes -= 4;
  }
  for (; bytes > 0; --bytes) state = state >> 8 ^ kByte[(state ^ reader.template next<uint8_t>()) & 0xff];
  return ~state;
}

}  // namespace

// QEMU without hardware's help says so, in the leaf where hypervisors have their names.
bool preferred() {
#if defined(__x86_64__)
  constexpr unsigned kHypervisor = 1u << 31;
  constexpr unsigned kNameLeaf = 0x40000000;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kHypervisor) == 0) return false;
  __cpuid(kNameLeaf, eax, ebx, ecx, edx);
  const std::array<unsigned, 3> name{ebx, ecx, edx};
  return std::memcmp(name.data(), "TCGTCGTCGTCG", sizeof name) == 0;
#else
  return false;
#endif
}

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return run<false>(crc, {nullptr, bytes.data()}, bytes.size());
}

uint32_t crc32_copying(uint32_t crc, std::byte* to, std::span<const std::byte> from) {
  return run<true>(crc, {to, from.data()}, from.size());
}

}  // namespace verbena::roce::table
