// The operation slots of a context. The public header's inline functions call most of them unchecked, so none
// is NULL.
#include "abi/entries.hpp"
#include "abi/objects.hpp"

namespace verbena::abi {
namespace {

constexpr char kOld[] = "this slot of a context's operations is for libraries of long ago";
constexpr char kFlows[] =
    "ibv_create_flow, flow actions and counters aren't there: they are about raw packets, and the device has "
    "no "
    "Ethernet of its own";
constexpr char kWorkQueues[] =
    "ibv_create_wq and ibv_create_rwq_ind_table aren't there: they spread raw packets, and the device has no "
    "Ethernet of its own";
constexpr char kTags[] = "ibv_post_srq_ops: shared receive queues that match tags aren't there";

// Refuses by the convention that the slot's own type tells: an errno value, NULL with errno, or nothing.
template <const char* kWhy, typename Return, typename... Arguments>
Return refuse(Arguments...) noexcept {
  base::explain(std::string_view(kWhy));
  if constexpr (std::is_pointer_v<Return>) {
    errno = EOPNOTSUPP;
    return nullptr;
  } else if constexpr (!std::is_void_v<Return>) {
    return EOPNOTSUPP;
  }
}

template <const char* kWhy, typename Return, typename... Arguments>
void refuse_by(Return (*&slot)(Arguments...)) {
  slot = refuse<kWhy, Return, Arguments...>;
}

template <const char* kWhy>
void refuse_all(auto&... slots) {
  (refuse_by<kWhy>(slots), ...);
}

void fill_basic(ibv_context_ops& ops) {
  refuse_all<kOld>(ops._compat_alloc_pd, ops._compat_dealloc_pd, ops._compat_reg_mr, ops._compat_rereg_mr,
                   ops._compat_dereg_mr, ops._compat_create_cq, ops._compat_cq_event, ops._compat_resize_cq,
                   ops._compat_destroy_cq, ops._compat_create_srq, ops._compat_modify_srq,
                   ops._compat_query_srq, ops._compat_destroy_srq, ops._compat_create_qp,
                   ops._compat_query_qp, ops._compat_modify_qp, ops._compat_destroy_qp, ops._compat_create_ah,
                   ops._compat_destroy_ah, ops._compat_attach_mcast, ops._compat_detach_mcast,
                   ops._compat_async_event);
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
  ops._compat_query_device = vb_ibv_query_device;
  ops._compat_query_port = vb_ibv_query_port;
}

void fill_extended(verbs_context& ops) {
  refuse_all<kFlows>(ops.read_counters, ops.attach_counters_point_flow, ops.create_counters,
                     ops.destroy_counters, ops.modify_flow_action_esp, ops.destroy_flow_action,
                     ops.create_flow_action_esp, ops.ibv_destroy_flow, ops.ibv_create_flow);
  refuse_all<kWorkQueues>(ops.destroy_rwq_ind_table, ops.create_rwq_ind_table, ops.destroy_wq, ops.modify_wq,
                          ops.create_wq);
  refuse_all<kTags>(ops.post_srq_ops);
  refuse_all<kOld>(ops.ABI_placeholder2, ops.ABI_placeholder1);
  ops.open_qp = open_qp;
  ops.open_xrcd = open_xrcd;
  ops.close_xrcd = close_xrcd;
  ops.advise_mr = advise_mr;
  ops.alloc_null_mr = alloc_null_mr;
  ops.reg_dm_mr = reg_dm_mr;
  ops.alloc_dm = alloc_dm;
  ops.free_dm = free_dm;
  ops.query_port = query_port;
  ops.query_device_ex = query_device_ex;
  ops.query_rt_values = query_rt_values;
  ops.create_srq_ex = create_srq_ex;
  ops.get_srq_num = get_srq_num;
  ops.create_cq_ex = create_cq_ex;
  ops.modify_cq = modify_cq;
  ops.create_qp_ex = create_qp_ex;
  ops.modify_qp_rate_limit = modify_qp_rate_limit;
  ops.alloc_td = alloc_td;
  ops.dealloc_td = dealloc_td;
  ops.alloc_parent_domain = alloc_parent_domain;
}

}  // namespace

void fill_operations(verbs_context& verbs) {
  fill_basic(verbs.context.ops);
  fill_extended(verbs);
}

}  // namespace verbena::abi
