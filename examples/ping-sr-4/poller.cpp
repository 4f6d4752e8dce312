#include "ping-sr-4/poller.hpp"

#include <fcntl.h>
#include <poll.h>

namespace examples {
namespace {

void make_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw Failure("fcntl", errno);
  trace("fcntl: fd {} doesn't block any more", fd);
}

}  // namespace

Poller::Poller() { make_non_blocking(channel()->fd); }

bool Poller::wait(int fd) {
  pollfd fds[2] = {{channel()->fd, POLLIN, 0}, {fd, POLLIN, 0}};
  while (::poll(fds, 2, -1) < 0)  // poll ignores negative descriptors
    if (errno != EINTR) throw Failure("poll", errno);
  if (fds[0].revents != 0) take_cm_events();
  return fds[1].revents != 0;
}

void Poller::take_cm_events() {
  while (auto event = take_cm_event(channel())) {
    if (event->type == RDMA_CM_EVENT_TIMEWAIT_EXIT) continue;
    if (event->type == RDMA_CM_EVENT_DISCONNECTED || event->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
      disconnected_ = reason_of(*event);
    events_.push_back(std::move(*event));
  }
}

CmEvent Poller::await(rdma_cm_event_type expected) {
  while (events_.empty()) wait(-1);
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  expect(event, expected);
  return event;
}

PolledCompletions::PolledCompletions(Poller& poller, const Queues& queues, PollCounts& counts)
    : poller_(poller),
      cq_(queues.cq.get()),
      counts_(counts),
      notifications_(queues.channel.get(), cq_, counts) {
  make_non_blocking(notifications_.fd());
}

ibv_wc PolledCompletions::next() {
  ibv_wc completion;
  bool announced = false;
  while (!poll_once(cq_, completion)) {
    announced ? ++counts_.second_empty : ++counts_.first_empty;
    if (poller_.disconnected_) throw Disconnected(*poller_.disconnected_);
    announced = poller_.wait(notifications_.fd()) && notifications_.take_and_rearm();
  }
  announced ? ++counts_.second_hits : ++counts_.first_hits;
  return completion;
}

}  // namespace examples
