// RDMA CM's event channels, and taking events from them.
#include <sys/socket.h>
#include <unistd.h>

#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

base::Result<void> usable(const EventChannel& channel) {
  if (!channel.tie->current())
    return base::fail(EIO, "the event channel was created before fork(): a child has to create its own");
  return {};
}

base::Result<EventChannel*> create_channel() {
  if (auto opened = open_cm_devices(); !opened) return std::unexpected(opened.error());
  return make_channel();
}

base::Result<void> get_event(rdma_event_channel* channel, rdma_cm_event** event) {
  const auto taken = take_event(EventChannel::from(channel));
  if (!taken) return std::unexpected(taken.error());
  *event = *taken;
  return {};
}

}  // namespace

base::Result<EventChannel*> make_channel() {
  auto made = std::make_unique<EventChannel>();
  made->tie = client::CmTie::instance();
  auto channel = made->tie->open_channel();
  if (!channel) return std::unexpected(channel.error());
  made->channel = std::move(*channel);
  made->rdma.fd = made->channel->fd();
  return made.release();
}

void free_channel(EventChannel* channel) {
  if (channel->tie->current()) channel->tie->close_channel(channel->channel);
  channel->closed = true;
  if (channel->waiters == 0) {
    delete channel;
    return;
  }
  // Programs destroy the channel while a thread of theirs waits on it, and then exit. Left behind for that
  // one.
  channel->channel->close_program_end();
}

base::Result<rdma_cm_event*> take_event(EventChannel& channel) {
  if (auto ok = usable(channel); !ok) return std::unexpected(ok.error());
  for (;;) {
    const auto event = channel.channel->take();
    if (!event) return std::unexpected(event.error());
    if (rdma_cm_event* made = translate(*channel.tie, *event)) return made;
  }
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY rdma_event_channel* vb_rdma_create_event_channel() noexcept {
  auto* made = abi::or_null(abi::guarded([] { return abi::create_channel(); }));
  return made != nullptr ? &made->rdma : nullptr;
}
VERBENA_SAME_PROTOTYPE(rdma_create_event_channel);

VERBENA_ENTRY void vb_rdma_destroy_event_channel(rdma_event_channel* channel) noexcept {
  const abi::NoCancel no_cancel;
  if (channel != nullptr) abi::free_channel(&abi::EventChannel::from(channel));
}
VERBENA_SAME_PROTOTYPE(rdma_destroy_event_channel);

// Not noexcept: programs end their event threads by pthread_cancel(), which unwinds from the wait. So nothing
// here has a destructor; of a channel on which a wait was cancelled a descriptor is left when it ends.
VERBENA_ENTRY int vb_rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) {
    errno = EINVAL;
    return -1;
  }
  abi::EventChannel& ours = abi::EventChannel::from(channel);
  for (;;) {
    const int taken = abi::minus_one(abi::guarded([&] { return abi::get_event(channel, event); }));
    if (taken == 0 || errno != EAGAIN) return taken;
    // Waits, unless the program made its descriptor non-blocking; goes on after signals where the program
    // asked for that (SA_RESTART), as the kernel's call does.
    char first = 0;
    ++ours.waiters;
    const bool woken = ::recv(channel->fd, &first, sizeof first, MSG_PEEK) >= 0;
    --ours.waiters;
    if (!woken) return -1;
    if (ours.closed) {
      errno = EBADF;
      return -1;
    }
  }
}
VERBENA_SAME_PROTOTYPE(rdma_get_cm_event);
