// What a run left behind: a digest of everything that happened and, when asked for, the last lines of a
// trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "base/time.hpp"

namespace verbena::sim {

class Journal {
 public:
  explicit Journal(size_t lines_kept = 0) : kept_(lines_kept) {}

  [[nodiscard]] bool tracing() const { return kept_ > 0; }
  [[nodiscard]] uint64_t digest() const { return digest_; }
  [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

  void add(uint64_t value) { digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15 + (digest_ >> 29); }
  void add(std::span<const std::byte> bytes);
  void say(base::Instant now, std::string line);

 private:
  size_t kept_;
  uint64_t digest_ = 0xcbf29ce484222325;
  std::deque<std::string> lines_;
};

}  // namespace verbena::sim
