// How much may be under way: finds what the path and the receiver's socket buffer take (DESIGN 2.4).
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::engine {

// Slow start, then additive increase; halved once per loss, one packet after a timeout. In units of cost: a
// packet's payload and what a socket buffer needs besides.
class Window {
 public:
  static constexpr uint32_t kPacketOverhead = 512;

  Window() = default;
  Window(uint32_t packet_cost, uint32_t most)
      : packet_(packet_cost), most_(std::max(most, packet_cost)), size_(std::min(most_, 16 * packet_cost)) {
    threshold_ = most_;
  }

  [[nodiscard]] uint32_t size() const { return size_; }
  void on_progress(uint64_t cost) {
    if (size_ < threshold_) {
      size_ = static_cast<uint32_t>(std::min<uint64_t>(size_ + cost, threshold_));
    } else {
      earned_ += cost;
      if (earned_ >= size_) {
        earned_ -= size_;
        size_ += packet_;
      }
    }
    size_ = std::min(size_, most_);
  }
  void on_loss() {
    threshold_ = size_ = std::max(size_ / 2, 2 * packet_);
    earned_ = 0;
  }
  // Several in a row count as one.
  void on_timeout() {
    if (size_ > packet_) {
      size_before_ = size_;
      threshold_before_ = threshold_;
    }
    threshold_ = std::max(size_ / 2, 2 * packet_);
    size_ = packet_;
    earned_ = 0;
  }
  // It was an answer that was late or lost, nothing that we sent.
  void undo_timeout() {
    size_ = std::max(size_, size_before_);
    threshold_ = std::max(threshold_, threshold_before_);
  }

 private:
  uint32_t packet_ = 1;
  uint32_t most_ = 1;
  uint32_t size_ = 1;
  uint32_t threshold_ = 1;
  uint32_t size_before_ = 0;  // before the last timeout
  uint32_t threshold_before_ = 0;
  uint64_t earned_ = 0;
};

}  // namespace verbena::engine
