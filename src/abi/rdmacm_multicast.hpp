// A multicast group that an id has joined.
#pragma once

#include <infiniband/verbs.h>

#include "client/cm_multicast.hpp"

namespace verbena::abi {

struct Membership {
  ipc::CmAddress group;
  ibv_gid mgid{};
  void* context = nullptr;
  net::GroupMembership join;  // the socket's; empty where the id only sends
  bool attached = false;      // the id's queue pair was attached by us
};

}  // namespace verbena::abi
