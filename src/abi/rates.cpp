// IBA rates: the code, its multiple of 2.5 Gb/s where that is whole, and its true speed.
#include <infiniband/verbs.h>

#include <algorithm>
#include <iterator>

#include "abi/abi.hpp"

namespace {

struct Rate {
  ibv_rate code;
  int multiple;  // -1: not one that ibv_rate_to_mult knows
  int mbps;
};

constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2'500},        {IBV_RATE_5_GBPS, 2, 5'000},
    {IBV_RATE_10_GBPS, 4, 10'000},        {IBV_RATE_20_GBPS, 8, 20'000},
    {IBV_RATE_30_GBPS, 12, 30'000},       {IBV_RATE_40_GBPS, 16, 40'000},
    {IBV_RATE_60_GBPS, 24, 60'000},       {IBV_RATE_80_GBPS, 32, 80'000},
    {IBV_RATE_120_GBPS, 48, 120'000},     {IBV_RATE_14_GBPS, -1, 14'062},
    {IBV_RATE_56_GBPS, -1, 56'250},       {IBV_RATE_112_GBPS, -1, 112'500},
    {IBV_RATE_168_GBPS, -1, 168'750},     {IBV_RATE_25_GBPS, -1, 25'781},
    {IBV_RATE_100_GBPS, -1, 103'125},     {IBV_RATE_200_GBPS, -1, 206'250},
    {IBV_RATE_300_GBPS, -1, 309'375},     {IBV_RATE_28_GBPS, 11, 28'125},
    {IBV_RATE_50_GBPS, 20, 53'125},       {IBV_RATE_400_GBPS, 160, 425'000},
    {IBV_RATE_600_GBPS, 240, 637'500},    {IBV_RATE_800_GBPS, 320, 850'000},
    {IBV_RATE_1200_GBPS, 480, 1'275'000},
};

template <typename Value>
const Rate* find(Value Rate::*member, Value value) {
  const auto* const found = std::ranges::find(kRates, value, member);
  return found != std::end(kRates) ? found : nullptr;
}

}  // namespace

VERBENA_ENTRY int vb_ibv_rate_to_mult(ibv_rate rate) noexcept {
  const Rate* found = find(&Rate::code, rate);
  return found ? found->multiple : -1;
}
VERBENA_SAME_PROTOTYPE(ibv_rate_to_mult);

VERBENA_ENTRY ibv_rate vb_mult_to_ibv_rate(int mult) noexcept {
  const Rate* found = mult > 0 ? find(&Rate::multiple, mult) : nullptr;
  return found ? found->code : IBV_RATE_MAX;
}
VERBENA_SAME_PROTOTYPE(mult_to_ibv_rate);

VERBENA_ENTRY int vb_ibv_rate_to_mbps(ibv_rate rate) noexcept {
  const Rate* found = find(&Rate::code, rate);
  return found ? found->mbps : -1;
}
VERBENA_SAME_PROTOTYPE(ibv_rate_to_mbps);

VERBENA_ENTRY ibv_rate vb_mbps_to_ibv_rate(int mbps) noexcept {
  const Rate* found = find(&Rate::mbps, mbps);
  return found ? found->code : IBV_RATE_MAX;
}
VERBENA_SAME_PROTOTYPE(mbps_to_ibv_rate);
