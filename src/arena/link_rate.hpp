// An interface's speed in the terms of IBA's PortInfo, the same for the verbs and for the files: the slowest
// link that carries it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace verbena::arena {

struct LinkRate {
  uint32_t mbps;
  uint8_t width;     // code: 1 is 1X, 2 is 4X
  uint8_t speed;     // code of one lane
  const char* text;  // as sysfs writes it
};

inline constexpr uint32_t kUnknownSpeedMbps = 100'000;  // for an interface that claims none, such as lo

[[nodiscard]] inline LinkRate link_rate(uint32_t mbps) {
  static constexpr LinkRate kRates[] = {
      {2'500, 1, 1, "2.5 Gb/sec (1X SDR)"},    {10'000, 1, 8, "10 Gb/sec (1X FDR10)"},
      {25'000, 1, 32, "25 Gb/sec (1X EDR)"},   {40'000, 2, 8, "40 Gb/sec (4X FDR10)"},
      {50'000, 1, 64, "50 Gb/sec (1X HDR)"},   {100'000, 2, 32, "100 Gb/sec (4X EDR)"},
      {200'000, 2, 64, "200 Gb/sec (4X HDR)"}, {400'000, 2, 128, "400 Gb/sec (4X NDR)"},
  };
  const uint32_t wanted = mbps != 0 ? mbps : kUnknownSpeedMbps;
  const auto* found = std::ranges::find_if(kRates, [&](const LinkRate& rate) { return rate.mbps >= wanted; });
  return found != std::end(kRates) ? *found : *std::prev(std::end(kRates));
}

}  // namespace verbena::arena
