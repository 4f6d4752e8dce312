// How much may be under way: finds what the path and the receiver's socket buffer take (DESIGN 2.4).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.hpp"

namespace verbena::engine {

// Slow start, then additive increase; halved once per loss, one packet after a timeout. In units of cost: a
// packet's payload and what a socket buffer needs besides.
class Window {
 public:
  static constexpr uint32_t kPacketOverhead = 512;
  static constexpr double kLargestCut = 0.5;
  static constexpr double kSmallestCut = 0.94;

  Window() = default;
  Window(uint32_t packet_cost, uint32_t most)
      : packet_(packet_cost), most_(std::max(most, packet_cost)), size_(std::min(most_, 16 * packet_cost)) {
    threshold_ = most_;
  }

  [[nodiscard]] uint32_t size() const { return size_; }
  // `under_way`: before this was acknowledged. A window that wasn't used says nothing about what the path
  // takes.
  void on_progress(uint64_t cost, uint64_t under_way) {
    if (under_way < size_ / 2) return;
    if (size_ < threshold_) {
      size_ = static_cast<uint32_t>(std::min<uint64_t>(size_ + cost, threshold_));
    } else {
      earned_ += cost;
      if (earned_ >= size_) {
        earned_ -= size_;
        size_ += std::min(packet_, size_ / 8);
      }
    }
    size_ = std::min(size_, most_);
  }
  // By how much the shortest round trip is shorter than the usual one tells what waits in queues and, so, may
  // have been dropped there; without any it was chance, and to send much less would not help. Of what is on
  // the way all is sent again, so that what waits is kept short.
  void on_loss(base::Duration shortest, base::Duration usual) {
    const double share =
        usual.count() == 0 ? 0 : static_cast<double>(shortest.count()) / static_cast<double>(usual.count());
    size_ = static_cast<uint32_t>(size_ * std::clamp(share, kLargestCut, kSmallestCut));
    threshold_ = size_ = std::max(size_, packet_);
    earned_ = 0;
  }
  // One packet finds out whether anybody is there. After several timeouts in a row, and a loss indeed, it
  // begins anew from there.
  void on_timeout() {
    several_ = before_ != 0;
    if (!several_) {
      before_ = size_;
      threshold_before_ = threshold_;
    }
    threshold_ = std::max(size_ / 2, packet_);
    size_ = packet_;
    earned_ = 0;
  }
  // The packet was answered. `lost`: it had been lost indeed; otherwise only the answer was late or lost: a
  // peer that had no core for a while, which says nothing about the path.
  void after_timeout(bool was_lost, base::Duration shortest, base::Duration usual) {
    if (before_ != 0 && !(was_lost && several_)) {
      size_ = before_;
      threshold_ = threshold_before_;
      if (was_lost) on_loss(shortest, usual);
    }
    before_ = 0;
  }

 private:
  uint32_t packet_ = 1;
  uint32_t most_ = 1;
  uint32_t size_ = 1;
  uint32_t threshold_ = 1;
  uint32_t before_ = 0;  // size before the first timeout in a row; 0: there was none
  uint32_t threshold_before_ = 0;
  bool several_ = false;
  uint64_t earned_ = 0;
};

}  // namespace verbena::engine
