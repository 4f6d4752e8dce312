// A line that carries so many bits a second, with a queue before it that holds so many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/time.hpp"

namespace verbena::sim {

class Link {
 public:
  // What a datagram needs on a line besides its UDP payload: preamble, Ethernet, IP, UDP, gap.
  static constexpr size_t kFraming = 66;

  Link() = default;
  Link(uint64_t bits_per_second, size_t queue_bytes) : rate_(bits_per_second), queue_(queue_bytes) {}

  [[nodiscard]] base::Duration time_for(size_t bytes) const {
    return base::Duration(static_cast<int64_t>((bytes + kFraming) * 8'000'000'000 / rate_));
  }
  // Bytes that wait or are being sent.
  [[nodiscard]] size_t backlog(base::Instant now) const {
    if (free_at_ <= now) return 0;
    return static_cast<size_t>(static_cast<double>((free_at_ - now).count()) * static_cast<double>(rate_) /
                               8e9);
  }
  [[nodiscard]] bool has_room(base::Instant now, size_t bytes) const {
    return backlog(now) + bytes <= queue_;
  }
  // When its last bit has been sent; nothing: no room.
  [[nodiscard]] std::optional<base::Instant> take(base::Instant now, size_t bytes) {
    // An idle line takes anything: a queue shorter than a packet would never pass one.
    if (free_at_ > now && !has_room(now, bytes)) return std::nullopt;
    free_at_ = (free_at_ > now ? free_at_ : now) + time_for(bytes);
    return free_at_;
  }

 private:
  uint64_t rate_ = 10'000'000'000;
  size_t queue_ = 1 << 20;
  base::Instant free_at_{};
};

}  // namespace verbena::sim
