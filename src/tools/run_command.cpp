// `verbena run`: sets the environment up and becomes the program, so that exit status, signals and job
// control are the program's own.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "client/agent_link.hpp"
#include "ipc/channel.hpp"
#include "tools/commands.hpp"

namespace verbena::tools {
namespace {

// Puts `value` first in a colon-separated list, once.
void prepend(const char* variable, const std::string& value) {
  std::string list = value;
  if (const char* old = std::getenv(variable)) {
    std::string_view rest = old;
    while (!rest.empty()) {
      const size_t colon = rest.find(':');
      const std::string_view entry = rest.substr(0, colon);
      if (!entry.empty() && entry != value) list += fmt::format(":{}", entry);
      rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
    }
  }
  ::setenv(variable, list.c_str(), 1);
}

// Tells the agent to keep the view while this process lives, whatever program it becomes.
base::Result<ipc::Welcome> observe(const std::string& devices) {
  for (int attempt = 0;; ++attempt) {
    auto link = client::connect_agent({.devices = devices});
    if (!link) return std::unexpected(link.error());
    (void)ipc::send(link->socket.get(), ipc::Observe{});  // a failure shows in the answer
    auto reply = ipc::receive_until(link->socket.get(), base::now() + base::seconds(5));
    if (reply) {
      if (auto done = ipc::expect<ipc::Done>(*reply); !done) return std::unexpected(done.error());
      return link->welcome;
    }
    // An agent that dies or leaves in this very moment has a successor.
    if (reply.error().code != ECONNRESET || attempt == 10) return std::unexpected(reply.error());
  }
}

}  // namespace

int run_program(const RunOptions& options) {
  const auto specs = choose_devices(options.devices);
  if (!specs) return complain(specs.error());
  const std::string devices = ipc::format_specs(*specs);
  const auto welcome = observe(devices);
  if (!welcome) return complain(welcome.error());
  if (const auto advice = ipc::text(welcome->advice); !advice.empty())
    std::cerr << "verbena: " << advice << "\n";

  const std::string libraries = library_directory();
  prepend("LD_LIBRARY_PATH", libraries);
  prepend("LD_PRELOAD", libraries + "/libverbena-view.so");
  if constexpr (sizeof VERBENA_SANITIZER_RUNTIME > 1) prepend("LD_PRELOAD", VERBENA_SANITIZER_RUNTIME);
  ::setenv("VERBENA_VIEW", std::string(ipc::text(welcome->tree)).c_str(), 1);
  ::setenv(ipc::kDevicesVariable, devices.c_str(), 1);
  if (options.explain) ::setenv("VERBENA_EXPLAIN", "1", 1);

  std::vector<char*> arguments;
  for (const auto& argument : options.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  std::cerr << "verbena: " << options.command[0] << ": " << std::strerror(error) << "\n";
  return error == ENOENT ? 127 : 126;  // as shells and env(1) do
}

}  // namespace verbena::tools
