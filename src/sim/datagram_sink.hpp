// From the engine's packets to datagrams of the network.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "engine/packet_sink.hpp"
#include "roce/codec.hpp"
#include "sim/network.hpp"

namespace verbena::sim {

// The bytes of one packet after the other, with the headers that it lacks.
class DatagramSink final : public engine::PacketSink {
 public:
  DatagramSink(Network& network, HostId from, HostId to) : network_(network), from_(from), to_(to) {}

  [[nodiscard]] bool ready() override { return network_.has_room(from_); }
  [[nodiscard]] std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) override {
    headers_ = roce::opcode_info(opcode).header_bytes;
    pad_ = -payload_bytes & 3;
    bytes_ = network_.buffer(headers_ + payload_bytes + pad_ + roce::kIcrcBytes);
    return std::span(bytes_).subspan(headers_, payload_bytes);
  }
  void commit(const roce::Packet& packet) override {
    CHECK(packet.info().header_bytes == headers_);
    CHECK(headers_ + packet.payload.size() + pad_ + roce::kIcrcBytes == bytes_.size());
    roce::emit_headers(packet, static_cast<unsigned>(pad_), bytes_);
    std::fill(bytes_.end() - static_cast<ptrdiff_t>(pad_ + roce::kIcrcBytes), bytes_.end(), std::byte{0});
    roce::append_icrc(network_.flow(from_, to_), 0, bytes_);
    network_.send({from_, to_, std::move(bytes_)});
    bytes_.clear();
  }

  [[nodiscard]] size_t run_room(uint8_t, size_t) override { return kRun; }

 private:
  static constexpr size_t kRun = 8;

  Network& network_;
  HostId from_;
  HostId to_;
  size_t headers_ = 0;
  size_t pad_ = 0;
  std::vector<std::byte> bytes_;
};

}  // namespace verbena::sim
