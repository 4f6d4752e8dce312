// A link that tells of each packet in one line: direction, addresses, and what the packet says.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "net/link.hpp"

namespace verbena::net {

class TraceLink final : public Link {
 public:
  // Called once a packet, on the thread that sends or receives it: from two threads if there are two.
  using Tell = std::function<void(std::string_view line)>;

  TraceLink(Link& inner, Tell tell) : inner_(inner), tell_(std::move(tell)) {}

  bool send(const Run& run) override;
  [[nodiscard]] uint16_t source_port(const Route& route) override { return inner_.source_port(route); }
  size_t receive(Sink& sink, size_t budget) override;
  void tell_hops() override { inner_.tell_hops(); }
  [[nodiscard]] int fd() const override { return inner_.fd(); }

 private:
  Link& inner_;
  Tell tell_;
};

// "RC SendOnly qp 0x010203 psn 17 ack 24 B", or why it is none. `packet` is BTH to ICRC, which isn't checked.
[[nodiscard]] std::string packet_line(std::span<const std::byte> packet);

}  // namespace verbena::net
