// What the tests of links share: addresses, packets that carry their number, and a sink that keeps what
// comes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "net/transmitter.hpp"
#include "roce/codec.hpp"
#include "roce/packet.hpp"
#include "support/process.hpp"

namespace verbena::net {

using Bytes = std::vector<std::byte>;

inline Address ipv4(const char* text) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  EXPECT_EQ(1, ::inet_pton(AF_INET, text, &address.bytes[12]));
  return address;
}

inline Address ipv6(const char* text) {
  Address address;
  EXPECT_EQ(1, ::inet_pton(AF_INET6, text, address.bytes.data()));
  return address;
}

inline Route loopback4(unsigned slot, bool recognised = true) {
  return {.from = ipv4("127.0.0.1"),
          .to = ipv4("127.0.0.1"),
          .slot = {static_cast<uint8_t>(slot)},
          .recognised = recognised};
}

inline Route loopback6(unsigned slot, bool recognised = true) {
  return {
      .from = ipv6("::1"), .to = ipv6("::1"), .slot = {static_cast<uint8_t>(slot)}, .recognised = recognised};
}

// A UC send to `slot` whose PSN is `number`, of `bytes` in all (a multiple of 4), with four bytes of room for
// the ICRC; the payload follows from the number.
inline Bytes packet_of(unsigned slot, uint32_t number, size_t bytes) {
  Bytes payload(bytes - 12 - roce::kIcrcBytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(number * 31 + i * 7);
  roce::Packet packet;
  packet.bth.service = roce::Service::kUc;
  packet.bth.destination = base::Qpn::make({static_cast<uint8_t>(slot)}, 0x1234);
  packet.bth.psn = {number};
  packet.payload = payload;
  Bytes out(bytes);
  EXPECT_EQ(bytes - roce::kIcrcBytes, roce::emit(packet, out));
  return out;
}

inline void transmit(Transmitter& transmitter, const Route& route, const Bytes& packet) {
  const auto space = transmitter.space(packet.size());
  ASSERT_EQ(packet.size(), space.size());
  std::memcpy(space.data(), packet.data(), packet.size());
  transmitter.commit(route, packet.size());
}

// The packet without its ICRC.
inline Bytes body(std::span<const std::byte> packet) {
  return {packet.begin(), packet.end() - roce::kIcrcBytes};
}

struct Keeper final : Sink {
  struct Kept {
    Received about;  // without its bytes
    Bytes bytes;
  };
  std::vector<Kept> kept;

  void on_packet(const Received& packet) override {
    kept.push_back({packet, {packet.bytes.begin(), packet.bytes.end()}});
    kept.back().about.bytes = {};
  }

  // Receives until `count` packets are here or two seconds have passed, then what is beyond them. Whether it
  // was exactly that many.
  [[nodiscard]] testing::AssertionResult take(Link& link, size_t count) {
    const auto enough = [&] {
      link.receive(*this, 1'000);
      return kept.size() >= count;
    };
    support::eventually(enough, support::Wait(2'000));
    link.receive(*this, 1'000);
    if (kept.size() == count) return testing::AssertionSuccess();
    return testing::AssertionFailure() << kept.size() << " packets instead of " << count;
  }

  [[nodiscard]] bool icrc_fits(size_t i, roce::IdRule rule = roce::IdRule::kSegment) const {
    return roce::icrc_fits(kept[i].about.flow(), rule, kept[i].about.segment, kept[i].bytes);
  }
};

}  // namespace verbena::net
