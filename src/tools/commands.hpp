// The subcommands. Each adds its options to the command line; what it then does is its callback, which leaves
// the exit status in `status`.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace verbena::tools {

// `program` is the program's command line, taken out of ours before CLI11 saw it.
void add_run(CLI::App& app, int& status, const std::vector<std::string>& program);
// Where in `verbena run ...` the program's own words begin: at -- or at the first word that is no option.
// They are its to the letter, while CLI11 would look into them (it unpacks brackets).
[[nodiscard]] size_t program_begins(CLI::App& app, std::span<char*> arguments);

void add_devices(CLI::App& app, int& status);
void add_agent(CLI::App& app, int& status);

// "verbena: SENTENCE" on stderr; returns the exit status for it.
int complain(const base::Error& error);

// The directory with the drop-in libraries: ../lib/verbena beside this program.
[[nodiscard]] std::string library_directory();

}  // namespace verbena::tools
