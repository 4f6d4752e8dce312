// `verbena run`: sets the environment up and becomes the program, so that exit status, signals and job
// control are the program's own.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>

#include "client/agent_link.hpp"
#include "ipc/channel.hpp"
#include "tools/commands.hpp"
#include "tools/device_config.hpp"

namespace verbena::tools {
namespace {

constexpr char kHelp[] = R"(Runs PROGRAM, and all it starts, on Verbena's RDMA devices.

  verbena run -- ibv_devinfo -v
  verbena run --device-name mlx5_0 -- ib_write_bw -d mlx5_0
  verbena run --device roce0=eth0 --device roce1=eth1 -- ucx_info -d
  verbena run --device mlx5_0=eth0,eth1 -- ./two-port-test.sh
  verbena run --config devices.toml -- mpirun -np 2 ./ring

PROGRAM loads Verbena's libibverbs and librdmacm instead of the system's, and finds Verbena's devices, and only those,
under /sys/class/infiniband and /dev/infiniband. Its exit status, signals and process id are its own. Without options
there is one device, verbena0, with one port that has all addresses of this host.

devices.toml:   [[device]]
                name = "mlx5_0"
                ports = ["eth0", "eth1"]     # left out: one port with all addresses

Statically linked and set-user-ID programs can't be run this way: they don't load libraries by environment.)";

struct RunOptions {
  DeviceOptions devices;
  bool explain = false;
  std::vector<std::string> command;
};

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

int run(RunOptions& options) {
  const auto specs = choose_devices(options.devices);
  if (!specs) return complain(specs.error());
  const std::string devices = ipc::format_specs(*specs);
  const auto welcome = observe(devices);
  if (!welcome) return complain(welcome.error());
  if (const auto advice = ipc::get_text(welcome->advice); !advice.empty())
    std::cerr << "verbena: " << advice << "\n";

  const std::string libraries = library_directory();
  prepend("LD_LIBRARY_PATH", libraries);
  prepend("LD_PRELOAD", libraries + "/libverbena-view.so");
  if constexpr (sizeof VERBENA_SANITIZER_RUNTIME > 1) prepend("LD_PRELOAD", VERBENA_SANITIZER_RUNTIME);
  ::setenv("VERBENA_VIEW", std::string(ipc::get_text(welcome->tree)).c_str(), 1);
  ::setenv(ipc::kDevicesVariable, devices.c_str(), 1);
  if (options.explain) ::setenv("VERBENA_EXPLAIN", "1", 1);

  std::vector<char*> arguments;
  for (auto& argument : options.command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  std::cerr << "verbena: " << options.command[0] << ": " << std::strerror(error) << "\n";
  return error == ENOENT ? 127 : 126;  // as shells and env(1) do
}

}  // namespace

size_t program_begins(CLI::App& app, std::span<char*> arguments) {
  auto* command = app.get_subcommand("run");
  for (size_t i = 2; i < arguments.size(); ++i) {
    const std::string word = arguments[i];
    if (word == "--" || word.empty() || word[0] != '-') return i;
    const auto* option = command->get_option_no_throw(word);  // nothing for --name=value
    if (option != nullptr && option->get_expected_min() > 0) ++i;
  }
  return arguments.size();
}

void add_run(CLI::App& app, int& status, const std::vector<std::string>& program) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Run a program on Verbena's devices");
  command->description(kHelp);
  command->add_option("--device-name", options->devices.name, "Call the (first) device so, e.g. mlx5_0");
  auto* devices =
      command->add_option("--device", options->devices.devices,
                          "NAME=INTERFACE[,INTERFACE...]: a device with one port an interface; repeat "
                          "for more devices; * is all interfaces");
  devices->take_all()->allow_extra_args(false);
  command->add_option("--config", options->devices.config, "Devices from a TOML file")
      ->check(CLI::ExistingFile)
      ->excludes(devices);
  command->add_flag("--explain", options->explain, "Say on stderr what went wrong and what to change");
  command->footer(
      "  PROGRAM [ARGUMENTS...]      The program, as on a command line; put -- before it if its name begins "
      "with -");
  command->callback([options, &status, &program] {
    options->command = program;
    if (program.empty()) {
      complain({EINVAL, "which program? See `verbena run --help`"});
      status = 2;
      return;
    }
    status = run(*options);
  });
}

}  // namespace verbena::tools
