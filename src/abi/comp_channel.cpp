// Completion channels.
#include <fcntl.h>
#include <poll.h>

#include "abi/abi.hpp"
#include "abi/process_state.hpp"

namespace verbena::abi {
namespace {

base::Result<ibv_comp_channel*> create(ibv_context* context) {
  if (auto ok = Context::from(context).usable(); !ok) return std::unexpected(ok.error());
  auto channel = verbs::CompletionChannel::create();
  if (!channel) return std::unexpected(channel.error());
  auto* made = new Channel;
  made->ibv.context = context;
  made->ibv.fd = (*channel)->fd();
  made->channel = std::move(*channel);
  hold_context(Context::from(context));
  return &made->ibv;
}

base::Result<void> destroy(ibv_comp_channel* ibv) {
  Context& context = Context::from(ibv->context);
  {
    const std::lock_guard lock(state().mutex);
    if (ibv->refcnt != 0)
      return base::fail(EBUSY, "completion queues still use the channel: destroy them first");
  }
  delete &Channel::from(ibv);
  release_context(context);
  return {};
}

base::Result<void> get_event(ibv_comp_channel* ibv, ibv_cq** cq, void** cq_context) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  const auto taken = Channel::from(ibv).channel->take(
      [](void* queue) { ++Cq::from(static_cast<ibv_cq*>(queue)).events_handed_out; });
  if (!taken) return std::unexpected(taken.error());
  *cq = static_cast<ibv_cq*>(*taken);
  *cq_context = (*cq)->cq_context;
  return {};
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_comp_channel* vb_ibv_create_comp_channel(ibv_context* context) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::create(context); }));
}
VERBENA_SAME_PROTOTYPE(ibv_create_comp_channel);

VERBENA_ENTRY int vb_ibv_destroy_comp_channel(ibv_comp_channel* channel) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::destroy(channel); }));
}
VERBENA_SAME_PROTOTYPE(ibv_destroy_comp_channel);

// Not noexcept: programs end such threads by pthread_cancel(), which unwinds from the poll.
VERBENA_ENTRY int vb_ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  const int flags = ::fcntl(channel->fd, F_GETFL);
  pollfd ready{channel->fd, POLLIN, 0};
  if (flags >= 0 && (flags & O_NONBLOCK) == 0 && ::poll(&ready, 1, -1) < 0) return -1;
  return abi::minus_one(abi::guarded([&] { return abi::get_event(channel, cq, cq_context); }));
}
VERBENA_SAME_PROTOTYPE(ibv_get_cq_event);

VERBENA_ENTRY void vb_ibv_ack_cq_events(ibv_cq* cq, unsigned count) noexcept {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
VERBENA_SAME_PROTOTYPE(ibv_ack_cq_events);
