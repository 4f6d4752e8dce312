// Owners of the objects that verbs hand out. They are destroyed in the reverse order of their declaration,
// which is the order that RDMA wants: what depends on something goes before it.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

#include "common/trace.hpp"

namespace examples {

struct DestroyEventChannel {
  void operator()(rdma_event_channel* channel) const {
    rdma_destroy_event_channel(channel);
    trace("rdma_destroy_event_channel: done");
  }
};
struct DestroyId {
  void operator()(rdma_cm_id* id) const { check_in_teardown("rdma_destroy_id", rdma_destroy_id(id)); }
};
struct DestroyQp {
  void operator()(rdma_cm_id* id) const {
    rdma_destroy_qp(id);
    trace("rdma_destroy_qp: done");
  }
};
struct DeallocPd {
  void operator()(ibv_pd* pd) const { check_in_teardown("ibv_dealloc_pd", ibv_dealloc_pd(pd)); }
};
struct DestroyCompChannel {
  void operator()(ibv_comp_channel* channel) const {
    check_in_teardown("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel));
  }
};
struct DestroyCq {
  void operator()(ibv_cq* cq) const { check_in_teardown("ibv_destroy_cq", ibv_destroy_cq(cq)); }
};
struct DeregMr {
  void operator()(ibv_mr* mr) const { check_in_teardown("ibv_dereg_mr", ibv_dereg_mr(mr)); }
};
struct DestroyAh {
  void operator()(ibv_ah* ah) const { check_in_teardown("ibv_destroy_ah", ibv_destroy_ah(ah)); }
};

using EventChannel = std::unique_ptr<rdma_event_channel, DestroyEventChannel>;
using CmId = std::unique_ptr<rdma_cm_id, DestroyId>;
/// The queue pair of an id; it goes before the id does.
using CmQp = std::unique_ptr<rdma_cm_id, DestroyQp>;
using Pd = std::unique_ptr<ibv_pd, DeallocPd>;
using CompChannel = std::unique_ptr<ibv_comp_channel, DestroyCompChannel>;
using Cq = std::unique_ptr<ibv_cq, DestroyCq>;
using Mr = std::unique_ptr<ibv_mr, DeregMr>;
using Ah = std::unique_ptr<ibv_ah, DestroyAh>;

[[nodiscard]] inline EventChannel create_event_channel() {
  return EventChannel(check_new("rdma_create_event_channel", rdma_create_event_channel()));
}

/// With a channel the calls on the id are asynchronous and their results come as events on it; with nullptr
/// the id gets a channel of its own and its calls block until they are done.
[[nodiscard]] inline CmId create_id(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP) {
  rdma_cm_id* id = nullptr;
  check("rdma_create_id", rdma_create_id(channel, &id, nullptr, space));
  return CmId(id);
}

}  // namespace examples
