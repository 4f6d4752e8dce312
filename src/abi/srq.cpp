// Shared receive queues.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"
#include "abi/refusals.hpp"
#include "abi/wait_acks.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::abi {
namespace {

// What an XRC queue has besides.
struct Xrc {
  Xrcd* domain = nullptr;
  Cq* cq = nullptr;
};

// The keeper can deliver into it, and knows whose it is.
base::Result<void> join_domain(verbs::SharedReceiveQueue& queue, Xrcd& domain) {
  const auto keeper = domain.data->meet(domain.keeper);
  if (!keeper) return std::unexpected(keeper.error());
  if (auto made = queue.admit_keeper((*keeper)->slot(), (*keeper)->epoch()); !made) return made;
  return domain.link->serve(domain.id, queue.number());
}

base::Result<ibv_srq*> create(ibv_pd* pd, ibv_srq_init_attr* attr, Xrc xrc = {}) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  auto made = std::make_unique<Srq>();
  // srq_limit isn't looked at: ibv_modify_srq arms it (ibv_create_srq(3)).
  auto queue = verbs::SharedReceiveQueue::create((*data)->process(),
                                                 {.domain = domain,
                                                  .max_wr = attr->attr.max_wr,
                                                  .max_sge = attr->attr.max_sge,
                                                  .events = &context.open->events(),
                                                  .element = &made->ibv,
                                                  .cq = xrc.cq != nullptr ? xrc.cq->queue : nullptr,
                                                  .xrcd = xrc.domain != nullptr ? xrc.domain->id : 0});
  if (queue && xrc.domain != nullptr)
    if (auto joined = join_domain(**queue, *xrc.domain); !joined) queue = std::unexpected(joined.error());
  if (!queue) {
    domain->release();
    return std::unexpected(queue.error());
  }
  made->queue = std::move(*queue);
  made->data = std::move(*data);
  made->xrcd = xrc.domain;
  if (xrc.domain != nullptr) ++xrc.domain->users;
  const ibv_srq_attr actual = made->queue->query();
  attr->attr.max_wr = actual.max_wr;
  attr->attr.max_sge = actual.max_sge;
  ibv_srq& ibv = made->ibv;
  ibv.context = pd->context;
  ibv.srq_context = attr->srq_context;
  ibv.pd = pd;
  ibv.handle = made->queue->index();
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  hold_context(context);
  return &made.release()->ibv;
}

base::Result<ibv_srq*> create_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  constexpr uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                              IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  const auto type = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  if ((attr->comp_mask & ~kKnown) != 0)
    return base::fail(EINVAL, fmt::format("ibv_create_srq_ex: comp_mask 0x{:x} has bits that aren't known",
                                          attr->comp_mask));
  if (type == IBV_SRQT_TM)
    return base::fail(EOPNOTSUPP, "shared receive queues that match tags aren't there");
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC)
    return base::fail(EINVAL,
                      fmt::format("{} is no type of shared receive queue: use IBV_SRQT_BASIC or IBV_SRQT_XRC",
                                  static_cast<int>(type)));
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr || attr->pd->context != context)
    return base::fail(EINVAL, "ibv_create_srq_ex needs a protection domain of the same context");
  // The extended struct begins as the simple one.
  auto* simple = reinterpret_cast<ibv_srq_init_attr*>(attr);
  if (type == IBV_SRQT_BASIC) return create(attr->pd, simple);
  constexpr uint32_t kNeeded = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->xrcd == nullptr || attr->cq == nullptr ||
      attr->xrcd->context != context || attr->cq->context != context)
    return base::fail(EINVAL,
                      "an XRC shared receive queue needs an XRC domain and a completion queue of the same "
                      "context, with IBV_SRQ_INIT_ATTR_XRCD and IBV_SRQ_INIT_ATTR_CQ in comp_mask");
  return create(attr->pd, simple, {&Xrcd::from(attr->xrcd), &Cq::from(attr->cq)});
}

base::Result<void> destroy(ibv_srq* ibv) {
  Context& context = Context::from(ibv->context);
  Srq& srq = Srq::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (const size_t users = srq.queue->users(); users != 0)
    return base::fail(EBUSY, fmt::format("{} queue pairs still take receives from SRQ 0x{:06x}: destroy them "
                                         "first",
                                         users, srq.queue->number()));
  srq.queue->close();
  context.open->events().forget(reinterpret_cast<uint64_t>(ibv));
  pthread_mutex_lock(&ibv->mutex);
  wait_for_acks(ibv->mutex, ibv->cond, ibv->events_completed, srq.async_events_handed_out, "ibv_destroy_srq",
                "ibv_ack_async_event");
  pthread_mutex_unlock(&ibv->mutex);
  pthread_cond_destroy(&ibv->cond);
  pthread_mutex_destroy(&ibv->mutex);
  auto domain = srq.queue->config().domain;
  if (srq.xrcd != nullptr) --srq.xrcd->users;
  delete &srq;
  domain->release();
  release_context(context);
  return {};
}

base::Result<void> modify(ibv_srq* ibv, const ibv_srq_attr& attr, int mask) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  return Srq::from(ibv).queue->modify(attr, mask);
}

base::Result<void> query(ibv_srq* ibv, ibv_srq_attr& attr) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  attr = Srq::from(ibv).queue->query();
  return {};
}

}  // namespace

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) noexcept {
  if (!Srq::from(srq).data->usable()) {
    if (bad != nullptr) *bad = requests;
    return refused_as_stale(srq->context);
  }
  return Srq::from(srq).queue->post(requests, bad);
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept {
  return or_null(guarded([&] { return create_ex(context, attr); }));
}

int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept {
  *number = Srq::from(srq).queue->number();
  return 0;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_srq* vb_ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::create(pd, attr); }));
}
VERBENA_SAME_PROTOTYPE(ibv_create_srq);

VERBENA_ENTRY int vb_ibv_destroy_srq(ibv_srq* srq) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::destroy(srq); }));
}
VERBENA_SAME_PROTOTYPE(ibv_destroy_srq);

VERBENA_ENTRY int vb_ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::modify(srq, *attr, mask); }));
}
VERBENA_SAME_PROTOTYPE(ibv_modify_srq);

VERBENA_ENTRY int vb_ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::query(srq, *attr); }));
}
VERBENA_SAME_PROTOTYPE(ibv_query_srq);
