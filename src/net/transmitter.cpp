#include "net/transmitter.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace verbena::net {
namespace {

// A whole run, and behind it a packet that may turn out to begin the next one.
constexpr size_t kBufferBytes = kMaxRunBytes + kMaxPacketBytes;

}  // namespace

Transmitter::Transmitter(Link& link)
    : link_(link), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

std::span<std::byte> Transmitter::space(size_t bytes) {
  CHECK(bytes <= kMaxPacketBytes);
  return {&buffer_[end_], bytes};
}

bool Transmitter::joins(const Route& route, size_t bytes) const {
  // What can't be followed by one more like it was sent when it came, so there is room.
  return packets_ > 0 && bytes <= segment_bytes_ && route == route_;
}

void Transmitter::begin_run(const Route& route, size_t bytes) {
  segment_bytes_ = bytes;
  if (source_port_ == 0 || route != route_) source_port_ = link_.source_port(route);
  route_ = route;
  flow_ =
      &flows_.of({.source = route.from.bytes, .destination = route.to.bytes, .source_port = source_port_});
}

void Transmitter::commit(const Route& route, size_t bytes) {
  CHECK(bytes <= kMaxPacketBytes);
  if (!joins(route, bytes)) {
    const size_t written_at = end_;
    if (packets_ > 0) {
      if (rider_bytes_ > 0) send_rider();  // its place is taken by this packet
      send_run();
    }
    // One copy a run at most, and only where runs end by surprise.
    if (written_at > 0) std::memmove(&buffer_[0], &buffer_[written_at], bytes);
    begin_run(route, bytes);
  }
  flow_->append(static_cast<uint16_t>(packets_), {&buffer_[end_], bytes});
  end_packet(route, bytes);
}

void Transmitter::append(const Route& route, std::span<const std::byte> headers,
                         std::span<const std::byte> payload) {
  const size_t bytes = headers.size() + payload.size() + roce::kIcrcBytes;
  CHECK(bytes <= kMaxPacketBytes);
  if (!joins(route, bytes)) {
    if (packets_ > 0) flush();
    begin_run(route, bytes);
  }
  flow_->write(static_cast<uint16_t>(packets_), headers, payload, &buffer_[end_]);
  end_packet(route, bytes);
}

size_t Transmitter::room_for(const Route& route, size_t bytes) const {
  if (!route.recognised) return 1;
  if (packets_ == 0) return std::min(kMaxRunPackets, kMaxRunBytes / bytes);
  if (!joins(route, bytes)) return 0;
  return bytes < segment_bytes_ ? 1 : std::min(kMaxRunPackets - packets_, (kMaxRunBytes - end_) / bytes);
}

void Transmitter::end_packet(const Route& route, size_t bytes) {
  end_ += bytes;
  ++packets_;
  ++counters_.packets;
  // A run whose end is known needn't wait. A foreign peer checks the ICRC against the ID that it sees, which
  // is 0 for a plain datagram only: so it gets each packet by itself.
  if (!route.recognised || bytes < segment_bytes_ || packets_ == kMaxRunPackets ||
      end_ + segment_bytes_ > kMaxRunBytes)
    flush();
}

std::span<std::byte> Transmitter::rider_space() {
  flush();
  return rider_;
}

void Transmitter::carry(const Route& route, size_t bytes) {
  CHECK(bytes <= rider_.size());
  rider_bytes_ = bytes;
  rider_route_ = route;
  ++counters_.packets;
}

// Only the last packet of a run may be shorter than the others.
bool Transmitter::rider_fits() const {
  return packets_ > 0 && route_ == rider_route_ && route_.recognised && rider_bytes_ <= segment_bytes_ &&
         end_ == packets_ * segment_bytes_ && packets_ < kMaxRunPackets &&
         end_ + rider_bytes_ <= kMaxRunBytes;
}

// By itself, before a run that it doesn't fit, or without any.
void Transmitter::send_rider() {
  if (packets_ == 0) begin_run(rider_route_, rider_bytes_);
  const Route& way = rider_route_;
  const roce::FlowIcrc& flow = way == route_ ? *flow_
                                             : flows_.of({.source = way.from.bytes,
                                                          .destination = way.to.bytes,
                                                          .source_port = link_.source_port(way)});
  const std::span<std::byte> packet(rider_.data(), std::exchange(rider_bytes_, 0));
  flow.append(0, packet);
  hand_over({way, static_cast<uint16_t>(packet.size()), packet}, 1);
}

void Transmitter::append_rider() {
  std::memcpy(&buffer_[end_], rider_.data(), rider_bytes_);
  flow_->append(static_cast<uint16_t>(packets_), {&buffer_[end_], rider_bytes_});
  end_ += std::exchange(rider_bytes_, 0);
  ++packets_;
}

void Transmitter::flush() {
  if (rider_bytes_ > 0) {
    if (rider_fits())
      append_rider();
    else
      send_rider();
  }
  if (packets_ > 0) send_run();
}

void Transmitter::send_run() {
  hand_over({route_, static_cast<uint16_t>(segment_bytes_), {&buffer_[0], end_}}, packets_);
  end_ = packets_ = 0;
}

void Transmitter::hand_over(const Run& run, size_t packets) {
  ++counters_.runs;
  if (!link_.send(run)) counters_.lost_packets += packets;
}

}  // namespace verbena::net
