#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

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

}  // namespace verbena::tools

namespace {

bool has_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::ranges::any_of(commands, [&](const CLI::App* command) { return command->get_name() == name; });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Verbena: RDMA in software. Programs written for InfiniBand or RoCE adapters run unmodified, without\n"
      "hardware, kernel module or root:  verbena run -- ibv_devinfo -v"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("verbena ") + VERBENA_VERSION);
  int status = 0;
  std::vector<std::string> program;
  verbena::tools::add_run(app, status, program);
  verbena::tools::add_devices(app, status);
  verbena::tools::add_agent(app, status);
  // CLI11 would only say that a subcommand is required.
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    std::cerr << "verbena: there is no command '" << argv[1] << "'; see `verbena --help`\n";
    return 2;
  }
  int ours = argc;
  if (argc > 1 && std::string_view(argv[1]) == "run") {
    const std::span arguments(argv, static_cast<size_t>(argc));
    const size_t begin = verbena::tools::program_begins(app, arguments);
    ours = static_cast<int>(begin);
    program.assign(arguments.begin() + ours, arguments.end());
    if (!program.empty() && program.front() == "--") program.erase(program.begin());
  }
  try {
    app.parse(ours, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return status;
}
