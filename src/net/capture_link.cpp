#include "net/capture_link.hpp"

#include <chrono>

#include "net/ip_headers.hpp"

namespace verbena::net {
namespace {

uint64_t wall_clock_ns() {
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                               std::chrono::nanoseconds(1));
}

// The ID isn't known where a middleware cut runs or the kernel merged other ones than were sent: the ICRC
// tells.
void write(Pcapng& file, Direction direction, uint64_t ns, IpFields fields, size_t place,
           std::span<const std::byte> packet) {
  fields.id = find_id(fields.flow, static_cast<uint16_t>(place), packet);
  std::array<std::byte, kMaxIpHeaderBytes> headers;
  const size_t size = emit_ip_headers(fields, packet, headers);
  file.add(direction, ns, std::span(headers).first(size), packet);
}

}  // namespace

bool CaptureLink::send(const Run& run) {
  // Written first: an answer must not stand before what it answers.
  const uint64_t ns = wall_clock_ns();
  const IpFields fields{.flow = {.source = run.route.from.bytes,
                                 .destination = run.route.to.bytes,
                                 .source_port = inner_.source_port(run.route)},
                        .traffic_class = run.route.traffic_class,
                        .hop_limit = run.route.hop_limit};
  for (size_t i = 0; i < run.packets(); ++i) write(file_, Direction::kOut, ns, fields, i, run.packet(i));
  file_.flush();
  return inner_.send(run);
}

size_t CaptureLink::receive(Sink& sink, size_t budget) {
  struct Between final : Sink {
    Between(Pcapng& into, Sink& to) : file(into), sink(to) {}
    void on_packet(const Received& packet) override {
      keep(packet);
      sink.on_packet(packet);
    }
    void on_run(const ReceivedRun& run) override {
      for (size_t i = 0; i < run.packets(); ++i) keep(run.packet(i));
      sink.on_run(run);
    }
    void keep(const Received& packet) {
      const IpFields fields{
          .flow = packet.flow(), .traffic_class = packet.traffic_class, .hop_limit = packet.hop_limit};
      write(file, Direction::kIn, ns, fields, packet.segment, packet.bytes);
    }
    Pcapng& file;
    Sink& sink;
    uint64_t ns = wall_clock_ns();
  };
  Between between(file_, sink);
  const size_t handed = inner_.receive(between, budget);
  if (handed > 0) file_.flush();
  return handed;
}

}  // namespace verbena::net
