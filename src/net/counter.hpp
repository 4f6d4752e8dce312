// A counter that one thread writes and any may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace verbena::net {

class Counter {
 public:
  Counter& operator++() { return *this += 1; }
  Counter& operator+=(uint64_t more) {
    // There is one writer, so the addition needs no locked instruction.
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    return *this;
  }
  operator uint64_t() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

using CounterVisitor = std::function<void(std::string_view name, uint64_t value)>;

}  // namespace verbena::net
