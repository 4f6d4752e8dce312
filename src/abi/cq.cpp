// Completion queues.
#include <fmt/format.h>

#include <algorithm>

#include "abi/abi.hpp"
#include "abi/cq.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"
#include "abi/refusals.hpp"
#include "abi/wait_acks.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

base::Result<void> check(ibv_context* context, const CqWish& wish) {
  if (wish.cqe == 0 || wish.cqe > static_cast<uint32_t>(verbs::kMaxCqe))
    return base::fail(EINVAL, fmt::format("a completion queue has 1 to {} entries, not {}", verbs::kMaxCqe,
                                          static_cast<int>(wish.cqe)));
  if (wish.vector >= static_cast<uint32_t>(context->num_comp_vectors))
    return base::fail(EINVAL, fmt::format("completion vectors are 0 to {}, not {}",
                                          context->num_comp_vectors - 1, static_cast<int>(wish.vector)));
  if (wish.channel != nullptr && !same_context(wish.channel->context, context))
    return base::fail(EINVAL, "the completion channel is of another context than the completion queue");
  return {};
}

}  // namespace

base::Result<Cq*> create_cq(ibv_context* context, const CqWish& wish) {
  Context& ours = Context::from(context);
  if (auto ok = ours.usable(); !ok) return std::unexpected(ok.error());
  if (auto ok = check(context, wish); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto made = std::make_unique<Cq>();
  ibv_comp_channel* channel = wish.channel;
  auto queue = verbs::CompletionQueue::create(
      (*data)->process(), {.cqe = static_cast<int>(wish.cqe),
                           .channel = channel != nullptr ? Channel::from(channel).channel.get() : nullptr,
                           .element = &made->ibv,
                           .events = &ours.open->events(),
                           .stamps = wish.stamps,
                           .ignores_overrun = wish.ignores_overrun,
                           .allocator = wish.parent.get()});
  if (!queue) return std::unexpected(queue.error());
  if (wish.domain != nullptr && !wish.domain->hold())
    return base::fail(EINVAL, "the parent domain was deallocated");
  made->domain = wish.domain;
  made->parent = wish.parent;
  made->queue = std::move(*queue);
  made->data = std::move(*data);
  made->ibv.context = context;
  made->ibv.channel = channel;
  made->ibv.cq_context = wish.cq_context;
  made->ibv.handle = made->queue->index();
  made->ibv.cqe = made->queue->cqe();
  pthread_mutex_init(&made->ibv.mutex, nullptr);
  pthread_cond_init(&made->ibv.cond, nullptr);
  if (channel != nullptr) {
    const std::lock_guard lock(state().mutex);
    ++channel->refcnt;
  }
  hold_context(ours);
  return made.release();
}

namespace {

base::Result<void> destroy(ibv_cq* ibv) {
  Context& context = Context::from(ibv->context);
  Cq& cq = Cq::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (cq.queue->users != 0)
    return base::fail(EBUSY,
                      fmt::format("{} queues still complete into this one: destroy their queue pairs first",
                                  cq.queue->users.load()));
  cq.queue->close();  // no event of it is handed out from here on
  context.open->events().forget(reinterpret_cast<uint64_t>(ibv));
  pthread_mutex_lock(&ibv->mutex);
  wait_for_acks(ibv->mutex, ibv->cond, ibv->comp_events_completed, cq.events_handed_out, "ibv_destroy_cq",
                "ibv_ack_cq_events");
  wait_for_acks(ibv->mutex, ibv->cond, ibv->async_events_completed, cq.async_events_handed_out,
                "ibv_destroy_cq", "ibv_ack_async_event");
  pthread_mutex_unlock(&ibv->mutex);
  if (ibv->channel != nullptr) {
    const std::lock_guard lock(state().mutex);
    --ibv->channel->refcnt;
  }
  pthread_cond_destroy(&ibv->cond);
  pthread_mutex_destroy(&ibv->mutex);
  const auto domain = cq.domain;
  delete &cq;
  if (domain != nullptr) domain->release();
  release_context(context);
  return {};
}

base::Result<void> resize(ibv_cq* ibv, int cqe) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  Cq& cq = Cq::from(ibv);
  if (auto resized = cq.queue->resize(cqe); !resized) return resized;
  ibv->cqe = cq.queue->cqe();
  return {};
}

}  // namespace

// The fast path: no guard, no errno. In the child of a fork() nothing of it is mapped, so that is looked at.
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions) noexcept {
  if (count <= 0) return 0;
  if (!Cq::from(cq).data->usable()) {
    (void)refused_as_stale(cq->context);
    return -1;
  }
  return Cq::from(cq).queue->poll(count, completions);
}

int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept {
  if (!Cq::from(cq).data->usable()) return refused_as_stale(cq->context);
  Cq::from(cq).queue->arm(solicited_only != 0);
  return 0;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_cq* vb_ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                       ibv_comp_channel* channel, int comp_vector) noexcept {
  const auto made = abi::guarded([&] {
    return abi::create_cq(context, {.cqe = static_cast<uint32_t>(std::max(cqe, 0)),
                                    .cq_context = cq_context,
                                    .channel = channel,
                                    .vector = static_cast<uint32_t>(comp_vector)});
  });
  return made ? &(*made)->ibv : abi::or_null(base::Result<ibv_cq*>(std::unexpected(made.error())));
}
VERBENA_SAME_PROTOTYPE(ibv_create_cq);

VERBENA_ENTRY int vb_ibv_destroy_cq(ibv_cq* cq) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::destroy(cq); }));
}
VERBENA_SAME_PROTOTYPE(ibv_destroy_cq);

VERBENA_ENTRY int vb_ibv_resize_cq(ibv_cq* cq, int cqe) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::resize(cq, cqe); }));
}
VERBENA_SAME_PROTOTYPE(ibv_resize_cq);
