#include "sim/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "roce/codec.hpp"
#include "roce/print.hpp"

namespace verbena::sim {

using base::Duration;
using base::Instant;

namespace {
constexpr size_t kLargestDatagram = 4096 + 128;
}

Network::Network(EventQueue& events, Journal& journal, Random random, const NetworkConfig& config)
    : events_(events), journal_(journal), random_(random), config_(config) {}

HostId Network::add(Receiver receiver) {
  const auto host = static_cast<HostId>(ports_.size());
  const LineConfig& line = config_.line(host);
  ports_.push_back({.up = Link(line.bits_per_second, line.send_queue_bytes),
                    .down = Link(line.bits_per_second, line.receive_queue_bytes),
                    .receiver = std::move(receiver)});
  return host;
}

// Hosts with an even sum of numbers talk over IPv4, the others over IPv6.
roce::Flow Network::flow(HostId from, HostId to) const {
  roce::Flow flow;
  const auto address = [&](HostId host) {
    std::array<uint8_t, 16> bytes{};
    if ((from + to) % 2 == 0) {
      bytes[10] = bytes[11] = 0xff;
      bytes[12] = 10;
    } else {
      bytes[0] = 0xfd;
    }
    bytes[14] = static_cast<uint8_t>((host + 1) >> 8);
    bytes[15] = static_cast<uint8_t>(host + 1);
    return bytes;
  };
  flow.source = address(from);
  flow.destination = address(to);
  flow.source_port = static_cast<uint16_t>(0xc000 + from);
  return flow;
}

bool Network::has_room(HostId from) const {
  return ports_[from].up.backlog(events_.now()) == 0 ||
         ports_[from].up.has_room(events_.now(), kLargestDatagram);
}

Instant Network::room_at(HostId from) const {
  const size_t backlog = ports_[from].up.backlog(events_.now());
  return events_.now() + ports_[from].up.time_for(backlog / 2);
}

void Network::send(Datagram datagram) {
  ++counters_.sent;
  journal_.add(static_cast<uint64_t>(events_.now().ns));
  journal_.add(datagram.bytes);
  say("sent", datagram);
  const auto passed = ports_[datagram.from].up.take(events_.now(), datagram.bytes.size());
  if (!passed) {
    ++counters_.overflowed;
    return give_back(std::move(datagram.bytes));
  }
  events_.at(*passed, [this, moved = std::move(datagram)]() mutable { cross(std::move(moved)); });
}

void Network::cross(Datagram datagram) {
  const auto& bad = config_.line(datagram.to).impairment;
  const auto& parted = ports_[datagram.from].parted_until;
  if (datagram.to < parted.size() && events_.now() < parted[datagram.to]) {
    ++counters_.parted;
    say("PARTED", datagram);
    return give_back(std::move(datagram.bytes));
  }
  if (random_.millionths(bad.lost)) {
    ++counters_.lost;
    say("LOST", datagram);
    return give_back(std::move(datagram.bytes));
  }
  const bool forged = random_.millionths(bad.forged);
  if (forged || random_.millionths(bad.damaged)) {
    ++counters_.damaged;
    for (uint64_t flips = random_.between(1, 4); flips > 0; --flips)
      datagram.bytes[random_.below(datagram.bytes.size())] ^= static_cast<std::byte>(random_.between(1, 255));
    if (forged) roce::append_icrc(flow(datagram.from, datagram.to), 0, datagram.bytes);
    say(forged ? "FORGED" : "damaged", datagram);
  }
  unsigned copies = 1;
  if (random_.millionths(bad.doubled)) {
    ++counters_.doubled;
    copies = 2;
  }
  for (; copies > 0; --copies) {
    const auto passed = ports_[datagram.to].down.take(events_.now(), datagram.bytes.size());
    if (!passed) {
      ++counters_.overflowed;
      say("OVERFLOWED", datagram);
      continue;
    }
    Instant when = *passed + bad.delay;
    if (random_.millionths(bad.overtaken)) {
      ++counters_.overtaken;
      say("overtaken", datagram);
      when = when +
             Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(bad.held_back.count()) + 1)));
    } else {
      Instant& last = ports_[datagram.to].last_arrival;
      if (bad.jitter.count() > 0)
        when =
            when + Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(bad.jitter.count()))));
      when = last = std::max(when, last);
    }
    arrive({datagram.from, datagram.to, copies > 1 ? datagram.bytes : std::move(datagram.bytes)}, when);
  }
  give_back(std::move(datagram.bytes));
}

void Network::arrive(Datagram datagram, Instant when) {
  events_.at(when, [this, moved = std::move(datagram)]() mutable {
    const HostId to = moved.to;
    ports_[to].receiver(std::move(moved));
  });
}

void Network::part(HostId a, HostId b, Instant until) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    auto& parted = ports_[from].parted_until;
    if (parted.size() <= to) parted.resize(to + 1);
    parted[to] = std::max(parted[to], until);
  }
}

std::vector<std::byte> Network::buffer(size_t bytes) {
  std::vector<std::byte> taken;
  if (!spare_.empty()) {
    taken = std::move(spare_.back());
    spare_.pop_back();
  }
  taken.resize(bytes);
  return taken;
}

void Network::give_back(std::vector<std::byte> buffer) {
  if (buffer.capacity() > 0 && spare_.size() < 1024) spare_.push_back(std::move(buffer));
}

void Network::say(const char* what, const Datagram& datagram) {
  if (!journal_.tracing()) return;
  const auto transport = std::span(datagram.bytes).first(datagram.bytes.size() - roce::kIcrcBytes);
  const auto packet = roce::parse(transport);
  journal_.say(events_.now(), fmt::format("{:>2} > {:<2} {:<10} {}", datagram.from, datagram.to, what,
                                          packet ? roce::to_line(*packet) : "unreadable"));
}

}  // namespace verbena::sim
