#include "path-migration/paths.hpp"

#include <poll.h>

namespace examples {

OtherPort::OtherPort(const Place& place, uint32_t wanted) : number(wanted), port{}, gid{} {
  if (number < 1 || number > place.device.phys_port_cnt || number == place.choice.port)
    throw Failure(
        fmt::format("port {} isn't another one of the device's {}", number, place.device.phys_port_cnt));
  if ((place.device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) == 0)
    throw Failure("the device can't migrate paths: it lacks IBV_DEVICE_AUTO_PATH_MIG");
  const auto index = static_cast<uint8_t>(number);
  check("ibv_query_port", ibv_query_port(place.context.get(), index, &port));
  check("ibv_query_gid",
        ibv_query_gid(place.context.get(), index, static_cast<int>(place.choice.gid_index), &gid));
}

void load_alternate_path(ibv_qp* qp, const OtherPort& own, const Card& peer_there) {
  ibv_qp_attr attributes = {};
  attributes.alt_port_num = static_cast<uint8_t>(own.number);
  attributes.alt_pkey_index = 0;
  attributes.alt_timeout = 14;
  attributes.alt_ah_attr.port_num = static_cast<uint8_t>(own.number);
  attributes.alt_ah_attr.dlid = peer_there.lid;
  attributes.alt_ah_attr.is_global = 1;
  attributes.alt_ah_attr.grh.dgid = peer_there.gid;
  attributes.alt_ah_attr.grh.hop_limit = 64;
  attributes.path_mig_state = IBV_MIG_REARM;
  check("ibv_modify_qp, alternate path",
        ibv_modify_qp(qp, &attributes, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
}

void migrate(ibv_qp* qp) {
  ibv_qp_attr attributes = {};
  attributes.path_mig_state = IBV_MIG_MIGRATED;
  check("ibv_modify_qp, MIGRATED", ibv_modify_qp(qp, &attributes, IBV_QP_PATH_MIG_STATE));
}

PathState path_of(ibv_qp* qp) {
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr initial = {};
  if (const int error = ibv_query_qp(qp, &attributes, IBV_QP_PATH_MIG_STATE | IBV_QP_PORT, &initial);
      error != 0)
    throw Failure("ibv_query_qp", error);
  return {attributes.path_mig_state, attributes.port_num};
}

const char* name_of(ibv_mig_state state) {
  switch (state) {
    case IBV_MIG_MIGRATED:
      return "MIGRATED";
    case IBV_MIG_REARM:
      return "REARM";
    case IBV_MIG_ARMED:
      return "ARMED";
  }
  return "unknown";
}

EventWatch::EventWatch(ibv_context* context, const char* name)
    : context_(context), name_(name), thread_([this] { watch(); }) {}

EventWatch::~EventWatch() {
  ends_ = true;
  thread_.join();
}

void EventWatch::watch() {
  while (!ends_) {
    pollfd ready = {context_->async_fd, POLLIN, 0};
    if (::poll(&ready, 1, 50) != 1) continue;
    ibv_async_event event = {};
    if (ibv_get_async_event(context_, &event) != 0) return;
    if (event.event_type == IBV_EVENT_PATH_MIG || event.event_type == IBV_EVENT_PATH_MIG_ERR)
      fmt::print("{}: event: {}; the path is that of port {}\n", name_, ibv_event_type_str(event.event_type),
                 path_of(event.element.qp).port);
    else
      fmt::print("{}: event: {}\n", name_, ibv_event_type_str(event.event_type));
    std::fflush(stdout);
    ibv_ack_async_event(&event);
  }
}

}  // namespace examples
