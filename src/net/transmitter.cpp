#include "net/transmitter.hpp"

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
  if (end_ + bytes > kBufferBytes) flush();
  return {&buffer_[end_], bytes};
}

bool Transmitter::joins(const Route& route, size_t bytes) const {
  // A shorter packet ended the run when it came, so all packets here have the size of the first.
  return packets_ > 0 && route == route_ && bytes <= segment_bytes_ && end_ - begin_ + bytes <= kMaxRunBytes;
}

void Transmitter::commit(const Route& route, size_t bytes) {
  CHECK(bytes > roce::kIcrcBytes && end_ + bytes <= kBufferBytes);
  const size_t start = end_;
  if (!joins(route, bytes)) {
    flush();
    // It stays where it was written.
    begin_ = end_ = start;
    segment_bytes_ = bytes;
    if (source_port_ == 0 || route != route_) source_port_ = link_.source_port(route);
    route_ = route;
  }
  const roce::Flow flow{
      .source = route.from.bytes, .destination = route.to.bytes, .source_port = source_port_};
  roce::append_icrc(flow, static_cast<uint16_t>(packets_), {&buffer_[start], bytes});
  end_ += bytes;
  ++packets_;
  ++counters_.packets;
  // A run whose end is known needn't wait. A foreign peer checks the ICRC against the ID that it sees, which
  // is 0 for a plain datagram only: so it gets each packet by itself.
  if (!route.recognised || bytes < segment_bytes_ || packets_ == kMaxRunPackets) flush();
}

void Transmitter::flush() {
  if (packets_ > 0) {
    const Run run{route_, static_cast<uint16_t>(segment_bytes_), {&buffer_[begin_], end_ - begin_}};
    ++counters_.runs;
    if (!link_.send(run)) counters_.lost_packets += packets_;
  }
  begin_ = end_ = packets_ = 0;
}

}  // namespace verbena::net
