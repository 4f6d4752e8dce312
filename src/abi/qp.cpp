// Queue pairs.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"
#include "abi/qp.hpp"
#include "abi/refusals.hpp"
#include "abi/request_builder.hpp"
#include "abi/wait_acks.hpp"
#include "abi/xrc.hpp"

namespace verbena::abi {
namespace {

constexpr uint32_t kKnownMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                IBV_QP_INIT_ATTR_XRCD;

// What only ibv_create_qp_ex can ask for.
base::Result<void> check_extensions(const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & ~kKnownMask) != 0)
    return base::fail(EOPNOTSUPP, fmt::format("comp_mask 0x{:x}: receive-side scaling and indirection tables "
                                              "belong to raw packets, which aren't there",
                                              attr.comp_mask));
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr)
    return base::fail(EINVAL, "a queue pair needs a protection domain");
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0)
    return base::fail(EOPNOTSUPP,
                      fmt::format("create_flags 0x{:x}: none of them is there", attr.create_flags));
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0 && attr.max_tso_header != 0)
    return base::fail(EOPNOTSUPP, "segmentation of TCP belongs to raw packets, which aren't there");
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0)
    return check_operations(attr.qp_type, attr.send_ops_flags);
  return {};
}

base::Result<void> check(const ibv_qp_init_attr_ex& attr) {
  switch (attr.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
      break;
    case IBV_QPT_RAW_PACKET:
      return base::fail(EOPNOTSUPP,
                        "raw packet queue pairs aren't there: the device has no Ethernet of its own");
    default:
      return base::fail(
          EINVAL,
          fmt::format("{} is no type of queue pair: use IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND "
                      "or IBV_QPT_XRC_RECV",
                      static_cast<int>(attr.qp_type)));
  }
  if (attr.srq != nullptr && attr.pd != nullptr && !same_context(attr.srq->context, attr.pd->context))
    return base::fail(EINVAL, "the shared receive queue is of another context than the protection domain");
  // What comes for it names it by its number, in a header that only XRC has.
  if (attr.qp_type != IBV_QPT_XRC_SEND && attr.srq != nullptr && Srq::from(attr.srq).xrcd != nullptr)
    return base::fail(EINVAL,
                      "the shared receive queue is one of an XRC domain, which only XRC queue pairs reach; "
                      "create another one with ibv_create_srq");
  for (const ibv_cq* cq : {attr.send_cq, attr.qp_type == IBV_QPT_XRC_SEND ? nullptr : attr.recv_cq})
    if (cq != nullptr && attr.pd != nullptr && !same_context(cq->context, attr.pd->context))
      return base::fail(EINVAL, "a completion queue is of another context than the protection domain");
  if (attr.qp_type == IBV_QPT_XRC_SEND) {
    if (attr.send_cq == nullptr) return base::fail(EINVAL, "an XRC_SEND queue pair needs a completion queue");
    if (attr.srq != nullptr)
      return base::fail(EINVAL, "an XRC_SEND queue pair receives nothing, so it has no shared receive queue");
    return {};
  }
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr)
    return base::fail(EINVAL, "a queue pair needs a completion queue for its sends and one for its receives");
  return {};
}

}  // namespace

base::Result<Qp*> create_qp(ibv_context* ibv_context, ibv_qp_init_attr_ex& attr) {
  Context& context = Context::from(ibv_context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  if (attr.qp_type == IBV_QPT_XRC_RECV) return create_target(ibv_context, attr);
  if (auto ok = check(attr); !ok) return std::unexpected(ok.error());
  if (auto ok = check_extensions(attr); !ok) return std::unexpected(ok.error());
  ibv_pd* pd = attr.pd;
  const bool xrc = attr.qp_type == IBV_QPT_XRC_SEND;
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  auto made = std::make_unique<Qp>();
  auto queue_pair = verbs::QueuePair::create(
      (*data)->process(), {.domain = domain,
                           .send_cq = Cq::from(attr.send_cq).queue,
                           // An XRC_SEND queue pair completes no receives, so it has no queue for them.
                           .recv_cq = Cq::from(xrc ? attr.send_cq : attr.recv_cq).queue,
                           .type = attr.qp_type,
                           .caps = attr.cap,
                           .signal_all = attr.sq_sig_all != 0,
                           .paths = std::make_shared<client::DevicePaths>(*data, *context.open),
                           .events = &context.open->events(),
                           .element = &made->ibv,
                           .srq = attr.srq != nullptr ? Srq::from(attr.srq).queue : nullptr,
                           .allocator = Pd::from(pd).parent.get()});
  if (!queue_pair) {
    domain->release();
    return std::unexpected(queue_pair.error());
  }
  made->queue_pair = std::move(*queue_pair);
  made->data = std::move(*data);
  made->parent = Pd::from(pd).parent;
  attr.cap = made->queue_pair->caps();
  ibv_qp& ibv = made->ibv;
  ibv.context = ibv_context;
  ibv.qp_context = attr.qp_context;
  ibv.pd = pd;
  ibv.send_cq = attr.send_cq;
  ibv.recv_cq = attr.recv_cq;
  ibv.srq = attr.srq;
  ibv.qp_num = made->queue_pair->number().value;
  ibv.handle = ibv.qp_num & 0xffff;
  ibv.state = IBV_QPS_RESET;
  ibv.qp_type = attr.qp_type;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    made->builder = std::make_unique<RequestBuilder>(attr.cap.max_send_sge, attr.cap.max_inline_data);
    fill_builder_functions(made->ex);
  }
  hold_context(context);
  return made.release();
}

void end_events(Qp& qp) {
  ibv_qp& ibv = qp.ibv;
  Context::from(ibv.context).open->events().forget(reinterpret_cast<uint64_t>(&ibv));
  pthread_mutex_lock(&ibv.mutex);
  wait_for_acks(ibv.mutex, ibv.cond, ibv.events_completed, qp.async_events_handed_out, "ibv_destroy_qp",
                "ibv_ack_async_event");
  pthread_mutex_unlock(&ibv.mutex);
  pthread_cond_destroy(&ibv.cond);
  pthread_mutex_destroy(&ibv.mutex);
}

namespace {

base::Result<void> destroy(ibv_qp* ibv) {
  Context& context = Context::from(ibv->context);
  Qp& qp = Qp::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (qp.xrcd != nullptr) return destroy_target(ibv);
  if (ibv->qp_type == IBV_QPT_UD) qp.data->detach_all(qp.queue_pair->number());
  qp.queue_pair->destroy();
  end_events(qp);
  auto domain = qp.queue_pair->config().domain;
  delete &qp;
  domain->release();
  release_context(context);
  return {};
}

base::Result<void> modify(ibv_qp* ibv, const ibv_qp_attr* attr, int mask) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (Qp::from(ibv).xrcd != nullptr) return modify_target(ibv, *attr, mask);
  auto& queue_pair = *Qp::from(ibv).queue_pair;
  auto done = queue_pair.modify(*attr, mask);
  ibv->state = queue_pair.state();
  return done;
}

base::Result<void> query(ibv_qp* ibv, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (Qp::from(ibv).xrcd != nullptr) return query_target(ibv, *attr, *init);
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

// Null: a child of fork(), or an XRC target, which has no queues.
template <typename Request>
verbs::QueuePair* usable_queues(ibv_qp* ibv, Request* requests, Request** bad, int& error) {
  Qp& qp = Qp::from(ibv);
  if (qp.data->usable() && qp.queue_pair) [[likely]]
    return qp.queue_pair.get();
  if (bad != nullptr) *bad = requests;
  error = qp.queue_pair ? refused_as_stale(ibv->context) : EINVAL;
  if (!qp.queue_pair)
    base::explain(fmt::format("QP 0x{:06x} is an XRC target: it has no queues to post to", ibv->qp_num));
  return nullptr;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) noexcept {
  int error = 0;
  auto* queue_pair = usable_queues(qp, requests, bad, error);
  return queue_pair != nullptr ? queue_pair->post_send(requests, bad) : error;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept {
  const auto made = guarded([&] { return create_qp(context, *attr); });
  return made ? &(*made)->ibv : or_null(base::Result<ibv_qp*>(std::unexpected(made.error())));
}

int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) noexcept {
  int error = 0;
  auto* queue_pair = usable_queues(qp, requests, bad, error);
  return queue_pair != nullptr ? queue_pair->post_recv(requests, bad) : error;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_qp* vb_ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept {
  ibv_qp_init_attr_ex extended{.qp_context = attr->qp_context,
                               .send_cq = attr->send_cq,
                               .recv_cq = attr->recv_cq,
                               .srq = attr->srq,
                               .cap = attr->cap,
                               .qp_type = attr->qp_type,
                               .sq_sig_all = attr->sq_sig_all,
                               .comp_mask = IBV_QP_INIT_ATTR_PD,
                               .pd = pd};
  ibv_qp* made = abi::create_qp_ex(pd->context, &extended);
  attr->cap = extended.cap;
  return made;
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
