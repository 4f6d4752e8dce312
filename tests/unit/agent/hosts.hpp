// Made-up hosts: interfaces with addresses, without a network.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "arena/device_table.hpp"
#include "net/interfaces.hpp"

namespace verbena::agent {

inline net::Address address(const std::string& text) {
  net::Address result;
  if (text.find(':') != std::string::npos) {
    EXPECT_EQ(1, ::inet_pton(AF_INET6, text.c_str(), result.bytes.data())) << text;
  } else {
    result.bytes[10] = result.bytes[11] = 0xff;
    EXPECT_EQ(1, ::inet_pton(AF_INET, text.c_str(), &result.bytes[12])) << text;
  }
  return result;
}

inline std::string text_of(const arena::RawGid& gid) {
  char text[INET6_ADDRSTRLEN]{};
  ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  const std::string result(text);
  return result.starts_with("::ffff:") ? result.substr(7) : result;
}

inline net::Interface interface(const std::string& name, uint32_t index,
                                const std::vector<std::string>& addresses) {
  net::Interface made{.name = name, .index = index, .mtu = 1500, .speed_mbps = 25'000, .up = true};
  made.mac = {2, 0, 0, 0, 0, static_cast<uint8_t>(index)};
  for (const auto& text : addresses) made.addresses.push_back(address(text));
  return made;
}

inline net::Interface loopback() {
  auto lo = interface("lo", 1, {"127.0.0.1", "::1"});
  lo.loopback = true;
  lo.mtu = 65536;
  lo.speed_mbps = 0;
  lo.mac = {};
  return lo;
}

// The addresses in use of a port, "-" for an empty place, without the empty tail.
inline std::vector<std::string> gids_of(const arena::PortRecord& port) {
  std::vector<std::string> gids;
  for (const auto& gid : port.gids) gids.push_back(gid.used != 0 ? text_of(gid.raw) : "-");
  while (!gids.empty() && gids.back() == "-") gids.pop_back();
  return gids;
}

// A directory that goes with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/verbena-unit-XXXXXX";
    EXPECT_NE(nullptr, ::mkdtemp(name));
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace verbena::agent
