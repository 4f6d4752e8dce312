// The views: one for each device specification that some process uses, with its devices in the registry and
// its tree on disk.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/sysfs_tree.hpp"
#include "arena/registry.hpp"
#include "ipc/device_spec.hpp"
#include "net/interfaces.hpp"

namespace verbena::agent {

class ViewTable {
 public:
  // Takes over the views that the registry holds already. `directory` is where trees go.
  ViewTable(const arena::Registry& registry, std::string directory, uint64_t host_guid,
            std::vector<net::Interface> interfaces);

  using Flags = std::array<bool, arena::kMaxViews>;

  // The view for `spec`, made if there is none. Where nobody uses the one that there is, it begins anew:
  // whoever comes next has the best address first, as if it had been here before all that changed meanwhile.
  // Others that nobody uses make room when there is none. EINVAL: no specification; ENOSPC: too many
  // different ones in use.
  [[nodiscard]] base::Result<unsigned> find_or_make(std::string_view spec, const Flags& used);
  [[nodiscard]] const std::string& tree_root(unsigned view) const;
  // Interfaces changed: rebuilds all. True for each view whose devices changed.
  [[nodiscard]] Flags update(std::vector<net::Interface> interfaces);
  // Drops views that nobody uses.
  void keep_only(const Flags& used);
  void remove_all();

 private:
  struct View {
    std::string spec;
    ipc::DeviceSpecs devices;
    TreeWriter tree;
  };
  void make(unsigned index, std::string_view spec, const ipc::DeviceSpecs& devices);
  enum class Places : uint8_t { kKept, kNew };  // of GIDs that are there already
  bool rebuild(unsigned index, Places places);
  [[nodiscard]] std::optional<unsigned> free_place() const;

  const arena::Registry& registry_;
  std::string directory_;
  uint64_t host_guid_;
  std::vector<net::Interface> interfaces_;
  std::array<std::optional<View>, arena::kMaxViews> views_;
};

}  // namespace verbena::agent
