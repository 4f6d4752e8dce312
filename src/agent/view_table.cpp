#include "agent/view_table.hpp"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "agent/device_builder.hpp"

namespace verbena::agent {

ViewTable::ViewTable(const arena::Registry& registry, std::string directory, uint64_t host_guid,
                     std::vector<net::Interface> interfaces)
    : registry_(registry),
      directory_(std::move(directory)),
      host_guid_(host_guid),
      interfaces_(std::move(interfaces)) {
  for (unsigned i = 0; i < arena::kMaxViews; ++i) {
    if (!registry_.read_view(i)) continue;
    const std::string spec(arena::text(registry_.layout().views[i].spec));
    const auto devices = ipc::parse_specs(spec);
    if (devices) make(i, spec, *devices);
  }
}

std::optional<unsigned> ViewTable::free_place() const {
  for (unsigned i = 0; i < arena::kMaxViews; ++i)
    if (!views_[i]) return i;
  return {};
}

base::Result<unsigned> ViewTable::find_or_make(std::string_view spec, const Flags& used) {
  const auto devices = ipc::parse_specs(spec);
  if (!devices) return std::unexpected(devices.error());
  const std::string canonical = ipc::format_specs(*devices);
  for (unsigned i = 0; i < arena::kMaxViews; ++i) {
    if (!views_[i] || views_[i]->spec != canonical) continue;
    if (!used[i]) rebuild(i, Places::kNew);
    return i;
  }
  if (!free_place()) keep_only(used);
  const auto free = free_place();
  if (!free)
    return base::fail(ENOSPC,
                      fmt::format("{} different device specifications are in use on this host already; use "
                                  "one of them or end some programs",
                                  arena::kMaxViews));
  registry_.name_view(*free, canonical);
  make(*free, canonical, *devices);
  return *free;
}

void ViewTable::make(unsigned index, std::string_view spec, const ipc::DeviceSpecs& devices) {
  // The same directory for the same specification, whichever agent serves it: programs keep the path.
  const size_t hash = std::hash<std::string_view>{}(spec);
  views_[index].emplace(
      View{std::string(spec), devices, TreeWriter(fmt::format("{}/{:016x}", directory_, hash))});
  rebuild(index, Places::kKept);
}

bool ViewTable::rebuild(unsigned index, Places places) {
  View& view = *views_[index];
  const auto shown = registry_.read_view(index);
  const auto table =
      build_devices(view.devices, interfaces_, host_guid_, places == Places::kKept ? shown.get() : nullptr);
  const bool changed = !shown || std::memcmp(shown.get(), &table, sizeof table) != 0;
  if (changed) registry_.publish_view(index, table);
  // Without its tree a view still serves everything but what reads files: say so, go on.
  if (auto written = view.tree.write(tree_of(table, interfaces_)); !written)
    registry_.log(base::now(), written.error().sentence);
  return changed;
}

const std::string& ViewTable::tree_root(unsigned view) const { return views_[view]->tree.root(); }

ViewTable::Flags ViewTable::update(std::vector<net::Interface> interfaces) {
  interfaces_ = std::move(interfaces);
  Flags changed{};
  for (unsigned i = 0; i < arena::kMaxViews; ++i)
    if (views_[i]) changed[i] = rebuild(i, Places::kKept);
  return changed;
}

void ViewTable::keep_only(const Flags& used) {
  for (unsigned i = 0; i < arena::kMaxViews; ++i) {
    if (!views_[i] || used[i]) continue;
    registry_.drop_view(i);
    views_[i]->tree.remove();
    views_[i].reset();
  }
}

void ViewTable::remove_all() {
  keep_only({});
  // With whatever an agent that was killed had left.
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace verbena::agent
