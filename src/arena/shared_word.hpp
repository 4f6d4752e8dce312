// A word in memory that several processes see. Plain loads and stores, but never torn and never cached by the
// compiler; order comes from the publishing word beside it.
#pragma once

#include <atomic>
#include <type_traits>

namespace verbena::arena {

template <typename T>
class Shared {
 public:
  [[nodiscard]] T get() const { return value_.load(std::memory_order_relaxed); }
  void set(T value) { value_.store(value, std::memory_order_relaxed); }
  [[nodiscard]] T acquire() const { return value_.load(std::memory_order_acquire); }
  void release(T value) { value_.store(value, std::memory_order_release); }
  std::atomic<T>& atomic() { return value_; }

 private:
  static_assert(std::atomic<T>::is_always_lock_free, "other processes can't take part in a lock");
  std::atomic<T> value_{};
};

}  // namespace verbena::arena
