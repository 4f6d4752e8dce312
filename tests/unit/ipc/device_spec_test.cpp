#include "ipc/device_spec.hpp"

#include <gtest/gtest.h>

#include <random>

namespace verbena::ipc {
namespace {

// Names that together make a specification of exactly `length` characters: "nnn...=lo".
std::string spec_of_length(size_t length) {
  std::string text;
  for (char name = 'a'; text.size() + 70 < length; ++name) text += std::string(60, name) + "=lo;";
  const size_t left = length - text.size() - 3;
  return text + std::string(left, 'z') + "=lo";
}

TEST(DeviceSpec, SaysNothingMeansVerbena0OnAllInterfaces) {
  EXPECT_EQ((DeviceSpecs{{"verbena0", {"*"}}}), *parse_specs(""));
  EXPECT_EQ("verbena0=*", format_specs(default_specs()));
}

TEST(DeviceSpec, ParsesGoodOnes) {
  const std::pair<std::string, DeviceSpecs> cases[] = {
      {"verbena0=*", {{"verbena0", {"*"}}}},
      {"mlx5_0=eth0", {{"mlx5_0", {"eth0"}}}},
      {"mlx5_0=eth0,eth1;mlx5_1=lo", {{"mlx5_0", {"eth0", "eth1"}}, {"mlx5_1", {"lo"}}}},
      {"a=*,lo,*", {{"a", {"*", "lo", "*"}}}},
      {"a.b-c:d@e_9=eth0.100,br-lan,wl:1,veth@if3",
       {{"a.b-c:d@e_9", {"eth0.100", "br-lan", "wl:1", "veth@if3"}}}},
      {"...=lo", {{"...", {"lo"}}}},
      {std::string(63, 'n') + "=" + std::string(15, 'i'), {{std::string(63, 'n'), {std::string(15, 'i')}}}},
      {"a=lo;b=lo;c=lo;d=lo;e=lo;f=lo;g=lo;h=lo",
       {{"a", {"lo"}},
        {"b", {"lo"}},
        {"c", {"lo"}},
        {"d", {"lo"}},
        {"e", {"lo"}},
        {"f", {"lo"}},
        {"g", {"lo"}},
        {"h", {"lo"}}}},
      {"a=1,2,3,4", {{"a", {"1", "2", "3", "4"}}}},
  };
  for (const auto& [text, expected] : cases) {
    const auto specs = parse_specs(text);
    ASSERT_TRUE(specs) << text << ": " << specs.error().sentence;
    EXPECT_EQ(expected, *specs) << text;
    EXPECT_EQ(text, format_specs(*specs));
  }
}

TEST(DeviceSpec, RefusesBadOnesWithASentenceThatShowsWhere) {
  const std::pair<std::string, std::string> cases[] = {
      {"verbena0", "device 'verbena0' names no port"},
      {"=eth0", "'' is no device name"},
      {"a=", "'' is no interface name"},
      {"a=lo,", "'' is no interface name"},
      {"a=lo,,eth0", "'' is no interface name"},
      {"a=lo;", "device '' names no port"},
      {";a=lo", "device '' names no port"},
      {"a=lo;;b=lo", "device '' names no port"},
      {"a=lo=eth0", "'lo=eth0' is no interface name"},
      {"a b=lo", "'a b' is no device name"},
      {"a= lo", "' lo' is no interface name"},
      {"a=lo ", "'lo ' is no interface name"},
      {"*=lo", "'*' is no device name"},
      {"a=eth*", "'eth*' is no interface name"},
      {"../x=lo", "'../x' is no device name"},
      {".=lo", "'.' is no device name"},
      {"..=lo", "'..' is no device name"},
      {"a=..", "'..' is no interface name"},
      {"a=/dev", "'/dev' is no interface name"},
      {"a\n=lo", "is no device name"},
      {"\xc3\xa4=lo", "is no device name"},
      {std::string("a\0b=lo", 6), "is no device name"},
      {"a=lo;b=lo;a=eth0", "device 'a' is named twice"},
      {"a=1,2,3,4,5", "device 'a' has 5 ports; 1 to 4 are possible"},
      {"a=lo;b=lo;c=lo;d=lo;e=lo;f=lo;g=lo;h=lo;i=lo", "9 devices asked for; 1 to 8 are possible"},
      {std::string(64, 'n') + "=lo", "is no device name: 1 to 63"},
      {"a=" + std::string(16, 'i'), "is no interface name: 1 to 15"},
  };
  for (const auto& [text, sentence] : cases) {
    const auto specs = parse_specs(text);
    ASSERT_FALSE(specs) << text;
    EXPECT_EQ(EINVAL, specs.error().code) << text;
    EXPECT_NE(std::string::npos, specs.error().sentence.find(sentence))
        << text << ": " << specs.error().sentence;
  }
}

TEST(DeviceSpec, MayBe511CharactersLong) {
  ASSERT_EQ(511u, spec_of_length(511).size());
  EXPECT_TRUE(parse_specs(spec_of_length(511))) << parse_specs(spec_of_length(511)).error().sentence;
  const auto longer = parse_specs(spec_of_length(512));
  ASSERT_FALSE(longer);
  EXPECT_EQ("the device specification is longer than 511 characters", longer.error().sentence);
}

TEST(DeviceSpec, AnEmptyListOrADeviceWithoutPortsIsNone) {
  EXPECT_EQ(EINVAL, check_specs({}).error().code);
  EXPECT_EQ(EINVAL, check_specs({{"a", {}}}).error().code);
}

constexpr std::string_view kGoodLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:@";

DeviceSpecs random_specs(std::mt19937& random) {
  const auto up_to = [&](size_t most) { return 1 + random() % most; };
  const auto name = [&](size_t most) {
    std::string text(up_to(most), ' ');
    for (char& c : text) c = kGoodLetters[random() % kGoodLetters.size()];
    return text;
  };
  DeviceSpecs specs;
  for (size_t devices = up_to(8); devices > 0; --devices) {
    DeviceSpec spec{name(20), {}};
    for (size_t ports = up_to(4); ports > 0; --ports)
      spec.ports.push_back(random() % 4 == 0 ? "*" : name(15));
    specs.push_back(std::move(spec));
  }
  return specs;
}

TEST(DeviceSpec, EachOneThatPassesTheCheckSurvivesItsTextForm) {
  std::mt19937 random(20240611);
  int checked = 0;
  for (int i = 0; i < 5'000; ++i) {
    const DeviceSpecs specs = random_specs(random);
    const auto back = parse_specs(format_specs(specs));
    ASSERT_EQ(check_specs(specs).has_value(), back.has_value()) << format_specs(specs);
    if (!back) continue;
    ASSERT_EQ(specs, *back);
    ++checked;
  }
  EXPECT_GT(checked, 1'000);
}

TEST(DeviceSpec, WhateverTheTextEitherItIsRefusedOrItRoundTrips) {
  std::mt19937 random(7);
  constexpr std::string_view kLetters = "ab=;,*. \n/";
  int accepted = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text(random() % 10, ' ');
    for (char& c : text) c = kLetters[random() % kLetters.size()];
    const auto specs = parse_specs(text);
    if (!specs) continue;
    ++accepted;
    ASSERT_EQ(text.empty() ? "verbena0=*" : text, format_specs(*specs));
    ASSERT_TRUE(check_specs(*specs)) << text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace verbena::ipc
