// Datagrams between processes of this host that share memory: past the socket, but otherwise as packets. A
// lane leads into one other process's box.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "arena/datagram_box.hpp"
#include "arena/process_arena.hpp"
#include "base/numbers.hpp"
#include "base/time.hpp"
#include "engine/packet_sink.hpp"
#include "net/counter.hpp"
#include "net/link.hpp"
#include "verbs/address_handle.hpp"
#include "verbs/queue_owner.hpp"

namespace verbena::wire {

// Under the port's sending lock.
class Lane final : public engine::PacketSink {
 public:
  // Packets of all lanes together.
  struct Counters {
    net::Counter sent;
    net::Counter lost;
  };
  Lane(std::shared_ptr<verbs::QueueOwner> owner, base::Slot ours, Counters& counters)
      : owner_(std::move(owner)),
        ours_(ours),
        counters_(counters),
        writer_(owner_->arena().datagram_box(ours)) {}

  [[nodiscard]] bool gone() const { return owner_->gone(); }
  // The next packet is that one.
  void aim(const verbs::Datagram& datagram, base::Instant now);
  // A full box is waited for, but not for long: its owner may be stopped.
  [[nodiscard]] bool ready() override;
  [[nodiscard]] std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) override;
  void commit(const roce::Packet& packet) override;

 private:
  [[nodiscard]] bool takes_datagrams(base::Qpn target) const;

  std::shared_ptr<verbs::QueueOwner> owner_;
  base::Slot ours_;
  Counters& counters_;
  arena::DatagramWriter writer_;
  const verbs::AddressVector* vector_ = nullptr;
  base::Instant now_{};
  bool nobody_ = false;                                        // the next packet has no queue pair to go to
  base::Instant full_since_{};                                 // 0: it wasn't, when last looked at
  uint32_t full_at_ = 0;                                       // what had been consumed then
  std::array<std::byte, arena::kLongestDatagram> lost_bytes_;  // where those go that nobody gets
};

class Lanes {
 public:
  // Null: none that shares memory with us, and the way is the network's.
  using Meet = std::function<std::shared_ptr<verbs::QueueOwner>(base::Slot)>;
  Lanes(arena::ProcessArena own, base::Slot ours, Meet meet)
      : own_(own), ours_(ours), meet_(std::move(meet)) {}

  // Before a packet goes to that process. Asks for an introduction at first, which takes a moment; so no lock
  // of the port's is held but perhaps the receiving one.
  template <typename Lock>
  void prepare(base::Slot to, Lock& sending) {
    if (ask_again_[to.value].load(std::memory_order_relaxed) == INT64_MAX) [[likely]]
      return;
    auto lane = introduce(to);
    if (!lane) return;
    const std::lock_guard lock(sending);
    lanes_[to.value] = std::move(lane);
    ask_again_[to.value].store(INT64_MAX, std::memory_order_relaxed);
  }
  // With the sending lock held; null: by the network.
  [[nodiscard]] Lane* find(base::Slot to) {
    auto& lane = lanes_[to.value];
    if (lane && lane->gone()) part(to);
    return lane.get();
  }
  // The process in that slot is no more. With the sending lock held.
  void part(base::Slot slot);

  // What waits in our boxes, under the port's receiving lock. `take(header, payload)` for each.
  template <typename Take>
  size_t receive(size_t budget, Take take) {
    if (!waiting()) return 0;
    size_t count = 0;
    for (unsigned word = 0; word < 4; ++word) {
      auto& bits = own_.rings_head().datagrams[word];
      if (bits.get() == 0) continue;
      for (uint64_t slots = bits.atomic().exchange(0); slots != 0; slots &= slots - 1) {
        const auto slot = static_cast<uint8_t>(word * 64 + static_cast<unsigned>(__builtin_ctzll(slots)));
        auto& reader = reader_of({slot});
        for (;;) {
          if (count >= budget) {  // the rest has its turn
            bits.atomic().fetch_or(slots);
            return count;
          }
          const auto taken = reader.next();
          if (!taken) break;
          take(taken->header, taken->payload);
          reader.done();
          ++count;
        }
      }
    }
    return count;
  }
  [[nodiscard]] bool waiting() const {
    if (!own_) return false;
    const auto& bits = own_.rings_head().datagrams;
    return (bits[0].get() | bits[1].get() | bits[2].get() | bits[3].get()) != 0;
  }
  [[nodiscard]] const Lane::Counters& counters() const { return counters_; }

 private:
  [[nodiscard]] std::unique_ptr<Lane> introduce(base::Slot to);
  [[nodiscard]] arena::DatagramReader& reader_of(base::Slot from);

  arena::ProcessArena own_;
  base::Slot ours_;
  Meet meet_;
  std::array<std::atomic<int64_t>, 256> ask_again_{};  // when; INT64_MAX: there is a lane
  // Under the sending lock.
  std::array<std::unique_ptr<Lane>, 256> lanes_;
  Lane::Counters counters_;
  // Under the receiving lock.
  std::array<std::unique_ptr<arena::DatagramReader>, 256> readers_;
};

}  // namespace verbena::wire
