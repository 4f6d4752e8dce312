#include "fleet.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>

#include "client/agent_link.hpp"
#include "ipc/process_id.hpp"
#include "net/steering.hpp"

namespace verbena::crash {
namespace {

std::optional<client::AgentLink> look() {
  auto link = client::connect_agent({.devices = client::wanted_devices(), .start = client::Start::kNever});
  if (!link) return std::nullopt;
  return std::move(*link);
}

std::string runtime_directory() {
  return "verbena-" + std::to_string(::geteuid()) + "-" + std::to_string(ipc::namespace_inode("net"));
}

}  // namespace

void FreshHost::SetUp() {
  // Numbers of namespaces come again, and the directory of an agent that was killed with its whole host
  // stays: an agent that starts here would take it over.
  if (net::port_owner_uid() < 0 && !support::agent_pid())
    for (const char* place : {"/run/", "/dev/shm/", "/tmp/"}) {
      std::error_code ignored;
      std::filesystem::remove_all(place + runtime_directory(), ignored);
    }
  ASSERT_TRUE(nothing_left());
}

Member enlist(const support::Process::Options& options) {
  Member member{support::Process::start({TEST_CLIENT}, options)};
  const auto line = member.process.hear();
  EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
  if (line && line->starts_with("slot ")) member.slot = static_cast<unsigned>(std::stoul(line->substr(5)));
  return member;
}

std::vector<Member> enlist_all(unsigned count) {
  std::vector<Member> fleet;
  for (unsigned i = 0; i < count; ++i) fleet.push_back({support::Process::start({TEST_CLIENT})});
  for (auto& member : fleet) {
    const auto line = member.process.hear(support::Wait(30'000));
    EXPECT_TRUE(line && line->starts_with("slot ")) << line.value_or("nothing");
    if (line && line->starts_with("slot ")) member.slot = static_cast<unsigned>(std::stoul(line->substr(5)));
  }
  return fleet;
}

void send_to_slot(unsigned slot, const std::string& token, bool ipv6) {
  std::string packet(12, '\0');  // a BTH: the destination queue pair is bytes 5 to 7
  packet[5] = static_cast<char>(slot);
  packet += token;
  const base::UniqueFd socket(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to4{};
  sockaddr_in6 to6{};
  if (ipv6) {
    to6.sin6_family = AF_INET6;
    to6.sin6_port = htons(net::kRocePort);
    to6.sin6_addr = in6addr_loopback;
    ASSERT_EQ(::sendto(socket.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to6),
                       sizeof to6),
              static_cast<ssize_t>(packet.size()));
    return;
  }
  to4.sin_family = AF_INET;
  to4.sin_port = htons(net::kRocePort);
  to4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(
      ::sendto(socket.get(), packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&to4), sizeof to4),
      static_cast<ssize_t>(packet.size()));
}

bool reached(Member& member, const std::string& token) {
  send_to_slot(member.slot, token);
  member.process.say("expect " + token);
  return member.process.hear() == "got " + token;
}

void kill_agent() {
  const auto pid = support::agent_pid();
  ASSERT_TRUE(pid);
  ASSERT_EQ(::kill(*pid, SIGKILL), 0);
  ASSERT_TRUE(support::eventually([&] { return ipc::start_ticks_of(*pid) == 0; }));
}

std::optional<pid_t> next_agent(pid_t old) {
  std::optional<pid_t> found;
  support::eventually(
      [&] {
        const auto pid = support::agent_pid();
        if (pid && *pid != old) found = pid;
        return found.has_value();
      },
      support::Wait(30'000));
  return found;
}

std::optional<uint64_t> counter(const std::string& name) {
  const auto link = look();
  if (!link) return std::nullopt;
  for (unsigned c = 0; c < static_cast<unsigned>(arena::Counter::kCount); ++c)
    if (arena::counter_name(static_cast<arena::Counter>(c)) == name)
      return link->registry.counted(static_cast<arena::Counter>(c));
  return std::nullopt;
}

std::optional<unsigned> slots_taken() {
  const auto link = look();
  if (!link) return std::nullopt;
  unsigned taken = 0;
  for (const auto& slot : link->registry.layout().slots)
    if (arena::SlotWord::unpack(slot.word.load()).state != arena::SlotState::kFree) ++taken;
  return taken;
}

bool nothing_left() {
  const std::string directory = runtime_directory();
  return support::eventually(
      [&] {
        // The port first: asking the agent for its pid would keep it from leaving.
        if (net::port_owner_uid() >= 0 || support::agent_pid()) return false;
        for (const char* place : {"/run/", "/dev/shm/", "/tmp/"})
          if (std::filesystem::exists(place + directory)) return false;
        return true;
      },
      support::Wait(20'000));  // a lease that nobody renews keeps its owner for ten seconds
}

}  // namespace verbena::crash
