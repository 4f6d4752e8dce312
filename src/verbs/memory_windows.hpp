// The memory windows of this process: parts of regions that peers may reach by a key of their own, bound and
// taken back without a registration. They lie in the table of regions; a window that isn't bound has no valid
// entry there.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "engine/responder_actions.hpp"
#include "verbs/memory_regions.hpp"

namespace verbena::verbs {

// What ibv_bind_mw or IBV_WR_BIND_MW asks for.
struct WindowBinding {
  ibv_mw_type type = IBV_MW_TYPE_1;
  uint32_t key = 0;     // from now on; its high 24 bits name the window
  uint32_t region = 0;  // its lkey; 0: none
  uint32_t access = 0;  // ibv_access_flags
  uint64_t address = 0;
  uint64_t length = 0;  // 0 unbinds a type 1 window
};

// Who asks: a queue pair and its domain.
struct WindowUser {
  base::Qpn queue_pair;
  uint32_t domain = 0;
};

// Type 2 windows are of kind B: open to the queue pair that bound them only, whose domain must be theirs.
// Any thread. Taking a window back waits as MemoryRegions::remove() does, but for the requests of peers.
class MemoryWindows {
 public:
  MemoryWindows(const arena::ProcessArena& arena, MemoryRegions& regions)
      : arena_(arena), regions_(regions) {}

  // The key of a window that isn't bound yet. ENOMEM: kMaxMw exist.
  [[nodiscard]] base::Result<uint32_t> add(ibv_mw_type type, uint32_t domain);
  // Bound or not.
  void remove(uint32_t key);

  // kDone, or why it can't be; then nothing has changed.
  [[nodiscard]] engine::Verdict bind(const WindowBinding& wanted, const WindowUser& user);
  // IBV_WR_LOCAL_INV.
  [[nodiscard]] engine::Verdict invalidate(uint32_t key, const WindowUser& user);
  // A peer's SEND with invalidate. Doesn't wait: nobody else may use such a window, and the peer has done
  // with it. What is no window of that queue pair any longer is left alone.
  void invalidate_for_peer(uint32_t key, const WindowUser& user);
  // The queue pair goes, and with it what was open through it.
  void forget(base::Qpn queue_pair);

 private:
  struct Window {
    ibv_mw_type type = IBV_MW_TYPE_1;
    uint32_t domain = 0;
    uint32_t region = 0;  // index of the region it is bound to; 0: none
    base::Qpn queue_pair;
  };
  // All with the regions' mutex held.
  [[nodiscard]] engine::Verdict check(const WindowBinding& wanted, const WindowUser& user) const;
  [[nodiscard]] engine::Verdict check_region(const WindowBinding& wanted, uint32_t domain) const;
  [[nodiscard]] engine::Verdict check_invalid(uint32_t key, const WindowUser& user) const;
  void open(Window& window, const WindowBinding& wanted, const WindowUser& user);
  void detach(Window& window);

  void close(uint32_t index);  // without it: no access begins, and those that are on have ended

  const arena::ProcessArena& arena_;
  MemoryRegions& regions_;
  std::mutex changing_;                 // one bind or unbind at a time: they may wait
  std::map<uint32_t, Window> windows_;  // by index, under the regions' mutex
  std::atomic<uint32_t> bound_to_queue_pairs_ = 0;
};

}  // namespace verbena::verbs
