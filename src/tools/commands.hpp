// What the subcommands do; main.cpp reads the command line. Each returns the exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/device_config.hpp"

namespace verbena::tools {

struct RunOptions {
  DeviceOptions devices;
  bool explain = false;
  std::vector<std::string> command;
};
// Becomes the program; returns only if that fails.
int run_program(const RunOptions& options);

int list_devices(const DeviceOptions& options, bool as_json);

int show_counters(bool as_json);

int show_agent(bool as_json);
int stop_agent(bool force);
int run_system_agent();

struct SimOptions {
  uint64_t seeds = 1000;
  uint64_t from = 1;
  bool trace = false;
};
// 1: a seed failed; it is printed with its packets.
int simulate(const SimOptions& options);

// "verbena: SENTENCE" on stderr; returns the exit status for it.
int complain(const base::Error& error);

// The directory with the drop-in libraries: ../lib/verbena beside this program.
[[nodiscard]] std::string library_directory();

}  // namespace verbena::tools
