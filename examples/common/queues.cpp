#include "common/queues.hpp"

namespace examples {

Queues::Queues(rdma_cm_id* id, const Options& options, Notify notify, ibv_qp_type type) {
  // The id knows its device since its address was resolved, or since it came with a connection request.
  pd.reset(check_new("ibv_alloc_pd", ibv_alloc_pd(id->verbs)));
  if (notify == Notify::kByChannel)
    channel.reset(check_new("ibv_create_comp_channel", ibv_create_comp_channel(id->verbs)));
  // A place for everything that can be outstanding: a completion queue that overflows is lost.
  const auto places = static_cast<int>(options.sq_depth + options.rq_depth);
  cq.reset(check_new("ibv_create_cq", ibv_create_cq(id->verbs, places, nullptr, channel.get(), 0)));

  ibv_qp_init_attr wanted = {};
  wanted.send_cq = cq.get();
  wanted.recv_cq = cq.get();
  wanted.cap = {.max_send_wr = options.sq_depth,
                .max_recv_wr = options.rq_depth,
                .max_send_sge = options.sges,
                .max_recv_sge = options.sges,
                .max_inline_data = 0};
  wanted.qp_type = type;
  wanted.sq_sig_all = 0;
  check("rdma_create_qp", rdma_create_qp(id, pd.get(), &wanted));
  owner.reset(id);
  trace("rdma_create_qp: number {:#x}, send queue {} x {}, receive queue {} x {}", id->qp->qp_num,
        wanted.cap.max_send_wr, wanted.cap.max_send_sge, wanted.cap.max_recv_wr, wanted.cap.max_recv_sge);
}

}  // namespace examples
