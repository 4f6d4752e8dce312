// What moves this process's data: its objects, its neighbours, and the work that the helper thread does for
// them while nobody polls. One per attachment to the host.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "client/attendance.hpp"
#include "client/devices.hpp"
#include "client/helper_work.hpp"
#include "client/xrc_link.hpp"
#include "local/exchange.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/xrc_responder.hpp"
#include "wire/port.hpp"

namespace verbena::client {

class HostTie;

class DataPath final : public HelperWork, public std::enable_shared_from_this<DataPath> {
 public:
  // Of this process, which has a device open. EIO: its slot was lost.
  [[nodiscard]] static base::Result<std::shared_ptr<DataPath>> current();
  ~DataPath() override;

  [[nodiscard]] verbs::Process& process() { return process_; }
  // False in a child of fork(), where nothing of it is mapped.
  [[nodiscard]] bool usable() const;
  // The neighbour in a slot, introduced if need be. ESRCH: nobody; EPERM: one that shares no memory with us.
  [[nodiscard]] base::Result<std::shared_ptr<local::Neighbour>> meet(base::Slot slot) {
    return meet(slot, Patience::kLong);
  }
  // For datagrams: null, if it takes too long or they have to go by the network.
  [[nodiscard]] std::shared_ptr<local::Neighbour> meet_for_datagrams(base::Slot slot);
  [[nodiscard]] const std::shared_ptr<local::Exchange>& exchange() const { return exchange_; }
  // The way to other hosts, made when it is first needed. EADDRINUSE: this host's port is somebody else's.
  [[nodiscard]] base::Result<std::shared_ptr<wire::Port>> port();
  // The keeper of XRC domains; made when it is first needed, and anew where it has ended.
  [[nodiscard]] base::Result<std::shared_ptr<XrcLink>> xrc();
  // A port lost its link: connections of that device's that are armed for it migrate. Any thread.
  static void on_port_down(const verbs::EventQueue& device, unsigned port);
  // The program ends: what can't wait for its next poll leaves now.
  static void on_exit();
  // What this process has counted under that name so far; shown a moment later.
  [[nodiscard]] static uint64_t counted(std::string_view name);
  // A queue pair is being destroyed: no group reaches it any more.
  void detach_all(base::Qpn queue_pair);

  base::Instant help(base::Instant now) override;
  void watch(std::vector<pollfd>& into) override;
  void on_events(std::span<const pollfd> watched) override;
  void on_stray(const net::Received& received) override;

 private:
  enum class Patience : uint8_t { kLong, kShort };
  [[nodiscard]] base::Result<std::shared_ptr<local::Neighbour>> meet(base::Slot slot, Patience patience);
  DataPath(arena::ProcessArena arena, base::Slot slot, uint32_t epoch);
  void wake_own_helper();
  void read_letters(bool alone);
  bool look_at_bells();
  [[nodiscard]] bool left_behind();
  bool work_on();
  void lose(const std::shared_ptr<local::Neighbour>& neighbour);
  [[nodiscard]] base::Instant wire_due();
  [[nodiscard]] base::Duration stand_by(base::Instant now);
  [[nodiscard]] base::Instant pause(base::Duration least);

  verbs::Process process_;
  uint32_t epoch_;
  std::shared_ptr<HostTie> tie_;
  std::shared_ptr<local::Exchange> exchange_;
  std::mutex meeting_;
  std::shared_ptr<wire::Port> port_;  // once made, it stays
  std::mutex xrc_mutex_;
  std::shared_ptr<XrcLink> xrc_;
  // The helper thread's own.
  std::vector<std::shared_ptr<local::Neighbour>> watched_;
  Attendance attendance_;
  bool relied_ = false;  // on the program, in the last pause
};

// What an address handle of that device holds. EINVAL: it names no port or GID of it.
[[nodiscard]] base::Result<verbs::AddressVector> resolve_address(const OpenDevice& device,
                                                                 const ibv_ah_attr& attributes);

// How queue pairs of one open device find their peers.
class DevicePaths final : public verbs::PathMaker {
 public:
  DevicePaths(std::shared_ptr<DataPath> data, const OpenDevice& device)
      : data_(std::move(data)), device_(device) {}
  [[nodiscard]] base::Result<verbs::PathPlan> plan(const verbs::PathWish& wish) override;
  [[nodiscard]] std::vector<verbs::PortFacts> ports() override;
  [[nodiscard]] base::Result<verbs::AddressVector> resolve(const ibv_ah_attr& attributes) override {
    return resolve_address(device_, attributes);
  }

 private:
  [[nodiscard]] verbs::PathPlan plan_local(std::shared_ptr<local::Neighbour> peer,
                                           const verbs::PathWish& wish, base::Qpn target,
                                           const arena::GidRecord& gid);
  [[nodiscard]] base::Result<verbs::PathPlan> plan_wire(const verbs::PathWish& wish,
                                                        const arena::GidRecord& gid, bool this_host);
  [[nodiscard]] base::Result<verbs::PathPlan> plan_datagrams(const verbs::PathWish& wish,
                                                             const arena::PortRecord& record);
  [[nodiscard]] base::Result<std::shared_ptr<wire::Port>> network(base::Qpn own);
  [[nodiscard]] verbs::PathPlan plan_from_self();
  [[nodiscard]] std::unique_ptr<verbs::LaneFinder> lanes_of(base::Qpn own) const;

  std::shared_ptr<DataPath> data_;
  const OpenDevice& device_;
};

// ibv_attach_mcast and ibv_detach_mcast, on the interfaces of the device. EINVAL: attached already, or not.
[[nodiscard]] base::Result<void> attach_multicast(DataPath& data, const OpenDevice& device,
                                                  base::Qpn queue_pair, const ibv_gid& group);
[[nodiscard]] base::Result<void> detach_multicast(DataPath& data, base::Qpn queue_pair, const ibv_gid& group);

}  // namespace verbena::client
