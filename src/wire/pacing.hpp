// Keeps unreliable traffic from overflowing a receiver's socket, as priority flow control does on the
// Ethernets that RoCE is made for. After some bytes a greeting follows them on the same way; its answer says
// that the receiver has taken all before it. Too many without an answer: what comes next waits a moment. Only
// between Verbena's processes, and never for long: a lost answer costs no more than that moment.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/numbers.hpp"
#include "base/time.hpp"
#include "net/link.hpp"

namespace verbena::wire {

// Under the port's sending lock.
class Pacing {
 public:
  // May a packet go there now?
  [[nodiscard]] bool open(const net::Route& route, base::Instant now);
  // When it may though no answer came. Not while open().
  [[nodiscard]] base::Instant opens_at(const net::Route& route);
  // A packet went there. A number: a greeting with it is due.
  [[nodiscard]] std::optional<uint64_t> sent(const net::Route& route, size_t bytes, base::Instant now);
  // Somebody waits until open().
  void wait(const net::Route& route, uint16_t connection);
  // The answer to a greeting; who waits for it.
  [[nodiscard]] std::vector<uint16_t> answered(uint64_t number);

 private:
  struct Way {
    net::Address to;
    base::Slot slot;
    size_t since_greeting = 0;  // bytes
    uint32_t greeted = 0;       // greetings so far
    uint32_t answered = 0;      // of them
    base::Instant patience{};   // until when answers are waited for
    std::vector<uint16_t> waiting;
  };
  [[nodiscard]] Way* find(const net::Route& route);

  std::vector<Way> ways_;
};

}  // namespace verbena::wire
