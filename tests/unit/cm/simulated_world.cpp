#include "simulated_world.hpp"

#include <fmt/format.h>

#include "addresses.hpp"

namespace verbena::cm {
namespace {

using ipc::CmEventKind;
using ipc::CmPortSpace;

constexpr unsigned kServer = 1;  // the host with the listeners
constexpr uint16_t kPort = 7471;
constexpr uint32_t kTcpListener = 1;
constexpr uint32_t kUdpListener = 2;
constexpr unsigned kActivePrograms = 4;
constexpr uint32_t kConnectsEach = 3;
constexpr base::Duration kLongest = base::seconds(120);

ipc::CmAddress address_of(unsigned host, uint16_t port = 0) {
  return address(host == kServer ? "10.0.0.2" : "10.0.0.1", port);
}

}  // namespace

SimulatedWorld::SimulatedWorld(uint64_t seed, Weather weather) : random_(seed), weather_(weather) {
  for (auto& host : hosts_)
    host = std::make_unique<Manager>(Settings{}, Environment{.random = [this] { return random_(); },
                                                             .is_local = [](const auto&) { return true; }});
  const auto add = [&](unsigned host) -> Program& {
    programs_.push_back(std::make_unique<Program>(Program{.host = host, .client = programs_.size() + 1}));
    return *programs_.back();
  };
  Program& server = add(kServer);
  for (const auto& [id, space] :
       {std::pair{kTcpListener, CmPortSpace::kTcp}, {kUdpListener, CmPortSpace::kUdp}}) {
    auto& manager = *hosts_[kServer];
    if (!manager.create(server.client, {.id = id, .channel = 1, .space = space}) ||
        !manager.bind(server.client, {.id = id, .address = address_of(kServer, kPort)}, false) ||
        !manager.listen(server.client, {.id = id, .backlog = 4}))
      complain("the server can't listen");
  }
  for (unsigned i = 0; i < kActivePrograms; ++i) {
    Program& program = add(0);
    for (uint32_t id = 1; id <= kConnectsEach; ++id)
      later(10'000, [this, &program, id] { start_connect(program, id); });
  }
}

bool SimulatedWorld::chance(double probability) {
  return std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

void SimulatedWorld::complain(const std::string& what) {
  if (wrong_.empty()) wrong_ = fmt::format("at {} ms: {}", now_.ns / 1'000'000, what);
}

void SimulatedWorld::later(int longest_ms, std::function<void()> work) {
  const auto delay =
      base::Duration(static_cast<int64_t>(random_() % (static_cast<uint64_t>(longest_ms) * 1'000'000 + 1)));
  actions_.push({now_ + delay, ++order_, std::move(work)});
}

void SimulatedWorld::travel(unsigned from, const Outgoing& outgoing) {
  const int copies = chance(weather_.loss) ? 0 : chance(weather_.doubling) ? 2 : 1;
  for (int i = 0; i < copies; ++i)
    later(weather_.longest_way_ms, [this, from, outgoing] {
      Way way = outgoing.way;
      std::swap(way.local, way.remote);
      if (!hosts_[1 - from]->on_mad(now_, way, outgoing.mad)) complain("a MAD isn't understood");
      pump(1 - from);
    });
}

void SimulatedWorld::pump(unsigned host) {
  for (const auto& outgoing : hosts_[host]->take_mads()) travel(host, outgoing);
  for (const auto& notice : hosts_[host]->take_notices()) {
    Program& program = *programs_.at(notice.client - 1);
    if (!program.alive) complain("an event for the dead");
    on_event(program, notice.event);
  }
}

void SimulatedWorld::start_connect(Program& program, uint32_t id) {
  if (!program.alive) return;
  auto& manager = *hosts_[program.host];
  const bool datagrams = chance(weather_.datagrams);
  const auto space = datagrams ? CmPortSpace::kUdp : CmPortSpace::kTcp;
  ++tally_.connects;
  program.ids[id] = Phase::kConnecting;
  if (!manager.create(program.client, {.id = id, .channel = 1, .space = space}) ||
      !manager.connect(
          now_, program.client,
          {.id = id,
           .local = address_of(0),
           .remote = address_of(kServer, chance(0.1) ? kPort + 1 : kPort),
           .parameters = {.qpn = static_cast<uint32_t>(random_() & 0xffffff), .ack_timeout = 14}}))
    complain("can't connect");
  pump(program.host);
  if (chance(0.1)) live_on(program, id);
}

// Sooner or later a program ends what it has, in one way or another.
void SimulatedWorld::live_on(Program& program, uint32_t id) {
  later(15'000, [this, &program, id] {
    if (!program.alive) return;
    if (chance(weather_.death)) return kill(program);
    Phase& phase = program.ids[id];
    if (phase == Phase::kDestroyed) return;
    auto& manager = *hosts_[program.host];
    if (phase == Phase::kConnected && chance(0.6)) {
      if (!manager.disconnect(now_, program.client, {.id = id})) complain("can't disconnect");
    } else {
      if (!manager.destroy(now_, program.client, {.id = id})) complain("can't destroy");
      phase = Phase::kDestroyed;
    }
    pump(program.host);
  });
}

void SimulatedWorld::kill(Program& program) {
  if (!program.alive) return;
  ++tally_.deaths;
  program.alive = false;
  hosts_[program.host]->end_client(now_, program.client);
  pump(program.host);
}

void SimulatedWorld::on_request(Program& program, const ipc::CmEvent& event) {
  const uint32_t id = event.child;
  const bool datagrams = event.id == kUdpListener;
  program.ids[id] = Phase::kRequested;
  later(3'000, [this, &program, id, datagrams] {
    if (!program.alive || program.ids[id] != Phase::kRequested) return;
    if (chance(weather_.death)) return kill(program);
    auto& manager = *hosts_[program.host];
    if (chance(0.15)) {
      if (!manager.reject(now_, program.client, {.id = id})) complain("can't reject");
      program.ids[id] = Phase::kOver;
    } else if (chance(0.1)) {
      if (!manager.destroy(now_, program.client, {.id = id})) complain("can't destroy");
      program.ids[id] = Phase::kDestroyed;
    } else {
      if (!manager.accept(now_, program.client, {.id = id, .parameters = {.qpn = 0x123}}))
        complain("can't accept");
      program.ids[id] = datagrams ? Phase::kOver : Phase::kAccepted;
      if (chance(0.1)) live_on(program, id);
    }
    pump(program.host);
  });
}

void SimulatedWorld::on_response(Program& program, uint32_t id) {
  program.ids[id] = Phase::kResponded;
  later(1'500, [this, &program, id] {
    if (!program.alive || program.ids[id] != Phase::kResponded) return;
    if (chance(weather_.death)) return kill(program);
    auto& manager = *hosts_[program.host];
    if (chance(0.1)) {
      if (!manager.reject(now_, program.client, {.id = id})) complain("can't reject a reply");
      program.ids[id] = Phase::kOver;
    } else {
      if (!manager.establish(program.client, {.id = id})) complain("can't establish");
      program.ids[id] = Phase::kConnected;
      ++tally_.established;
      if (!chance(weather_.patience)) live_on(program, id);
    }
    pump(program.host);
  });
}

void SimulatedWorld::end_of(Program& program, uint32_t id, CmEventKind kind) {
  Phase& phase = program.ids[id];
  const bool open = phase == Phase::kConnecting || phase == Phase::kResponded || phase == Phase::kRequested ||
                    phase == Phase::kAccepted;
  if (kind == CmEventKind::kDisconnected ? phase != Phase::kConnected : !open)
    complain(fmt::format("id {:#x} of {} ends by event {} in phase {}", id, program.client,
                         static_cast<unsigned>(kind), static_cast<int>(phase)));
  phase = Phase::kOver;
}

void SimulatedWorld::on_event(Program& program, const ipc::CmEvent& event) {
  const uint32_t id = event.id;
  if (event.event != CmEventKind::kConnectRequest && program.ids[id] == Phase::kDestroyed)
    return complain("an event of an id that is destroyed");
  switch (event.event) {
    case CmEventKind::kConnectRequest:
      return on_request(program, event);
    case CmEventKind::kConnectResponse:
      if (program.ids[id] != Phase::kConnecting) complain("a response that nobody waits for");
      return on_response(program, id);
    case CmEventKind::kEstablished:
      if (program.ids[id] == Phase::kAccepted) {
        program.ids[id] = Phase::kConnected;
        return live_on(program, id);
      }
      if (program.ids[id] != Phase::kConnecting) complain("established out of nothing");
      program.ids[id] = Phase::kOver;  // datagrams
      return;
    case CmEventKind::kRejected:
      ++tally_.rejected;
      return end_of(program, id, event.event);
    case CmEventKind::kUnreachable:
      if (event.status == -ETIMEDOUT) ++tally_.unreachable;  // else a datagram service said no
      return end_of(program, id, event.event);
    case CmEventKind::kDisconnected:
      ++tally_.disconnected;
      return end_of(program, id, event.event);
    case CmEventKind::kTimewaitExit:
      if (program.ids[id] != Phase::kOver) complain("the end of a timewait that wasn't");
      return;
    default:
      complain("an event that doesn't exist");
  }
}

void SimulatedWorld::advance(base::Instant end) {
  while (wrong_.empty()) {
    auto next = end;
    if (!actions_.empty()) next = std::min(next, actions_.top().at);
    for (const auto& host : hosts_)
      if (const auto due = host->next_deadline()) next = std::min(next, std::max(*due, now_));
    now_ = next;
    if (now_ >= end) return;
    for (unsigned host = 0; host < hosts_.size(); ++host) {
      hosts_[host]->on_timer(now_);
      pump(host);
    }
    while (!actions_.empty() && actions_.top().at <= now_) {
      const auto work = actions_.top().work;
      actions_.pop();
      work();
    }
  }
}

void SimulatedWorld::check_all_concluded() {
  for (const auto& program : programs_) {
    if (!program->alive) continue;
    for (const auto& [id, phase] : program->ids)
      if (phase != Phase::kOver && phase != Phase::kDestroyed)
        complain(
            fmt::format("id {:#x} of {} hangs in phase {}", id, program->client, static_cast<int>(phase)));
  }
}

std::string SimulatedWorld::run() {
  advance(now_ + kLongest);
  if (wrong_.empty()) check_all_concluded();
  for (const auto& program : programs_) kill(*program);
  advance(now_ + base::seconds(60));
  for (const auto& host : hosts_)
    if (host->ids() != 0 || host->connections() != 0 || host->next_deadline() || host->in_use())
      complain(fmt::format("{} ids and {} connections are left", host->ids(), host->connections()));
  return wrong_;
}

}  // namespace verbena::cm
