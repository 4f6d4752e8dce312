// `verbena counters`: what the processes on this host's devices have counted.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "arena/process_segments.hpp"
#include "arena/segment.hpp"
#include "client/agent_link.hpp"
#include "ipc/channel.hpp"
#include "tools/commands.hpp"

namespace verbena::tools {
namespace {

// Of one process, in the order of its table; nothing where it is another user's, or has just gone.
std::optional<nlohmann::ordered_json> counters_of(client::AgentLink& link, unsigned slot) {
  const int socket = link.socket.get();
  if (!ipc::send(socket, ipc::Look{.slot = slot})) return {};
  auto reply = ipc::receive_until(socket, base::now() + base::seconds(5));
  if (!reply || !ipc::expect<ipc::Looked>(*reply) || reply->fds.size() != 1) return {};
  const auto mapping = arena::map(reply->fds[0].get(), sizeof(arena::TablesHead), arena::Access::kRead);
  if (!mapping) return {};
  const auto& head = *reinterpret_cast<const arena::TablesHead*>(mapping->data());
  if (head.magic != arena::kTablesMagic || head.layout != arena::kTablesLayout) return {};
  nlohmann::ordered_json counters = nlohmann::ordered_json::object();
  const unsigned count = std::min(head.counters.count.acquire(), arena::kMaxCounters);
  for (unsigned i = 0; i < count; ++i)
    counters[std::string(base::text(head.counters.counters[i].name))] = head.counters.counters[i].value.get();
  return counters;
}

}  // namespace

int show_counters(bool as_json) {
  auto link = client::connect_agent({.devices = client::wanted_devices(), .start = client::Start::kNever});
  if (!link) {
    if (link.error().code != ECONNREFUSED) return complain(link.error());
    std::cout << (as_json ? "[]\n" : "no host agent runs, so no program uses a device\n");
    return 0;
  }
  nlohmann::ordered_json processes = nlohmann::ordered_json::array();
  for (unsigned slot = base::kFirstProcessSlot; slot <= base::kLastProcessSlot; ++slot) {
    const auto word = arena::SlotWord::unpack(link->registry.layout().slots[slot].word.load());
    if (word.state != arena::SlotState::kActive) continue;
    if (auto counters = counters_of(*link, slot))
      processes.push_back({{"slot", slot}, {"pid", word.pid}, {"counters", *counters}});
  }
  if (as_json) {
    std::cout << processes.dump(2) << "\n";
    return 0;
  }
  for (const auto& process : processes) {
    fmt::print("slot {}, pid {}\n", process["slot"].get<unsigned>(), process["pid"].get<unsigned>());
    for (const auto& [name, value] : process["counters"].items())
      if (value != 0) fmt::print("  {:<22} {}\n", name, value.get<uint64_t>());
  }
  return 0;
}

}  // namespace verbena::tools
