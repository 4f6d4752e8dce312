#include "roce/greeting.hpp"

#include <gtest/gtest.h>

#include <array>

#include "roce/codec.hpp"
#include "roce/mad.hpp"

namespace verbena::roce {
namespace {

constexpr size_t kMethodAt = 12 + 8 + 3;  // behind BTH and DETH, in the MAD's header
constexpr size_t kStatusAt = 12 + 8 + 4;

std::array<std::byte, kGreetingBytes> emitted(const Greeting& greeting) {
  std::array<std::byte, kGreetingBytes> bytes{};
  emit_greeting(greeting, kGeneralServicesQpn, bytes);
  return bytes;
}

std::optional<Greeting> parsed(std::span<const std::byte> bytes) {
  const auto packet = parse(bytes);
  return packet ? parse_greeting(*packet) : std::nullopt;
}

TEST(Greeting, ComesBackAsItWent) {
  for (const bool answer : {false, true}) {
    const Greeting greeting{answer, base::Qpn{0x123456}, 77};
    EXPECT_EQ(greeting, parsed(emitted(greeting)));
  }
}

TEST(Greeting, SentBackByAStrangerIsNoAnswer) {
  // What the kernel's rxe does with it, seen in a capture: Get becomes GetResp with status 0x0c, the rest
  // stays.
  auto bytes = emitted({false, kGeneralServicesQpn, 77});
  bytes[kMethodAt] = std::byte{mad_method::kGetResponse};
  EXPECT_TRUE(parsed(bytes)) << "the status alone makes the difference";
  bytes[kStatusAt + 1] = std::byte{mad_status::kBadAttribute};
  EXPECT_FALSE(parsed(bytes));
}

}  // namespace
}  // namespace verbena::roce
