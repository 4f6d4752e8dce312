// A tree as the host agent writes it, in a temporary directory, and programs run with it in view.
#pragma once

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace verbena::abi::view {

struct Outcome {
  int status = -1;
  std::string output;  // both streams
};

// Runs a shell command whose environment begins with `variables`.
inline Outcome run_shell(const std::string& variables, const std::string& command) {
  std::string quoted;
  for (const char c : command) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string line = "env " + variables + " sh -c '" + quoted + "' 2>&1";
  Outcome outcome;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (std::size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, got);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class HandMadeTree {
 public:
  HandMadeTree() {
    char name[] = "/tmp/verbena-view-test-XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    top_ = name;
    chmod(name, 0755);
    make_device();
    make_port();
    link("../../devices/virtual/verbena/verbena0", "sys/class/infiniband/verbena0");
    write("sys/class/infiniband_verbs/abi_version", "6");
    write("sys/devices/virtual/verbena/uverbs0/ibdev", "verbena0");
    write("sys/devices/virtual/verbena/uverbs0/abi_version", "1");
    link("../../devices/virtual/verbena/uverbs0", "sys/class/infiniband_verbs/uverbs0");
    write("sys/class/infiniband_mad/abi_version", "5");
    link("/dev/null", "dev/infiniband/uverbs0");
  }
  ~HandMadeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(top_, ignored);
  }
  HandMadeTree(const HandMadeTree&) = delete;
  HandMadeTree& operator=(const HandMadeTree&) = delete;

  [[nodiscard]] const std::string& top() const { return top_; }

  void write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = top_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << '\n';
    chmod(file.c_str(), 0444);
  }
  void link(const std::string& target, const std::string& path) const {
    const std::filesystem::path file = top_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::create_symlink(target, file);
  }

  [[nodiscard]] Outcome run(const std::string& command, const std::string& more = "") const {
    return run_shell("LD_PRELOAD=" VIEW_LIBRARY " VERBENA_VIEW=" + top_ + " LC_ALL=C " + more, command);
  }

 private:
  void make_device() const {
    const std::string device = "sys/devices/virtual/verbena/verbena0/";
    write(device + "node_type", "1: CA");
    write(device + "fw_ver", "0.1.0");
    write(device + "hw_rev", "0x0");
    write(device + "hca_type", "verbena");
    write(device + "node_guid", "0200:00ff:fe00:0001");
    write(device + "sys_image_guid", "0200:00ff:fe00:0001");
    write(device + "node_desc", "verbena0");
  }
  void make_port() const {
    const std::string port = "sys/devices/virtual/verbena/verbena0/ports/1/";
    write(port + "lid", "0x0");
    write(port + "lid_mask_count", "0");
    write(port + "sm_lid", "0x0");
    write(port + "sm_sl", "0");
    write(port + "state", "4: ACTIVE");
    write(port + "phys_state", "5: LinkUp");
    write(port + "rate", "100 Gb/sec (4X EDR)");
    write(port + "cap_mask", "0x00010000");
    write(port + "link_layer", "Ethernet");
    write(port + "gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001");
    write(port + "pkeys/0", "0xffff");
    write(port + "gid_attrs/types/0", "RoCE v2");
    write(port + "gid_attrs/ndevs/0", "lo");
    write(port + "counters/port_xmit_data", "0");
  }

  std::string top_;
};

}  // namespace verbena::abi::view
