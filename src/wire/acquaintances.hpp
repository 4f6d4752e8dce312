// The hosts that packets go to, and whether they are Verbena (roce/greeting.hpp): then sends to them are
// segmented and what they send is checked more strictly.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/lock.hpp"
#include "base/time.hpp"
#include "net/link.hpp"

namespace verbena::wire {

// Any thread, with any lock held.
class Acquaintances {
 public:
  enum class Word : uint8_t { kAsked, kVerbena };
  // Who isn't known is asked by the next greetings.
  [[nodiscard]] Word look_up(const net::Route& route);
  // The same without asking.
  [[nodiscard]] bool is_verbena(const net::Address& address);
  // An answer came from there, to a greeting with that number. True: it wasn't known before. False also for
  // an answer to nothing that was asked: others could make a stranger pass for Verbena.
  bool recognise(const net::Address& address, uint64_t transaction);

  struct Greeting {
    net::Route route;
    uint64_t transaction = 0;
  };
  // Those that are due. Whoever is no Verbena ignores them, so after some tries we take it for something
  // else.
  [[nodiscard]] std::vector<Greeting> due(base::Instant now);
  [[nodiscard]] base::Instant next_due() const { return {next_.load(std::memory_order_relaxed)}; }

 private:
  struct Host {
    net::Route route;
    uint64_t transaction = 0;  // by chance, so that only who got the greeting can answer it
    unsigned asked = 0;
    base::Instant again{};
    bool verbena = false;
  };
  base::Lock lock_;
  std::vector<Host> hosts_;
  std::atomic<int64_t> next_ = INT64_MAX;
};

}  // namespace verbena::wire
