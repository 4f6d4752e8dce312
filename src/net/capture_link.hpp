// A link that writes what passes into a capture file, with IP and UDP headers as the packets had them. Put it
// above a FaultLink to see what the engine meant, below to see what the network made of it.
#pragma once

#include "net/link.hpp"
#include "net/pcapng.hpp"

namespace verbena::net {

class CaptureLink final : public Link {
 public:
  CaptureLink(Link& inner, Pcapng& file) : inner_(inner), file_(file) {}

  bool send(const Run& run) override;
  [[nodiscard]] uint16_t source_port(const Route& route) override { return inner_.source_port(route); }
  size_t receive(Sink& sink, size_t budget) override;
  void tell_hops() override { inner_.tell_hops(); }
  [[nodiscard]] int fd() const override { return inner_.fd(); }

 private:
  Link& inner_;
  Pcapng& file_;
};

}  // namespace verbena::net
