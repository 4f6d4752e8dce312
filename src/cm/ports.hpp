// Which ports of each port space are taken, by whom and for which address: the rules are those of TCP's bind
// and listen.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::cm {

[[nodiscard]] bool is_wildcard(const ipc::CmAddress& address);

// One taking of a port. The number is never used again.
using Taking = uint64_t;  // 0: none

class Ports {
 public:
  struct Range {
    uint16_t first = 32768;
    uint16_t last = 60999;
  };
  explicit Ports(Range ephemeral) : ephemeral_(ephemeral) {}

  struct Wanted {
    ipc::CmPortSpace space{};
    ipc::CmAddress address;  // port 0: a free one out of the ephemeral range
    bool reuse = false;      // shares the port with others that say so, too
    bool family_only = false;
  };
  struct Taken {
    Taking taking = 0;
    uint16_t port = 0;
  };
  // EADDRINUSE. `random` chooses where the search for a free port begins.
  [[nodiscard]] base::Result<Taken> take(const Wanted& wanted, uint64_t random);
  // EADDRINUSE: somebody else listens at that port already, or has it without sharing it.
  [[nodiscard]] base::Result<void> listen(Taking taking);
  void release(Taking taking);

  // Who listens for connections to that address: the one of the very address before the wildcard's. 0:
  // nobody.
  [[nodiscard]] Taking listener(ipc::CmPortSpace space, const ipc::CmAddress& destination) const;
  [[nodiscard]] size_t size() const { return places_.size(); }

 private:
  using Place = std::pair<ipc::CmPortSpace, uint16_t>;
  struct Holder {
    Taking taking = 0;
    Wanted wanted;
    bool listening = false;
  };
  [[nodiscard]] bool free(const Wanted& wanted, uint16_t port) const;
  [[nodiscard]] Holder* find(Taking taking);

  Range ephemeral_;
  Taking last_ = 0;
  std::map<Place, std::vector<Holder>> holders_;
  std::map<Taking, Place> places_;
};

}  // namespace verbena::cm
