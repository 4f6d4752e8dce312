#include "sim/journal.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "sim/event_queue.hpp"

namespace verbena::sim {

void Journal::add(std::span<const std::byte> bytes) {
  add(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t part = bytes.size() < sizeof word ? bytes.size() : sizeof word;
    std::memcpy(&word, bytes.data(), part);
    add(word);
    bytes = bytes.subspan(part);
  }
}

void Journal::say(base::Instant now, std::string line) {
  if (!tracing()) return;
  const auto ns = (now - EventQueue::kStart).count();
  lines_.push_back(fmt::format("{:>9}.{:03} us  {}", ns / 1000, ns % 1000, std::move(line)));
  if (lines_.size() > kept_) lines_.pop_front();
}

}  // namespace verbena::sim
