// Clients of a server, each served in a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace examples {

class Crowd {
 public:
  /// `name` begins each complaint. `clients`: how many there will be; 0: no end.
  Crowd(std::string name, uint64_t clients) : name_(std::move(name)), clients_(clients) {}

  [[nodiscard]] bool complete() const { return clients_ != 0 && started_ == clients_; }
  /// Serves one client: in the caller's thread if it is the only one, and a failure is the caller's then.
  void serve(std::function<void()> work);
  /// Waits for all; throws if one failed.
  void finish();

 private:
  void work_in_thread(const std::function<void()>& work);

  std::string name_;
  uint64_t clients_;
  uint64_t started_ = 0;
  std::atomic<uint64_t> failed_ = 0;
  std::vector<std::thread> threads_;  ///< only if there is an end; otherwise they look after themselves
};

}  // namespace examples
