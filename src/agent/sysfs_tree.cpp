#include "agent/sysfs_tree.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "arena/link_rate.hpp"

namespace verbena::agent {
namespace {

namespace fs = std::filesystem;

constexpr char kDriverName[] = "verbena";

std::string gid_text(const arena::RawGid& gid) {
  std::string text;
  for (size_t i = 0; i < gid.size(); i += 2)
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  return text;
}

std::string guid_text(uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                     guid & 0xffff);
}

class Builder {
 public:
  explicit Builder(Tree& tree) : tree_(tree) {}
  void file(const std::string& path, const std::string& line) { tree_[path] = {false, line + "\n"}; }
  void link(const std::string& path, const std::string& target) { tree_[path] = {true, target}; }

 private:
  Tree& tree_;
};

constexpr const char* kCounters[] = {"port_xmit_data",
                                     "port_rcv_data",
                                     "port_xmit_packets",
                                     "port_rcv_packets",
                                     "unicast_xmit_packets",
                                     "unicast_rcv_packets",
                                     "multicast_xmit_packets",
                                     "multicast_rcv_packets",
                                     "port_rcv_errors",
                                     "port_xmit_discards",
                                     "port_xmit_wait",
                                     "port_rcv_remote_physical_errors",
                                     "port_rcv_switch_relay_errors",
                                     "port_rcv_constraint_errors",
                                     "port_xmit_constraint_errors",
                                     "symbol_error",
                                     "link_error_recovery",
                                     "link_downed",
                                     "local_link_integrity_errors",
                                     "excessive_buffer_overrun_errors",
                                     "VL15_dropped"};

void add_port(Builder& add, const std::string& base, const arena::PortRecord& port,
              const std::vector<net::Interface>& interfaces) {
  const bool active = port.state == arena::PortState::kActive;
  add.file(base + "state", active ? "4: ACTIVE" : "1: DOWN");
  add.file(base + "phys_state", active ? "5: LinkUp" : "3: Disabled");
  add.file(base + "rate", arena::link_rate(port.speed_mbps).text);
  add.file(base + "lid", "0x0");
  add.file(base + "lid_mask_count", "0");
  add.file(base + "sm_lid", "0x0");
  add.file(base + "sm_sl", "0");
  add.file(base + "cap_mask", "0x04010000");
  add.file(base + "link_layer", "Ethernet");
  add.file(base + "pkeys/0", "0xffff");
  for (size_t i = 0; i < arena::kMaxGids; ++i) {
    const auto& gid = port.gids[i];
    add.file(fmt::format("{}gids/{}", base, i), gid_text(gid.used != 0 ? gid.raw : arena::RawGid{}));
    if (gid.used == 0) continue;  // the kernel answers these with an error, too
    add.file(fmt::format("{}gid_attrs/types/{}", base, i), "RoCE v2");
    for (const auto& interface : interfaces)
      if (interface.index == gid.ifindex)
        add.file(fmt::format("{}gid_attrs/ndevs/{}", base, i), interface.name);
  }
  for (const char* counter : kCounters) add.file(base + "counters/" + counter, "0");
}

void add_device(Builder& add, const arena::DeviceRecord& device, unsigned number,
                const std::vector<net::Interface>& interfaces) {
  const std::string name(arena::text(device.name));
  const std::string uverbs = fmt::format("uverbs{}", number);
  const std::string home = fmt::format("sys/devices/virtual/verbena/{}/", name);
  const std::string self = home + "infiniband/" + name + "/";
  const std::string verbs = home + "infiniband_verbs/" + uverbs + "/";

  add.link("sys/class/infiniband/" + name,
           fmt::format("../../devices/virtual/verbena/{0}/infiniband/{0}", name));
  add.link("sys/class/infiniband_verbs/" + uverbs,
           fmt::format("../../devices/virtual/verbena/{}/infiniband_verbs/{}", name, uverbs));
  add.link("dev/infiniband/" + uverbs, "/dev/null");  // a character device that anybody may open

  add.file(home + "numa_node", "-1");
  add.file(home + "local_cpus", "ffffffff");
  add.link(home + "driver", "../drivers/" + std::string(kDriverName));
  add.link(home + "subsystem", "../../../../bus/virtual");

  add.file(self + "node_type", "1: CA");
  add.file(self + "fw_ver", VERBENA_VERSION);
  add.file(self + "hw_rev", "0x1");
  add.file(self + "hca_type", "Verbena");
  add.file(self + "board_id", "Verbena");
  add.file(self + "node_guid", guid_text(device.node_guid));
  add.file(self + "sys_image_guid", guid_text(arena::system_image_guid(device)));
  add.file(self + "node_desc", name);
  add.link(self + "device", "../..");
  add.link(self + "subsystem", "../../../../../../class/infiniband");

  add.file(verbs + "ibdev", name);
  add.file(verbs + "abi_version", "1");
  add.file(verbs + "dev", fmt::format("231:{}", 192 + number));  // the kernel's numbers for uverbsN
  add.link(verbs + "device", "../..");

  for (unsigned p = 0; p < device.port_count; ++p) {
    const auto& port = device.ports[p];
    add_port(add, fmt::format("{}ports/{}/", self, p + 1), port, interfaces);
    const std::string interface(arena::text(port.interface));
    if (!interface.empty()) add.link(home + "net/" + interface, "/sys/class/net/" + interface);
  }
}

// Modes are said, not left to whatever umask the program had that happened to start us.
void make_directories(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) {
    ::chmod(path.c_str(), 0755);
  } else if (errno == ENOENT) {
    make_directories(fs::path(path).parent_path());
    if (::mkdir(path.c_str(), 0755) == 0) ::chmod(path.c_str(), 0755);
  }
}

base::Result<void> write_node(const std::string& path, const TreeNode& node) {
  make_directories(fs::path(path).parent_path());
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  if (node.is_link) {
    if (::symlink(node.content.c_str(), fresh.c_str()) != 0) return base::fail_errno("linking " + path);
  } else {
    const base::UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    if (!fd || ::fchmod(fd.get(), 0444) != 0 ||
        ::write(fd.get(), node.content.data(), node.content.size()) !=
            static_cast<ssize_t>(node.content.size()))
      return base::fail_errno("writing " + path);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return base::fail_errno("placing " + path);
  return {};
}

}  // namespace

Tree tree_of(const arena::DeviceTable& table, const std::vector<net::Interface>& interfaces) {
  Tree tree;
  Builder add(tree);
  add.file("sys/class/infiniband_verbs/abi_version", "6");
  add.file("sys/class/infiniband_mad/abi_version", "5");
  add.file(fmt::format("sys/devices/virtual/verbena/drivers/{}/version", kDriverName), VERBENA_VERSION);
  for (unsigned d = 0; d < table.device_count; ++d) add_device(add, table.devices[d], d, interfaces);
  return tree;
}

void TreeWriter::remove_unknown(const Tree& tree) const {
  std::error_code ignored;
  std::vector<fs::path> unknown;
  for (const auto& entry : fs::recursive_directory_iterator(root_, ignored))
    if ((entry.is_symlink(ignored) || !entry.is_directory(ignored)) &&
        !tree.contains(entry.path().lexically_relative(root_)))
      unknown.push_back(entry.path());
  for (const auto& path : unknown) fs::remove(path, ignored);
}

base::Result<void> TreeWriter::write(const Tree& tree) {
  if (written_.empty()) remove_unknown(tree);  // of an agent before us
  for (const auto& [path, node] : tree) {
    const auto old = written_.find(path);
    if (old != written_.end() && old->second == node) continue;
    if (auto done = write_node(root_ + "/" + path, node); !done) return done;
  }
  for (const auto& [path, node] : written_)
    if (!tree.contains(path)) ::unlink((root_ + "/" + path).c_str());
  written_ = tree;
  return {};
}

void TreeWriter::remove() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
  written_.clear();
}

}  // namespace verbena::agent
