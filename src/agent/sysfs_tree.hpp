// The files that programs read past the libraries (FACTS 2): /sys/class/infiniband*, /dev/infiniband. The
// agent writes them below a directory of its own; libverbena-view shows them at their usual place.
#pragma once

#include <map>
#include <string>

#include "arena/device_table.hpp"
#include "base/result.hpp"
#include "net/interfaces.hpp"

namespace verbena::agent {

struct TreeNode {
  bool is_link = false;
  std::string content;  // of the file, or the link's target
  bool operator==(const TreeNode&) const = default;
};
// By path below the tree's root, without a leading slash.
using Tree = std::map<std::string, TreeNode>;

// Pure: what the tree of these devices holds.
[[nodiscard]] Tree tree_of(const arena::DeviceTable& table, const std::vector<net::Interface>& interfaces);

// A tree on disk. Each file appears whole or not at all; unchanged ones aren't touched.
class TreeWriter {
 public:
  explicit TreeWriter(std::string root) : root_(std::move(root)) {}
  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] base::Result<void> write(const Tree& tree);
  void remove();

 private:
  void remove_unknown(const Tree& tree) const;

  std::string root_;
  Tree written_;
};

}  // namespace verbena::agent
