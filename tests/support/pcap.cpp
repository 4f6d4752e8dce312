#include "support/pcap.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>

#include "roce/bytes.hpp"

namespace verbena::test {
namespace {

constexpr size_t kFileHeaderBytes = 24;
constexpr size_t kRecordHeaderBytes = 16;
constexpr size_t kEthernetBytes = 14;
constexpr size_t kUdpBytes = 8;
constexpr uint32_t kMagic = 0xa1b2c3d4;  // microseconds, written by a machine of our byte order
constexpr uint32_t kEthernet = 1;
constexpr uint16_t kIpv4Type = 0x0800;
constexpr uint8_t kUdpProtocol = 17;
constexpr uint16_t kRocePort = 4791;

uint32_t host_word(std::span<const std::byte> bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::array<uint8_t, 16> mapped(const std::byte* ipv4) {
  std::array<uint8_t, 16> address{};
  address[10] = address[11] = 0xff;
  std::memcpy(address.data() + 12, ipv4, 4);
  return address;
}

std::optional<CapturedPacket> roce_of(std::span<const std::byte> frame) {
  if (frame.size() < kEthernetBytes + 20 + kUdpBytes) return std::nullopt;
  if (roce::load_be<uint16_t>(frame.data() + 12) != kIpv4Type) return std::nullopt;
  const auto ip = frame.subspan(kEthernetBytes);
  const size_t ip_bytes = (std::to_integer<size_t>(ip[0]) & 15) * 4;
  if (ip_bytes != 20 || std::to_integer<uint8_t>(ip[9]) != kUdpProtocol) return std::nullopt;
  const auto udp = ip.subspan(ip_bytes);
  if (roce::load_be<uint16_t>(udp.data() + 2) != kRocePort) return std::nullopt;
  const size_t udp_length = roce::load_be<uint16_t>(udp.data() + 4);
  if (udp_length < kUdpBytes + 16 || udp_length > udp.size()) return std::nullopt;

  CapturedPacket packet;
  packet.flow.source = mapped(ip.data() + 12);
  packet.flow.destination = mapped(ip.data() + 16);
  packet.flow.source_port = roce::load_be<uint16_t>(udp.data());
  packet.flow.destination_port = kRocePort;
  packet.ip_id = roce::load_be<uint16_t>(ip.data() + 4);
  packet.dont_fragment = roce::load_be<uint16_t>(ip.data() + 6) == 0x4000;
  packet.ip_header.assign(ip.begin(), ip.begin() + 20);
  packet.bytes.assign(udp.begin() + kUdpBytes, udp.begin() + static_cast<ptrdiff_t>(udp_length));
  return packet;
}

}  // namespace

std::vector<CapturedPacket> read_pcap(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(chars));
  if (bytes.size() < kFileHeaderBytes || host_word(bytes, 0) != kMagic || host_word(bytes, 20) != kEthernet) {
    throw std::runtime_error(file.string() + " isn't a classic pcap file of Ethernet frames");
  }
  std::vector<CapturedPacket> packets;
  size_t number = 0;
  for (size_t at = kFileHeaderBytes; at < bytes.size();) {
    if (bytes.size() - at < kRecordHeaderBytes) throw std::runtime_error(file.string() + " ends early");
    const size_t length = host_word(bytes, at + 8);
    at += kRecordHeaderBytes;
    if (bytes.size() - at < length) throw std::runtime_error(file.string() + " ends early");
    ++number;
    if (auto packet = roce_of(bytes.subspan(at, length))) {
      packet->where = file.filename().string() + " packet " + std::to_string(number);
      packets.push_back(std::move(*packet));
    }
    at += length;
  }
  return packets;
}

std::vector<CapturedPacket> golden_packets() {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(VERBENA_GOLDEN_DIR)) {
    if (entry.path().extension() == ".pcap") files.insert(entry.path());
  }
  std::vector<CapturedPacket> all;
  for (const auto& file : files) std::ranges::move(read_pcap(file), std::back_inserter(all));
  return all;
}

std::vector<CapturedPacket> golden_packets(const std::string& name) {
  return read_pcap(std::filesystem::path(VERBENA_GOLDEN_DIR) / name);
}

}  // namespace verbena::test
