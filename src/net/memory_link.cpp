#include "net/memory_link.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace verbena::net {

std::unique_ptr<MemoryLink> MemoryNetwork::attach(const Address& address, base::Slot slot) {
  const std::lock_guard lock(mutex_);
  for (const MemoryLink* end : ends_) CHECK(end->address_ != address || end->slot_ != slot);
  std::unique_ptr<MemoryLink> link(new MemoryLink(*this, address, slot, made_++));
  ends_.push_back(link.get());
  return link;
}

MemoryLink::~MemoryLink() {
  const std::lock_guard lock(network_.mutex_);
  std::erase(network_.ends_, this);
}

bool MemoryLink::send(const Run& run) {
  const uint16_t port = source_port(run.route);
  const std::lock_guard lock(network_.mutex_);
  const auto found = std::ranges::find_if(network_.ends_, [&](const MemoryLink* end) {
    return end->address_ == run.route.to && end->slot_ == run.route.slot;
  });
  if (found == network_.ends_.end()) {
    ++sent_.unreachable;
    return true;  // a network doesn't tell, either
  }
  MemoryLink& other = **found;
  for (size_t i = 0; i < run.packets(); ++i) {
    const auto packet = run.packet(i);
    if (other.queued_bytes_ + packet.size() > network_.queue_bytes_) {
      ++sent_.queue_full;
      continue;
    }
    other.queued_bytes_ += packet.size();
    other.queue_.push_back({.about = {.from = run.route.from,
                                      .to = run.route.to,
                                      .source_port = port,
                                      .interface = 1,
                                      .traffic_class = run.route.traffic_class,
                                      .hop_limit = run.route.hop_limit,
                                      .segment = static_cast<unsigned>(i)},
                            .bytes = {packet.begin(), packet.end()}});
    ++sent_.packets;
  }
  return true;
}

uint16_t MemoryLink::source_port(const Route& route) {
  // Differs by end and destination slot, as sockets' ports do.
  return static_cast<uint16_t>(0xc000 | ((number_ << 8 | route.slot.value) & 0x3fff));
}

size_t MemoryLink::receive(Sink& sink, size_t budget) {
  size_t handed = 0;
  for (; handed < budget; ++handed) {
    Waiting next;
    {
      const std::lock_guard lock(network_.mutex_);
      if (queue_.empty()) break;
      next = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= next.bytes.size();
    }
    // Unlocked: the sink may well send an answer.
    next.about.bytes = next.bytes;
    sink.on_packet(next.about);
  }
  return handed;
}

}  // namespace verbena::net
