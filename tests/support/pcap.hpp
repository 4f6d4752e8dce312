// RoCEv2 packets out of capture files: classic pcap, Ethernet, IPv4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "roce/icrc.hpp"

namespace verbena::test {

struct CapturedPacket {
  std::string where;  // file and number, for messages
  roce::Flow flow;
  uint16_t ip_id = 0;
  bool dont_fragment = false;
  std::vector<std::byte> ip_header;
  std::vector<std::byte> bytes;  // BTH to ICRC

  [[nodiscard]] std::span<const std::byte> transport() const {
    return std::span(bytes).first(bytes.size() - roce::kIcrcBytes);
  }
};

// Throws std::runtime_error on a file that isn't such a capture; other packets than RoCEv2's are left out.
[[nodiscard]] std::vector<CapturedPacket> read_pcap(const std::filesystem::path& file);

// All of tests/golden, or one file of it.
[[nodiscard]] std::vector<CapturedPacket> golden_packets();
[[nodiscard]] std::vector<CapturedPacket> golden_packets(const std::string& name);

}  // namespace verbena::test
