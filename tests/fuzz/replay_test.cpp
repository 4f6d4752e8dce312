// The fuzz targets without a fuzzer, for every `make test`: what the golden captures give,
// those with random changes, and what fuzzing has found before (found/TARGET-*).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>

#include "engine_input.hpp"
#include "golden_sequences.hpp"
#include "support/pcap.hpp"

namespace verbena::fuzz {
namespace {

const std::map<std::string, std::function<void(std::span<const uint8_t>)>> kRuns{
    {"roce", run_roce},
    {"rc_requester", run_rc_requester},
    {"rc_responder", run_rc_responder},
    {"uc_responder", run_uc_responder},
    {"ud", run_ud}};

TEST(Replay, GoldenSequences) {
  std::map<std::string, unsigned> seeds;
  for (const auto& seed : golden_sequences()) {
    SCOPED_TRACE(seed.target + " " + seed.name);
    kRuns.at(seed.target)(seed.bytes);
    ++seeds[seed.target];
  }
  EXPECT_EQ(seeds["rc_requester"], seeds["rc_responder"]);
  EXPECT_GE(seeds["rc_responder"], 15u);
  EXPECT_EQ(seeds["uc_responder"], 2u);
  EXPECT_GE(seeds["ud"], 1u);
}

TEST(Replay, GoldenPacketsAndWhatIsLikeThem) {
  const auto packets = test::golden_packets();
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto& packet = packets[static_cast<size_t>(i) % packets.size()].bytes;
    std::vector<uint8_t> bytes(packet.size());
    std::ranges::transform(packet, bytes.begin(),
                           [](std::byte byte) { return std::to_integer<uint8_t>(byte); });
    if (static_cast<size_t>(i) >= packets.size()) {
      for (unsigned change = random() % 8; change > 0; --change)
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      bytes.resize(random() % 8 == 0 ? random() % (bytes.size() + 8) : bytes.size());
    }
    run_roce(bytes);
  }
}

// Bytes changed, steps left out, doubled and put together from two seeds.
std::vector<uint8_t> mutated(const std::vector<Seed>& seeds, const std::string& target,
                             std::mt19937& random) {
  std::vector<const Seed*> own;
  for (const auto& seed : seeds)
    if (seed.target == target) own.push_back(&seed);
  auto bytes = own[random() % own.size()]->bytes;
  const auto& other = own[random() % own.size()]->bytes;
  const auto step = [&](const std::vector<uint8_t>& of) {
    return static_cast<ptrdiff_t>(1 + random() % (of.size() / 12) * 12);
  };
  for (unsigned change = random() % 8; change > 0; --change) {
    switch (random() % 4) {
      case 0: {
        const auto from = step(other);
        bytes.insert(bytes.begin() + step(bytes), other.begin() + from, other.begin() + from + 12);
        break;
      }
      case 1:
        if (bytes.size() > 13) {
          const auto at = step(bytes);
          bytes.erase(bytes.begin() + at, bytes.begin() + at + 12);
        }
        break;
      default:
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random() % 3 == 0 ? random() : random() % 8);
        break;
    }
    if (bytes.size() < 13) bytes.resize(13);
  }
  return bytes;
}

class Mutations : public ::testing::TestWithParam<std::string> {};

TEST_P(Mutations, NothingBreaks) {
  const auto seeds = golden_sequences();
  std::mt19937 random(1);
  for (int i = 0; i < 5'000; ++i) kRuns.at(GetParam())(mutated(seeds, GetParam(), random));
}

INSTANTIATE_TEST_SUITE_P(Of, Mutations,
                         ::testing::Values("rc_requester", "rc_responder", "uc_responder", "ud"),
                         [](const auto& of) { return of.param; });

TEST(Replay, WhatWasFoundBefore) {
  for (const auto& entry : std::filesystem::directory_iterator(VERBENA_FUZZ_FOUND_DIR)) {
    const auto name = entry.path().filename().string();
    const auto target = name.substr(0, name.find('-'));
    SCOPED_TRACE(name);
    if (name == "README.md") continue;
    ASSERT_TRUE(kRuns.contains(target)) << "it is named after no target";
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
    kRuns.at(target)({reinterpret_cast<const uint8_t*>(chars.data()), chars.size()});
  }
}

}  // namespace
}  // namespace verbena::fuzz
