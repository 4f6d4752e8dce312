// Queue pairs.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"
#include "abi/wait_acks.hpp"

namespace verbena::abi {
namespace {

base::Result<void> check(const ibv_pd& pd, const ibv_qp_init_attr& attr) {
  switch (attr.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
      break;
    case IBV_QPT_RAW_PACKET:
      return base::fail(EOPNOTSUPP,
                        "raw packet queue pairs aren't there: the device has no Ethernet of its own");
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return base::fail(EOPNOTSUPP, "XRC queue pairs aren't there yet");
    default:
      return base::fail(EINVAL,
                        fmt::format("{} is no type of queue pair: use IBV_QPT_RC, IBV_QPT_UC or IBV_QPT_UD",
                                    static_cast<int>(attr.qp_type)));
  }
  if (attr.srq != nullptr && attr.srq->context != pd.context)
    return base::fail(EINVAL, "the shared receive queue is of another context than the protection domain");
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr)
    return base::fail(EINVAL, "a queue pair needs a completion queue for its sends and one for its receives");
  return {};
}

base::Result<ibv_qp*> create(ibv_pd* pd, ibv_qp_init_attr* attr) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  if (auto ok = check(*pd, *attr); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  auto made = std::make_unique<Qp>();
  auto queue_pair = verbs::QueuePair::create(
      (*data)->process(), {.domain = domain,
                           .send_cq = Cq::from(attr->send_cq).queue,
                           .recv_cq = Cq::from(attr->recv_cq).queue,
                           .type = attr->qp_type,
                           .caps = attr->cap,
                           .signal_all = attr->sq_sig_all != 0,
                           .paths = std::make_shared<client::DevicePaths>(*data, *context.open),
                           .events = &context.open->events(),
                           .element = &made->ibv,
                           .srq = attr->srq != nullptr ? Srq::from(attr->srq).queue : nullptr});
  if (!queue_pair) {
    domain->release();
    return std::unexpected(queue_pair.error());
  }
  made->queue_pair = std::move(*queue_pair);
  made->data = std::move(*data);
  attr->cap = made->queue_pair->caps();
  ibv_qp& ibv = made->ibv;
  ibv.context = pd->context;
  ibv.qp_context = attr->qp_context;
  ibv.pd = pd;
  ibv.send_cq = attr->send_cq;
  ibv.recv_cq = attr->recv_cq;
  ibv.srq = attr->srq;
  ibv.qp_num = made->queue_pair->number().value;
  ibv.handle = ibv.qp_num & 0xffff;
  ibv.state = IBV_QPS_RESET;
  ibv.qp_type = attr->qp_type;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  hold_context(context);
  return &made.release()->ibv;
}

base::Result<void> destroy(ibv_qp* ibv) {
  Context& context = Context::from(ibv->context);
  Qp& qp = Qp::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (ibv->qp_type == IBV_QPT_UD) qp.data->detach_all(qp.queue_pair->number());
  qp.queue_pair->destroy();
  context.open->events().forget(reinterpret_cast<uint64_t>(ibv));
  pthread_mutex_lock(&ibv->mutex);
  wait_for_acks(ibv->mutex, ibv->cond, ibv->events_completed, qp.async_events_handed_out);
  pthread_mutex_unlock(&ibv->mutex);
  pthread_cond_destroy(&ibv->cond);
  pthread_mutex_destroy(&ibv->mutex);
  auto domain = qp.queue_pair->config().domain;
  delete &qp;
  domain->release();
  release_context(context);
  return {};
}

base::Result<void> modify(ibv_qp* ibv, const ibv_qp_attr* attr, int mask) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  auto& queue_pair = *Qp::from(ibv).queue_pair;
  auto done = queue_pair.modify(*attr, mask);
  ibv->state = queue_pair.state();
  return done;
}

base::Result<void> query(ibv_qp* ibv, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  auto& queue_pair = *Qp::from(ibv).queue_pair;
  queue_pair.query(*attr);
  ibv->state = attr->qp_state;
  *init = {.qp_context = ibv->qp_context,
           .send_cq = ibv->send_cq,
           .recv_cq = ibv->recv_cq,
           .srq = ibv->srq,
           .cap = queue_pair.caps(),
           .qp_type = ibv->qp_type,
           .sq_sig_all = queue_pair.signal_all() ? 1 : 0};
  return {};
}

template <typename Request>
int refuse_stale(Request* requests, Request** bad) {
  if (bad != nullptr) *bad = requests;
  return EIO;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) noexcept {
  if (!Qp::from(qp).data->usable()) return refuse_stale(requests, bad);
  return Qp::from(qp).queue_pair->post_send(requests, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) noexcept {
  if (!Qp::from(qp).data->usable()) return refuse_stale(requests, bad);
  return Qp::from(qp).queue_pair->post_recv(requests, bad);
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_qp* vb_ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::create(pd, attr); }));
}
VERBENA_SAME_PROTOTYPE(ibv_create_qp);

VERBENA_ENTRY int vb_ibv_destroy_qp(ibv_qp* qp) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::destroy(qp); }));
}
VERBENA_SAME_PROTOTYPE(ibv_destroy_qp);

VERBENA_ENTRY int vb_ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::modify(qp, attr, mask); }));
}
VERBENA_SAME_PROTOTYPE(ibv_modify_qp);

VERBENA_ENTRY int vb_ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::query(qp, attr, init); }));
}
VERBENA_SAME_PROTOTYPE(ibv_query_qp);
