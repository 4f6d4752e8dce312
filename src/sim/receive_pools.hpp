// A host's shared receive queues: all XRC connections that end there take receives from them. Which message
// takes which receive is chance, so a pool only counts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.hpp"
#include "engine/rc_requester.hpp"
#include "sim/random.hpp"

namespace verbena::sim {

struct ReceivePoolsConfig {
  static constexpr uint32_t kFirstNumber = 0x020000;  // of a queue; the others follow
  uint32_t count = 0;
  uint32_t at_once = 1;  // receives posted in the beginning and each time
  base::Duration lag{};  // at most so long between two such times; zero: all at once
};

class ReceivePools {
 public:
  ReceivePools(const ReceivePoolsConfig& config, Random random)
      : config_(config), random_(random), pools_(config.count) {}

  [[nodiscard]] bool has(uint32_t srq) const {
    return srq - ReceivePoolsConfig::kFirstNumber < pools_.size();
  }
  // Somebody has planned a message for it. For others there will be no receive.
  void want(uint32_t srq) {
    if (has(srq)) ++at(srq).wanted;
  }
  // False: none is posted.
  [[nodiscard]] bool take(uint32_t srq) {
    Pool& pool = at(srq);
    if (pool.taken == pool.posted) return false;
    ++pool.taken;
    return true;
  }
  void post_due(base::Instant now) {
    for (Pool& pool : pools_) {
      while (pool.posted < pool.wanted && now >= pool.next) {
        pool.posted = std::min(pool.posted + config_.at_once, pool.wanted);
        if (config_.lag.count() > 0)
          pool.next = now + base::Duration(static_cast<int64_t>(
                                random_.between(1, static_cast<uint64_t>(config_.lag.count()))));
      }
    }
  }
  [[nodiscard]] base::Instant next_deadline() const {
    base::Instant next = engine::kNoDeadline;
    for (const Pool& pool : pools_)
      if (pool.posted < pool.wanted) next = std::min(next, pool.next);
    return next;
  }

 private:
  struct Pool {
    uint32_t wanted = 0;
    uint32_t posted = 0;
    uint32_t taken = 0;
    base::Instant next{};  // when more are posted
  };
  [[nodiscard]] Pool& at(uint32_t srq) { return pools_[srq - ReceivePoolsConfig::kFirstNumber]; }

  ReceivePoolsConfig config_;
  Random random_;
  std::vector<Pool> pools_;
};

}  // namespace verbena::sim
