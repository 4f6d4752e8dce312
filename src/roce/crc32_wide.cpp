// Folding by carry-less products (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel 2009), four accumulators of 512 bits wide.
//
// In a register of n bits, bit i stands for x^(n-1-i), which is the order of a CRC's bits in memory. The
// product of two such registers of 64 bits comes out divided by x, as one of 128 bits: constants make good
// for that.
#include "roce/crc32.hpp"
#include "roce/polynomial.hpp"

#if defined(__x86_64__)
// GCC 12 warns of its own headers (PR 105593).
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define VERBENA_WIDE gnu::target("avx512f,avx512bw,avx512vl,avx512vbmi2,bmi2,pclmul,vpclmulqdq")

namespace verbena::roce::wide {
namespace {

constexpr size_t kVectorBytes = 64;
constexpr size_t kAccumulators = 4;
constexpr size_t kGroupBytes = kVectorBytes * kAccumulators;
constexpr size_t kCrcBytes = 4;

// To bring 128 bits forward by a group: their first 64, which have x^64 more, and their last.
struct alignas(16) Pair {
  uint64_t first;
  uint64_t last;
};
constexpr Pair kForward{uint64_t{power_of_x(8 * kGroupBytes + 64 - 1)} << 32,
                        uint64_t{power_of_x(8 * kGroupBytes - 1)} << 32};

// To bring each 128 bits of the last group to its end and make them x^32 times as much, as a CRC has it. The
// products have 96 bits, which stand in the first of 128.
struct alignas(kVectorBytes) Group {
  std::array<Pair, kGroupBytes / 16> pairs;
};
constexpr Group kToEnd = [] {
  Group group{};
  for (size_t i = 0; i < group.pairs.size(); ++i) {
    const int following = static_cast<int>(128 * (group.pairs.size() - 1 - i));
    group.pairs[i] = {power_of_x(following + 32 + 64 - 1), power_of_x(following + 32 - 1)};
  }
  return group;
}();

// Barrett's reduction of 96 bits: x^96 divided by the polynomial, without the last term, which is too small
// to change a quotient, and the polynomial.
constexpr Pair kBarrett = [] {
  uint64_t quotient = 0;
  uint32_t rest = power_of_x(31);
  for (int bit = 0; bit < 64; ++bit) {
    quotient |= uint64_t{rest & 1} << bit;
    rest = multiply_by_x(rest);
  }
  return Pair{quotient, uint64_t{kPolynomial} << 1 | 1};
}();

constexpr ByteTable kByte = byte_table(0);

[[VERBENA_WIDE, gnu::always_inline]] inline __m512i fold(__m512i accumulator, __m512i by, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(accumulator, by, 0x00),
                                   _mm512_clmulepi64_epi128(accumulator, by, 0x11), next, kXorOfThree);
}

[[VERBENA_WIDE, gnu::always_inline]] inline __m512i to_end(__m512i accumulator, size_t place, __m512i sum) {
  return fold(accumulator, _mm512_load_si512(&kToEnd.pairs[place * kVectorBytes / sizeof(Pair)]), sum);
}

[[VERBENA_WIDE, gnu::always_inline]] inline uint32_t reduce(__m128i value) {
  const __m128i by = _mm_load_si128(reinterpret_cast<const __m128i*>(&kBarrett));
  const __m128i quotient = _mm_clmulepi64_si128(value, by, 0x00);
  const __m128i multiple = _mm_clmulepi64_si128(quotient, by, 0x10);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(value, multiple), 2));
}

[[VERBENA_WIDE, gnu::always_inline]] inline uint32_t reduce(__m512i sum) {
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
  return reduce(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

// Bytes to take the CRC of, and where they are copied to, if they are.
template <bool kCopies>
class Reader {
 public:
  Reader(std::byte* to, const std::byte* from) : to_(to), from_(from) {}

  uint8_t byte() {
    const auto value = *static_cast<const volatile std::byte*>(from_++);
    if constexpr (kCopies) *to_++ = value;
    return std::to_integer<uint8_t>(value);
  }

  [[VERBENA_WIDE, gnu::always_inline]] inline __m512i vector() {
    __m512i value = _mm512_loadu_si512(from_);
    from_ += kVectorBytes;
    if constexpr (kCopies) {
      read_once(value);
      _mm512_storeu_si512(to_, value);
      to_ += kVectorBytes;
    }
    return value;
  }

  // Zeros follow.
  [[VERBENA_WIDE, gnu::always_inline]] inline __m512i part(size_t bytes) {
    const __mmask64 mask = _bzhi_u64(~uint64_t{0}, static_cast<unsigned>(bytes));
    __m512i value = _mm512_maskz_loadu_epi8(mask, from_);
    from_ += bytes;
    if constexpr (kCopies) {
      read_once(value);
      _mm512_mask_storeu_epi8(to_, mask, value);
      to_ += bytes;
    }
    return value;
  }

 private:
  // The compiler can't know that the value is still in memory.
  [[VERBENA_WIDE, gnu::always_inline]] static inline void read_once(__m512i& value) {
    asm volatile("" : "+v"(value));
  }

  std::byte* to_;
  const std::byte* from_;
};

// A CRC goes into the first four bytes of what follows, so they must be in one vector: of 4 to 64 bytes.
//
// Zeros before a message change nothing: this vector has as many of them as make it whole.
[[VERBENA_WIDE, gnu::always_inline]] inline __m512i lead_of(uint32_t state, __m512i bytes, size_t count) {
  bytes = _mm512_xor_si512(bytes, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  return _mm512_maskz_expand_epi8(~uint64_t{0} << (kVectorBytes - count), bytes);
}

// Goes on behind the lead. Accumulators that get none of the first vectors are zero.
template <bool kCopies>
[[VERBENA_WIDE, gnu::always_inline]] inline uint32_t go_on(__m512i lead, Reader<kCopies> reader,
                                                           size_t vectors) {
  const __m512i zero = _mm512_setzero_si512();
  if (vectors == 0) return ~reduce(to_end(lead, 3, zero));

  __m512i a = zero;
  __m512i b = zero;
  __m512i c = zero;
  __m512i d = lead;
  const __m512i forward = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(&kForward)));
  if (vectors % kAccumulators == 0) {
    // So it is with all usual MTUs behind usual headers: there is nothing to fold but the lead.
    a = reader.vector();
    b = reader.vector();
    c = reader.vector();
    d = fold(lead, forward, reader.vector());
    vectors -= kAccumulators;
  }
  for (; vectors % kAccumulators != 0; --vectors) {
    a = b;
    b = c;
    c = d;
    d = reader.vector();
  }
  for (; vectors != 0; vectors -= kAccumulators) {
    a = fold(a, forward, reader.vector());
    b = fold(b, forward, reader.vector());
    c = fold(c, forward, reader.vector());
    d = fold(d, forward, reader.vector());
  }
  const __m512i ab = to_end(a, 0, to_end(b, 1, zero));
  return ~reduce(to_end(c, 2, to_end(d, 3, ab)));
}

template <bool kCopies>
[[VERBENA_WIDE, gnu::always_inline]] inline uint32_t run(uint32_t crc, Reader<kCopies> reader, size_t bytes) {
  uint32_t state = ~crc;
  if (bytes % kVectorBytes < kCrcBytes) [[unlikely]] {
    for (; bytes % kVectorBytes != 0; --bytes) state = state >> 8 ^ kByte[(state ^ reader.byte()) & 0xff];
    if (bytes == 0) return ~state;
  }
  const size_t count = (bytes - 1) % kVectorBytes + 1;
  const __m512i lead = lead_of(state, reader.part(count), count);
  return go_on(lead, reader, bytes / kVectorBytes - count / kVectorBytes);
}

}  // namespace

bool available() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("vpclmulqdq");
}

[[VERBENA_WIDE]] uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) {
  return run<false>(crc, {nullptr, bytes.data()}, bytes.size());
}

// A usual packet's headers fit into one vector, and its payload is whole ones.
[[VERBENA_WIDE]] uint32_t crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                                        std::span<const std::byte> from) {
  if (head.size() < kCrcBytes || head.size() > kVectorBytes || from.size() % kVectorBytes != 0)
    return run<true>(run<true>(crc, {to, head.data()}, head.size()), {to + head.size(), from.data()},
                     from.size());
  const __m512i lead = lead_of(~crc, Reader<true>(to, head.data()).part(head.size()), head.size());
  return go_on<true>(lead, {to + head.size(), from.data()}, from.size() / kVectorBytes);
}

}  // namespace verbena::roce::wide

#else

namespace verbena::roce {

bool wide::available() { return false; }
uint32_t wide::crc32(uint32_t crc, std::span<const std::byte> bytes) { return plain::crc32(crc, bytes); }
uint32_t wide::crc32_copying(uint32_t crc, std::span<const std::byte> head, std::byte* to,
                             std::span<const std::byte> from) {
  return plain::crc32_copying(crc, head, to, from);
}

}  // namespace verbena::roce

#endif
