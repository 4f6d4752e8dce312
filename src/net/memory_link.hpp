// A network inside one process, for tests and simulation: ends with a bounded queue each, nothing lost but
// what finds its queue full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "net/counter.hpp"
#include "net/link.hpp"

namespace verbena::net {

class MemoryLink;

// On any thread; must outlive its ends.
class MemoryNetwork {
 public:
  // How many bytes may wait at each end; a socket has this many on a stock machine.
  explicit MemoryNetwork(size_t queue_bytes = 212'992) : queue_bytes_(queue_bytes) {}
  MemoryNetwork(const MemoryNetwork&) = delete;

  // The end at which packets to this address and slot arrive. There is no other with both.
  [[nodiscard]] std::unique_ptr<MemoryLink> attach(const Address& address, base::Slot slot);

 private:
  friend class MemoryLink;

  const size_t queue_bytes_;
  std::mutex mutex_;
  std::vector<MemoryLink*> ends_;
  uint16_t made_ = 0;
};

struct MemoryCounters {
  Counter packets;      // that arrived at some end
  Counter unreachable;  // runs to where nobody is
  Counter queue_full;   // packets that found no room at the other end
};

class MemoryLink final : public Link {
 public:
  ~MemoryLink() override;

  bool send(const Run& run) override;
  [[nodiscard]] uint16_t source_port(const Route& route) override;
  size_t receive(Sink& sink, size_t budget) override;
  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] const MemoryCounters& sent() const { return sent_; }

 private:
  friend class MemoryNetwork;

  struct Waiting {
    Received about;
    std::vector<std::byte> bytes;
  };

  MemoryLink(MemoryNetwork& network, const Address& address, base::Slot slot, uint16_t number)
      : network_(network), address_(address), slot_(slot), number_(number) {}

  MemoryNetwork& network_;
  const Address address_;
  const base::Slot slot_;
  const uint16_t number_;
  // Under the network's lock.
  std::deque<Waiting> queue_;
  size_t queued_bytes_ = 0;
  MemoryCounters sent_;
};

}  // namespace verbena::net
