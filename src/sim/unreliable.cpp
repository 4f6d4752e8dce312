#include "sim/unreliable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "roce/codec.hpp"
#include "sim/scenario.hpp"
#include "sim/unreliable_end.hpp"

namespace verbena::sim {
namespace {

using base::Duration;
using base::Instant;
using engine::kNoDeadline;
using engine::Request;

// A process and its socket.
class UnreliableHost {
 public:
  UnreliableHost(const Stage& stage, Network& network, const HostConfig& config, Random random)
      : stage_(stage), network_(network), config_(config), random_(random) {
    id_ = network.add([this](Datagram datagram) { on_datagram(std::move(datagram)); });
  }
  UnreliableHost(const UnreliableHost&) = delete;

  [[nodiscard]] HostId id() const { return id_; }
  void add(UnreliableEnd& end) { ends_.push_back(&end); }
  void wake() { schedule(stage_.events.now()); }
  [[nodiscard]] uint64_t overflows() const { return overflows_; }

 private:
  void on_datagram(Datagram datagram) {
    if (inbox_bytes_ + datagram.bytes.size() > config_.inbox_bytes) {
      ++overflows_;
      return network_.give_back(std::move(datagram.bytes));
    }
    inbox_bytes_ += datagram.bytes.size();
    inbox_.push_back(std::move(datagram));
    const auto most = static_cast<uint64_t>(config_.poll_delay.count());
    schedule(stage_.events.now() + Duration(static_cast<int64_t>(random_.below(most + 1))));
  }

  void schedule(Instant when) {
    if (when == kNoDeadline || when >= next_poll_) return;
    next_poll_ = when;
    stage_.events.at(when, [this, when] {
      if (when == next_poll_) poll();
    });
  }

  void poll() {
    next_poll_ = kNoDeadline;
    for (UnreliableEnd* end : ends_) end->run_program();
    for (; !inbox_.empty(); inbox_.pop_front()) {
      take(inbox_.front());
      network_.give_back(std::move(inbox_.front().bytes));
      // A program that polls posts receives in between.
      for (UnreliableEnd* end : ends_) end->run_program();
    }
    inbox_bytes_ = 0;
    const Instant now = stage_.events.now();
    for (bool sent = true; sent;) {
      sent = false;
      for (UnreliableEnd* end : ends_) {
        sent = end->transmit(now, network_) || sent;
        end->run_program();
      }
    }
    Instant next = network_.has_room(id_) ? kNoDeadline : network_.room_at(id_);
    for (const UnreliableEnd* end : ends_) next = std::min(next, end->next_deadline());
    schedule(next);
  }

  void take(const Datagram& datagram) {
    const std::span<const std::byte> bytes = datagram.bytes;
    if (!roce::icrc_fits(network_.flow(datagram.from, id_), roce::IdRule::kSegment, 0, bytes)) return;
    const auto packet = roce::parse(bytes.first(bytes.size() - roce::kIcrcBytes));
    if (!packet)
      return stage_.oracle.wrong(fmt::format("host {}: a right ICRC on what can't be parsed", id_));
    for (UnreliableEnd* end : ends_)
      if (end->config().qpn == packet->bth.destination) return end->take(stage_.events.now(), *packet);
    stage_.oracle.wrong(fmt::format("host {}: a packet for nobody", id_));
  }

  Stage stage_;
  Network& network_;
  HostConfig config_;
  Random random_;
  HostId id_ = 0;
  std::vector<UnreliableEnd*> ends_;
  std::deque<Datagram> inbox_;
  size_t inbox_bytes_ = 0;
  Instant next_poll_ = kNoDeadline;
  uint64_t overflows_ = 0;
};

HostConfig draw_host(Random& random) {
  HostConfig host{.inbox_bytes = random.spread(32 << 10, 4 << 20)};
  if (random.percent(50)) host.poll_delay = Duration(static_cast<int64_t>(random.spread(100, 1'000'000)));
  return host;
}

class UnreliableWorld {
 public:
  UnreliableWorld(uint64_t seed, size_t trace_lines)
      : journal_(trace_lines),
        random_(seed ^ 0xdeadf00d),
        network_(events_, journal_, random_.fork(), make_network()) {
    const auto hosts = random_.spread(2, 5);
    const HostConfig host = draw_host(random_);
    for (uint64_t i = 0; i < hosts; ++i)
      hosts_.push_back(std::make_unique<UnreliableHost>(stage_, network_, host, random_.fork()));
    for (uint64_t count = random_.below(4); count > 0; --count) add_connection();
    for (uint64_t count = random_.below(5) + (uc_.empty() ? 2 : 0); count > 0; --count) add_datagrams();
    plan_datagrams();
    if (random_.percent(15))
      events_.after(Duration(static_cast<int64_t>(random_.spread(1'000, 20'000'000))), [this] {
        network_.part(0, 1, events_.now() + Duration(static_cast<int64_t>(random_.spread(1'000, 5'000'000))));
      });
    for (const auto& one : hosts_) one->wake();
  }

  UnreliableOutcome run(const RunLimits& limits) {
    const Instant end = EventQueue::kStart + limits.longest;
    while (!events_.empty() && oracle_.content() && events_.now() < end && events_.happened() < limits.events)
      events_.step();
    UnreliableOutcome outcome;
    if (oracle_.content()) judge(outcome);
    outcome.wrong = oracle_.what();
    outcome.digest = journal_.digest();
    outcome.events = events_.happened();
    outcome.datagrams = network_.counters().sent;
    outcome.took = events_.now() - EventQueue::kStart;
    outcome.trace.assign(journal_.lines().begin(), journal_.lines().end());
    return outcome;
  }

 private:
  NetworkConfig make_network() {
    NetworkConfig config = draw_network(random_);
    if (random_.percent(20)) config.impairment = {.delay = config.impairment.delay};
    // One that is held back has no jitter, so with both it might come before many, which would all be lost
    // for it.
    if (config.impairment.overtaken > 0) config.impairment.jitter = {};
    return config;
  }

  UnreliableConfig draw_end(HostId host) {
    UnreliableConfig config;
    config.qpn = base::Qpn{0x010000 + made_++};
    config.host = host;
    config.mtu = 256u << random_.below(5);
    config.receive_bytes = random_.percent(20) ? random_.spread(1, 4096) : 1 << 16;
    config.receives_at_once = static_cast<uint32_t>(random_.spread(1, 64));
    if (random_.percent(30))
      config.receive_lag = Duration(static_cast<int64_t>(random_.spread(1'000, 1'000'000)));
    if (random_.percent(50)) config.pause = Duration(static_cast<int64_t>(random_.spread(1'000, 1'000'000)));
    if (random_.percent(20)) config.busy = static_cast<uint32_t>(random_.spread(100, 50'000));
    return config;
  }

  base::Psn draw_psn() {
    return base::Psn{} + static_cast<uint32_t>(random_.percent(50) ? 0xffffff - random_.below(200)
                                                                   : random_.below(1 << 24));
  }

  Letter draw_letter(uint64_t longest, uint32_t mtu, bool writes) {
    Letter letter;
    letter.pattern = random_.next();
    Request& request = letter.datagram.request;
    request.kind = writes && random_.percent(50) ? Request::Kind::kWrite : Request::Kind::kSend;
    request.length = random_.percent(5) ? 0 : random_.spread(1, longest);
    if (random_.percent(30)) request.length = random_.between(1, 4) * mtu + random_.below(3) - 1;
    request.length = std::min(request.length, longest);
    request.has_imm = random_.percent(30);
    request.imm = request.has_imm ? static_cast<uint32_t>(random_.next()) : 0;
    request.solicited = random_.percent(20);
    return letter;
  }

  // Now and then one that its sender can't read to its end: the last that it sends.
  void draw_letters(UnreliableEnd& end, uint64_t longest, bool writes) {
    for (uint64_t count = random_.spread(1, 200); count > 0; --count)
      end.letters().push_back(draw_letter(longest, end.config().mtu, writes));
    Letter& last = end.letters().back();
    if (random_.percent(10) && last.datagram.request.length > 0) {
      last.ends = engine::RequestStatus::kLocalProtection;
      last.unwanted = true;
    }
  }

  void add_connection() {
    const auto first = static_cast<HostId>(random_.below(hosts_.size()));
    const auto second = static_cast<HostId>((first + random_.between(1, hosts_.size() - 1)) % hosts_.size());
    UnreliableConfig configs[2] = {draw_end(first), draw_end(second)};
    configs[1].mtu = configs[0].mtu;
    const base::Psn psns[2] = {draw_psn(), draw_psn()};
    UcEnd* ends[2];
    for (unsigned side = 0; side < 2; ++side) {
      uc_.push_back(std::make_unique<UcEnd>(configs[side], stage_, random_.fork(), psns[side], psns[1 - side],
                                            configs[1 - side].qpn, configs[1 - side].host));
      ends[side] = uc_.back().get();
      draw_letters(*ends[side], random_.spread(16, 32 << 10), true);
      hosts_[configs[side].host]->add(*ends[side]);
    }
    for (unsigned side = 0; side < 2; ++side) ends[side]->begin(*ends[1 - side]);
  }

  void add_datagrams() {
    UnreliableConfig config = draw_end(static_cast<HostId>(random_.below(hosts_.size())));
    config.mtu = 1024;
    config.qkey = static_cast<uint32_t>(random_.next()) & 0x7fffffff;
    ud_.push_back(std::make_unique<UdEnd>(config, stage_, random_.fork(), draw_psn()));
    ud_ends_.push_back(ud_.back().get());
    hosts_[config.host]->add(*ud_.back());
  }

  void plan_datagrams() {
    for (const auto& end : ud_) {
      end->begin(ud_ends_);
      draw_letters(*end, end->config().mtu, false);
      for (auto& letter : end->letters()) {
        // To another host: the network has no way from one to itself.
        const UdEnd& target = *ud_[random_.below(ud_.size())];
        auto& datagram = letter.datagram;
        datagram.target = target.config().qpn;
        datagram.address = target.config().host;
        datagram.qkey = target.config().qkey;
        if (random_.percent(5)) {
          datagram.qkey ^= 1u << random_.below(31);
          letter.unwanted = true;
        }
      }
      std::erase_if(end->letters(),
                    [&](const Letter& letter) { return letter.datagram.address == end->config().host; });
      for (size_t i = 0; i + 1 < end->letters().size(); ++i)
        end->letters()[i].ends = engine::RequestStatus::kSuccess;
    }
  }

  // Messages may be missing, but for each something must have happened that loses one.
  void judge(UnreliableOutcome& outcome) {
    if (!events_.empty()) return oracle_.wrong("it never comes to rest");
    const auto& network = network_.counters();
    outcome.excuses =
        network.lost + network.overflowed + network.damaged + network.overtaken + network.parted;
    for (const auto& host : hosts_) outcome.excuses += host->overflows();
    for (const auto& end : uc_) end->judge_memory();
    uint64_t copies = 0;
    const auto count = [&](UnreliableEnd& end, bool ordered) {
      end.judge();
      outcome.excuses += end.causes().all();
      for (const auto& letter : std::span(end.letters()).first(end.succeeded())) {
        if (letter.unwanted) continue;
        const auto& request = letter.datagram.request;
        const bool invisible = request.length == 0 && !request.consumes_receive();
        ++outcome.sent;
        outcome.arrived += letter.arrived > 0 || invisible;
        copies += letter.arrived > 1 ? letter.arrived - 1 : 0;
        if (ordered && letter.arrived > 1) oracle_.wrong(fmt::format("{}: a message came twice", end.name()));
      }
    };
    for (const auto& end : uc_) count(*end, true);
    for (const auto& end : ud_) count(*end, false);
    if (copies > network.doubled)
      oracle_.wrong(fmt::format("{} copies arrived, but {} were made", copies, network.doubled));
    if (outcome.sent - outcome.arrived > outcome.excuses)
      oracle_.wrong(fmt::format("{} of {} messages are missing for {} causes", outcome.sent - outcome.arrived,
                                outcome.sent, outcome.excuses));
  }

  EventQueue events_;
  Journal journal_;
  Oracle oracle_;
  Stage stage_{events_, journal_, oracle_};
  Random random_;
  Network network_;
  std::vector<std::unique_ptr<UnreliableHost>> hosts_;
  std::vector<std::unique_ptr<UcEnd>> uc_;
  std::vector<std::unique_ptr<UdEnd>> ud_;
  std::vector<UdEnd*> ud_ends_;
  uint32_t made_ = 0;
};

}  // namespace

UnreliableOutcome run_unreliable_seed(uint64_t seed, const RunLimits& limits) {
  return UnreliableWorld(seed, limits.trace_lines).run(limits);
}

}  // namespace verbena::sim
