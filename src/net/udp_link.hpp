// The link over UDP. It lives in somebody else's process: descriptors close on exec, nothing raises a signal,
// and a program that closes its descriptors gets failed sends, counted.
#pragma once

#include <memory>

#include "net/link.hpp"
#include "net/udp_receiver.hpp"
#include "net/udp_sender.hpp"

namespace verbena::net {

// What the kernel is asked for; it grants less where net.core.rmem_max and wmem_max say so.
struct UdpBuffers {
  int receive_bytes = 4 << 20;
  int send_bytes = 4 << 20;
};

class UdpLink final : public Link {
 public:
  // Receives from a socket of the steered group, which it takes, and sends from sockets of its own.
  [[nodiscard]] static base::Result<std::unique_ptr<UdpLink>> create(base::UniqueFd slot_socket,
                                                                     const UdpBuffers& buffers = {}) {
    std::unique_ptr<UdpLink> link(new UdpLink(std::move(slot_socket), buffers));
    if (auto usable = link->receiver_.usable(); !usable) return std::unexpected(usable.error());
    return link;
  }

  bool send(const Run& run) override { return sender_.send(run); }
  [[nodiscard]] uint16_t source_port(const Route& route) override { return sender_.source_port(route); }
  size_t receive(Sink& sink, size_t budget) override { return receiver_.receive(sink, budget); }
  void tell_hops() override { receiver_.tell_hops(); }
  [[nodiscard]] int fd() const override { return receiver_.fd(); }

  void visit_counters(const CounterVisitor& visit) const override;

  [[nodiscard]] const UdpSendCounters& sent() const { return sender_.counters(); }
  [[nodiscard]] const UdpReceiveCounters& received() const { return receiver_.counters(); }

 private:
  UdpLink(base::UniqueFd slot_socket, const UdpBuffers& buffers)
      : sender_(buffers.send_bytes), receiver_(std::move(slot_socket), buffers.receive_bytes) {}

  UdpSender sender_;
  UdpReceiver receiver_;
};

}  // namespace verbena::net
