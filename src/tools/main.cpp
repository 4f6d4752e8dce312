// The command line. The only file that sees CLI11, which takes long to compile.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <span>

#include "tools/commands.hpp"

namespace verbena::tools {

int complain(const base::Error& error) {
  std::cerr << "verbena: " << error.sentence << "\n";
  return 1;
}

std::string library_directory() {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return self.parent_path().parent_path() / "lib" / "verbena";
}

namespace {

constexpr char kRunHelp[] = R"(Runs PROGRAM, and all it starts, on Verbena's RDMA devices.

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

constexpr int kUsageError = 2;

// Everything that the options of all subcommands fill in.
struct CommandLine {
  RunOptions run;
  DeviceOptions devices;
  SimOptions sim;
  bool json = false;
  bool force = false;
  bool system = false;
  int status = 0;
};

void add_device_options(CLI::App& command, DeviceOptions& options) {
  command.add_option("--device-name", options.name, "Call the (first) device so, e.g. mlx5_0");
  auto* devices =
      command.add_option("--device", options.devices,
                         "NAME=INTERFACE[,INTERFACE...]: a device with one port an interface; repeat for "
                         "more devices; * is all interfaces");
  devices->take_all()->allow_extra_args(false);
  command.add_option("--config", options.config, "Devices from a TOML file")
      ->check(CLI::ExistingFile)
      ->excludes(devices);
}

void add_run(CLI::App& app, CommandLine& line) {
  auto* command = app.add_subcommand("run", "Run a program on Verbena's devices");
  command->description(kRunHelp);
  add_device_options(*command, line.run.devices);
  command->add_flag("--explain", line.run.explain, "Say on stderr what went wrong and what to change");
  command->footer(
      "  PROGRAM [ARGUMENTS...]      The program, as on a command line; put -- before it if its name begins "
      "with -");
  command->callback([&line] {
    if (!line.run.command.empty()) {
      line.status = run_program(line.run);
      return;
    }
    complain({EINVAL, "which program? See `verbena run --help`"});
    line.status = kUsageError;
  });
}

void add_devices(CLI::App& app, CommandLine& line) {
  auto* command =
      app.add_subcommand("devices", "List the devices that programs see, with ports and addresses");
  add_device_options(*command, line.devices);
  command->add_flag("--json", line.json, "For programs");
  command->callback([&line] { line.status = list_devices(line.devices, line.json); });
}

void add_counters(CLI::App& app, CommandLine& line) {
  auto* command = app.add_subcommand("counters",
                                     "What each process on the devices has sent, received, sent again and "
                                     "dropped over the network, and why");
  command->add_flag("--json", line.json, "For programs; with those that are zero");
  command->callback([&line] { line.status = show_counters(line.json); });
}

void add_agent(CLI::App& app, CommandLine& line) {
  auto* command =
      app.add_subcommand("agent",
                         "Look at the host agent, or end it. There is one for each user and network "
                         "namespace; the first program that\n"
                         "needs it starts it, and it leaves some seconds after the last one ended.");
  command->add_flag(
      "--system", line.system,
      "Run an agent for all users of this host, in the foreground, as root: on one host only one user's\n"
      "own agent can have the RoCEv2 port, this one shares it");
  auto* show = command->add_subcommand("status", "Who is attached, counters, and what the agent has to say");
  show->add_flag("--json", line.json, "For programs");
  show->callback([&line] { line.status = show_agent(line.json); });
  auto* end = command->add_subcommand("stop", "End the agent, unless programs use it");
  end->add_flag("--force", line.force, "Even then; programs that are attached start another one");
  end->callback([&line] { line.status = stop_agent(line.force); });
  command->require_subcommand(0, 1);
  command->callback([command, &line] {
    if (!command->get_subcommands().empty()) return;
    line.status = line.system ? run_system_agent() : show_agent(false);
  });
}

void add_sim(CLI::App& app, CommandLine& line) {
  auto* command = app.add_subcommand(
      "sim",
      "Run the wire's engine on virtual time in a network that loses, reorders, doubles and damages\n"
      "packets; prints the seed that fails, with its packets, and exits 1");
  command->add_option("--seeds", line.sim.seeds, "How many runs")->capture_default_str();
  command->add_option("--from", line.sim.from, "The first one's seed")->capture_default_str();
  command->add_flag("--trace", line.sim.trace, "Print all packets, also of runs that go well");
  command->callback([&line] { line.status = simulate(line.sim); });
}

bool has_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::ranges::any_of(commands, [&](const CLI::App* command) { return command->get_name() == name; });
}

// Where in `verbena run ...` the program's own words begin: at -- or at the first word that is no option.
// They are its to the letter, while CLI11 would look into them (it unpacks brackets).
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

int read_command_line(std::span<char*> arguments) {
  CLI::App app{
      "Verbena: RDMA in software. Programs written for InfiniBand or RoCE adapters run unmodified, without\n"
      "hardware, kernel module or root:  verbena run -- ibv_devinfo -v"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("verbena ") + VERBENA_VERSION);
  CommandLine line;
  add_run(app, line);
  add_devices(app, line);
  add_counters(app, line);
  add_agent(app, line);
  add_sim(app, line);

  const std::string first = arguments.size() > 1 ? arguments[1] : "-";
  if (first[0] != '-' && !has_command(app, first)) {  // CLI11 would only say that a subcommand is required
    std::cerr << "verbena: there is no command '" << first << "'; see `verbena --help`\n";
    return kUsageError;
  }
  size_t ours = arguments.size();
  if (first == "run") {
    ours = program_begins(app, arguments);
    for (char* word : arguments.subspan(ours)) line.run.command.emplace_back(word);
    if (!line.run.command.empty() && line.run.command.front() == "--")
      line.run.command.erase(line.run.command.begin());
  }
  try {
    app.parse(static_cast<int>(ours), arguments.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return line.status;
}

}  // namespace
}  // namespace verbena::tools

int main(int argc, char** argv) {
  return verbena::tools::read_command_line(std::span(argv, static_cast<size_t>(argc)));
}
