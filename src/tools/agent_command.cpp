// `verbena agent`: look at the host agent, end it, or run one for all users.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/agent_link.hpp"
#include "ipc/channel.hpp"
#include "tools/commands.hpp"

namespace verbena::tools {
namespace {

using arena::Counter;
using arena::SlotState;

base::Result<client::AgentLink> connect() {
  return client::connect_agent({.devices = client::wanted_devices(), .start = client::Start::kNever});
}

const char* state_name(SlotState state) {
  switch (state) {
    case SlotState::kFree:
      return "free";
    case SlotState::kActive:
      return "active";
    case SlotState::kQuarantined:
      return "quarantined";
    case SlotState::kLeased:
      return "leased";
  }
  return "unknown";
}

nlohmann::json describe(const client::AgentLink& link) {
  const auto& layout = link.registry.layout();
  nlohmann::json slots = nlohmann::json::array();
  for (unsigned s = base::kFirstProcessSlot; s <= base::kLastProcessSlot; ++s) {
    const auto word = arena::SlotWord::unpack(layout.slots[s].word.load(std::memory_order_acquire));
    if (word.state == SlotState::kFree) continue;
    slots.push_back({{"slot", s},
                     {"state", state_name(word.state)},
                     {"pid", word.pid},
                     {"uid", layout.slots[s].uid.load(std::memory_order_relaxed)}});
  }
  nlohmann::json counters;
  for (unsigned c = 0; c < static_cast<unsigned>(Counter::kCount); ++c)
    counters[std::string(arena::counter_name(static_cast<Counter>(c)))] =
        link.registry.counted(static_cast<Counter>(c));
  nlohmann::json log = nlohmann::json::array();
  const uint64_t last = layout.log_next.load(std::memory_order_acquire);
  for (uint64_t n = last < arena::kLogLines ? 1 : last - arena::kLogLines + 1; n <= last; ++n) {
    const auto& line = layout.log[n % arena::kLogLines];
    if (line.number.load(std::memory_order_acquire) == n) log.push_back(std::string(arena::text(line.text)));
  }
  return {{"pid", layout.agent_pid.load()},
          {"generation", link.welcome.generation},
          {"has_port", link.welcome.has_port != 0},
          {"advice", std::string(ipc::text(link.welcome.advice))},
          {"tree", std::string(ipc::text(link.welcome.tree))},
          {"slots", slots},
          {"counters", counters},
          {"log", log}};
}

}  // namespace

int show_agent(bool as_json) {
  const auto link = connect();
  if (!link) {
    if (link.error().code != ECONNREFUSED) return complain(link.error());
    std::cout << (as_json ? "null\n" : "no host agent runs; the first program that needs one starts it\n");
    return 3;  // as service managers say "not running"
  }
  const auto status = describe(*link);
  if (as_json) {
    std::cout << status.dump(2) << "\n";
    return 0;
  }
  fmt::print("agent      pid {}, generation {}\n", status["pid"].get<int>(),
             status["generation"].get<unsigned>());
  fmt::print("port 4791  {}\n", link->welcome.has_port != 0 ? "ours" : status["advice"].get<std::string>());
  fmt::print("files      {}\n", status["tree"].get<std::string>());
  fmt::print("slots      {} of {} in use\n", status["slots"].size(), base::kMaxProcessSlots);
  for (const auto& slot : status["slots"])
    fmt::print("  {:3}  {:<11}  pid {}  uid {}\n", slot["slot"].get<int>(), slot["state"].get<std::string>(),
               slot["pid"].get<int>(), slot["uid"].get<int>());
  fmt::print("counters\n");
  for (const auto& [name, value] : status["counters"].items())
    if (value != 0) fmt::print("  {:<18} {}\n", name, value.get<uint64_t>());
  if (!status["log"].empty()) fmt::print("log\n");
  for (const auto& line : status["log"]) fmt::print("  {}\n", line.get<std::string>());
  return 0;
}

int stop_agent(bool force) {
  auto link = connect();
  if (!link) {
    if (link.error().code != ECONNREFUSED) return complain(link.error());
    std::cout << "no host agent runs\n";
    return 0;
  }
  if (auto sent = ipc::send(link->socket.get(), ipc::Stop{.force = force ? 1u : 0u}); !sent)
    return complain(sent.error());
  const auto deadline = base::now() + base::seconds(5);
  auto reply = ipc::receive_until(link->socket.get(), deadline);
  if (!reply) return complain(reply.error());
  if (auto done = ipc::expect<ipc::Done>(*reply); !done) return complain(done.error());
  (void)ipc::receive_until(link->socket.get(), deadline);  // it is gone when its end closes
  return 0;
}

int run_system_agent() {
  const std::string path = library_directory() + "/verbena-agent";
  ::execl(path.c_str(), "verbena-agent", "--system", static_cast<char*>(nullptr));
  return complain({errno, path + ": " + std::strerror(errno)});
}

}  // namespace verbena::tools
