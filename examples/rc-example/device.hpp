// A device chosen by hand, and what a queue pair on it needs.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "common/handles.hpp"
#include "common/options.hpp"

namespace examples {

struct CloseDevice {
  void operator()(ibv_context* context) const {
    check_in_teardown("ibv_close_device", ibv_close_device(context));
  }
};
struct DestroyPlainQp {
  void operator()(ibv_qp* qp) const { check_in_teardown("ibv_destroy_qp", ibv_destroy_qp(qp)); }
};
using Context = std::unique_ptr<ibv_context, CloseDevice>;
using PlainQp = std::unique_ptr<ibv_qp, DestroyPlainQp>;

/// Which device, port and address to use.
struct Choice {
  std::string device;      ///< name, or GUID as ibv_devices prints it; empty: the first
  uint32_t port = 1;       ///< of the device, counted from 1
  uint32_t gid_index = 0;  ///< of the port's addresses; on RoCE it decides about version and network
};

/// Opens the device that `name_or_guid` says.
[[nodiscard]] Context open_device(const std::string& name_or_guid);

/// What the queue pairs of a chosen port share.
struct Place {
  explicit Place(const Choice& choice);

  Choice choice;
  Context context;
  ibv_device_attr device;  ///< what the device can do
  ibv_port_attr port;      ///< state, MTU, LID
  ibv_gid gid;             ///< our address
};

}  // namespace examples
