// A connection's two paths, and what becomes of them.
#pragma once

#include <atomic>
#include <thread>

#include "rc-example/endpoint.hpp"

namespace examples {

/// The other port of our device, and our address there.
struct OtherPort {
  OtherPort(const Place& place, uint32_t number);
  uint32_t number;
  ibv_port_attr port;
  ibv_gid gid;
};

/// Loads the path between our other port and the peer's as the connection's alternate one, and has the device
/// watch it: REARM. Once the peer has done the same, and said so by its packets, the device makes it ARMED.
void load_alternate_path(ibv_qp* qp, const OtherPort& own, const Card& peer_there);

/// MIGRATED: to the alternate path, though nothing is wrong with the first.
void migrate(ibv_qp* qp);

struct PathState {
  ibv_mig_state state;
  unsigned port;  ///< of the path in use
};
[[nodiscard]] PathState path_of(ibv_qp* qp);
[[nodiscard]] const char* name_of(ibv_mig_state state);

/// Prints the device's asynchronous events, on a thread of its own, until it is destroyed.
class EventWatch {
 public:
  EventWatch(ibv_context* context, const char* name);
  ~EventWatch();
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

 private:
  void watch();

  ibv_context* context_;
  const char* name_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace examples
