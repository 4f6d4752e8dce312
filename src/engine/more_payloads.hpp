// What follows a packet that was taken: others that differ from it in their numbers, which follow each other,
// and in their payload, which is as long.
#pragma once

#include <cstddef>
#include <span>

namespace verbena::engine {

class MorePayloads {
 public:
  // At most so many.
  [[nodiscard]] virtual size_t most() const = 0;
  // The next one's, whose ICRC is right. Empty: there is none like that. Whoever asks places it.
  [[nodiscard]] virtual std::span<const std::byte> next() = 0;

 protected:
  ~MorePayloads() = default;
};

}  // namespace verbena::engine
