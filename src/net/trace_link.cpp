#include "net/trace_link.hpp"

#include <fmt/format.h>

#include "roce/codec.hpp"
#include "roce/print.hpp"

namespace verbena::net {

std::string packet_line(std::span<const std::byte> packet) {
  if (packet.size() < roce::kIcrcBytes) return fmt::format("too_short, {} B", packet.size());
  const auto parsed = roce::parse(packet.first(packet.size() - roce::kIcrcBytes));
  if (!parsed) return fmt::format("{}, {} B", roce::parse_error_name(parsed.error()), packet.size());
  return roce::to_line(*parsed);
}

bool TraceLink::send(const Run& run) {
  for (size_t i = 0; i < run.packets(); ++i)
    tell_(fmt::format("out {} > {} {}", to_text(run.route.from), to_text(run.route.to),
                      packet_line(run.packet(i))));
  const bool sent = inner_.send(run);
  if (!sent) tell_(fmt::format("out {} > {} refused", to_text(run.route.from), to_text(run.route.to)));
  return sent;
}

size_t TraceLink::receive(Sink& sink, size_t budget) {
  struct Between final : Sink {
    Between(const Tell& tell_line, Sink& to) : tell(tell_line), sink(to) {}
    void on_packet(const Received& packet) override {
      tell_of(packet);
      sink.on_packet(packet);
    }
    void on_run(const ReceivedRun& run) override {
      for (size_t i = 0; i < run.packets(); ++i) tell_of(run.packet(i));
      sink.on_run(run);
    }
    void tell_of(const Received& packet) const {
      tell(
          fmt::format("in  {} > {} {}", to_text(packet.from), to_text(packet.to), packet_line(packet.bytes)));
    }
    const Tell& tell;
    Sink& sink;
  };
  Between between(tell_, sink);
  return inner_.receive(between, budget);
}

}  // namespace verbena::net
