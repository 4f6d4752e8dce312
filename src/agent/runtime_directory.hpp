// Where an agent keeps its trees: in the user's runtime directory, else in /run, /dev/shm or /tmp.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::agent {

struct RuntimeDirectory {
  std::string path;
  base::UniqueFd lock;  // held while its agent lives: what nobody holds was left by one that was killed
};

// Ours, and nobody else's. Clears away what agents of this user in other network namespaces left behind when
// they were killed and nobody took over.
[[nodiscard]] base::Result<RuntimeDirectory> make_runtime_directory(bool for_everybody);

}  // namespace verbena::agent
