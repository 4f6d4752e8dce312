// The helper thread's part of HostTie: waiting for the agent, the wakes and the data path's work, all signals
// blocked; coming back after the agent's death; leaving after the last device was closed.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include "arena/process_segments.hpp"
#include "base/explain.hpp"
#include "base/random.hpp"
#include "client/host_tie.hpp"
#include "ipc/channel.hpp"

namespace verbena::client {
namespace {

// Programs open and close devices in a row while they look around: the slot stays a moment longer.
constexpr base::Duration kLinger = base::seconds(1);
constexpr base::Duration kWithoutWakes = base::milliseconds(100);
// How long our descriptors may be gone before it is noticed.
constexpr base::Duration kLookAround = base::seconds(5);

// Where things stand in polled_; what the work watches comes after.
constexpr size_t kAsked = 0;
constexpr size_t kWoken = 1;
constexpr size_t kWatched = 2;

void sleep_on(std::vector<pollfd>& polled, base::Instant until) {
  timespec left{};
  if (until != kWhenWoken) {
    const auto ns = std::max<int64_t>((until - base::now()).count(), 0);
    left = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  }
  if (::ppoll(polled.data(), polled.size(), until != kWhenWoken ? &left : nullptr, nullptr) <= 0)
    for (auto& one : polled) one.revents = 0;
}

// The helper thread does little and should do it soon, though the program's threads spin on every core. From
// Linux 6.12 on a short slice has a waking thread run before those with longer ones; it takes no larger share
// by that.
void ask_for_short_slices() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 ||
      attributes.policy != SCHED_OTHER)
    return;
  attributes.runtime = 100'000;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
  (void)::prctl(PR_SET_TIMERSLACK, 1'000);  // 50 us by default, as long as many a timer here
}

}  // namespace

base::Result<void> HostTie::start_helper() {
  {
    const std::lock_guard lock(mutex_);
    idle_since_ = base::now();
    if (helper_runs_) return {};
    if (auto made = renew_wake(); !made) return made;
    helper_runs_ = true;
  }
  // The program's signals are its own threads' business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  base::Result<void> started;
  try {
    std::thread([self = instance()] {
      ::pthread_setname_np(::pthread_self(), "verbena");
      ask_for_short_slices();
      self->help();
    }).detach();
  } catch (const std::system_error& error) {
    const std::lock_guard lock(mutex_);
    helper_runs_ = false;
    started =
        base::fail(error.code().value(), "the helper thread can't be started: " + std::string(error.what()));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

base::Result<void> HostTie::renew_wake() {
  wake_ = {};  // peers that hold the old one see it hang up
  wake_pending_ = false;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return base::fail_errno("creating a socketpair");
  wake_.wake = base::GuardedFd(base::UniqueFd(ends[0]));
  wake_.woken = base::GuardedFd(base::UniqueFd(ends[1]));
  return {};
}

void HostTie::wake() const {
  const char token = 1;
  // Not write(): the program may have closed the other end alone, and that must not be a SIGPIPE to it.
  if (const int fd = wake_.wake.get(); fd >= 0) ::send(fd, &token, sizeof token, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void HostTie::wake_helper() {
  if (wake_pending_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  wake();
}

void HostTie::drain_wakes() {
  const std::lock_guard lock(mutex_);
  char tokens[512];
  const int fd = wake_.woken.get();
  // An end only comes if some peer shut the socket down, for we hold the other end ourselves: without a new
  // pair there would be no sleep any more. For peers this process is gone then.
  if (fd >= 0 && ::recv(fd, tokens, sizeof tokens, MSG_DONTWAIT) == 0) (void)renew_wake();
  // First this, then help(): who finds it set has left its work where help() will find it.
  wake_pending_ = false;
}

void HostTie::set_work(std::shared_ptr<HelperWork> work) {
  const std::lock_guard lock(mutex_);
  work_.swap(work);
  wake();
}

void HostTie::help() {
  for (;;) {
    int socket = -1;
    base::Instant until = kWhenWoken;
    bool disconnected = false;
    {
      const std::lock_guard lock(mutex_);
      // Without a slot there is nobody to come back to: only the end of the last user is waited for.
      if (!lost_) socket = connection_.socket.get();
      if (users_ == 0) until = base::now() + kLinger;
      disconnected = attached_ && !lost_ && socket < 0;
    }
    if (disconnected)
      reconnect();
    else if (doze(socket, until))
      on_message();
    if (detach_if_idle()) return;
  }
}

bool HostTie::doze(int fd, base::Instant until) {
  std::shared_ptr<HelperWork> work;
  polled_.assign({{fd, POLLIN, 0}, {-1, POLLIN, 0}});
  {
    const std::lock_guard lock(mutex_);
    work = work_;
    polled_[kWoken].fd = wake_.woken.get();
  }
  // The program closed it: then nobody can wake us. It may do so while we sleep, which wakes nobody either.
  until = std::min(until, base::now() + (polled_[kWoken].fd < 0 ? kWithoutWakes : kLookAround));
  if (work) {
    const std::lock_guard working(working_mutex_);
    until = std::min(until, work->help(base::now()));
    work->watch(polled_);
  }
  sleep_on(polled_, until);
  if (polled_[kWoken].revents != 0) drain_wakes();
  const auto watched = std::span<const pollfd>(polled_).subspan(kWatched);
  if (work && std::ranges::any_of(watched, [](const pollfd& one) { return one.revents != 0; })) {
    const std::lock_guard working(working_mutex_);
    work->on_events(watched);
  }
  return polled_[kAsked].revents != 0;
}

void HostTie::doze_on(int fd, base::Instant until) {
  while (base::now() < until && !doze(fd, until)) {
  }
}

bool HostTie::detach_if_idle() {
  // attach_mutex_ before mutex_, as in acquire(): nobody attaches while we decide to leave.
  const std::unique_lock attaching(attach_mutex_, std::try_to_lock);
  if (!attaching) return false;
  Connection leaving;
  arena::Mapping tables;
  arena::Mapping rings;
  std::shared_ptr<HelperWork> work;
  {
    const std::lock_guard lock(mutex_);
    if (users_ > 0 || base::now() - idle_since_ < kLinger) return false;
    leaving = std::move(connection_);
    tables = std::move(tables_);
    rings = std::move(rings_);
    work = std::move(work_);
    drop_attachment();
    wake_ = {};
    helper_runs_ = false;
  }
  work.reset();  // before the segments, which it knows
  const int socket = leaving.socket.get();
  if (socket >= 0 && ipc::send(socket, ipc::Detach{}))
    (void)ipc::receive_until(socket, base::now() + base::seconds(1));
  return true;
}

void HostTie::on_message() {
  int socket = -1;
  {
    const std::lock_guard lock(mutex_);
    socket = connection_.socket.get();
  }
  auto message = ipc::receive(socket);
  if (!message) {
    if (message.error().code == EAGAIN) return;
    const std::lock_guard lock(mutex_);
    connection_.socket.reset();  // help() reconnects
    return;
  }
  switch (message->kind) {
    case ipc::Kind::kDevicesChanged:
      return tell_change();
    case ipc::Kind::kSocket: {
      const std::lock_guard lock(mutex_);
      if (message->fds.size() == 1)
        connection_.roce_socket = base::GuardedFd(std::move(message->fds.front()));
      return;
    }
    case ipc::Kind::kStray:
      return take_stray(*message);
    default:
      return;  // an answer to nothing we asked
  }
}

void HostTie::pass_on(const net::Received& stray) {
  ipc::Stray message{.slot = std::to_integer<uint32_t>(stray.bytes[5]),
                     .interface = stray.interface,
                     .source_port = stray.source_port,
                     .segment = static_cast<uint16_t>(stray.segment),
                     .traffic_class = stray.traffic_class,
                     .hop_limit = stray.hop_limit,
                     .length = static_cast<uint16_t>(stray.bytes.size())};
  if (stray.bytes.size() > sizeof message.bytes) return;
  std::ranges::copy(stray.from.bytes, message.from);
  std::ranges::copy(stray.to.bytes, message.to);
  std::memcpy(message.bytes, stray.bytes.data(), stray.bytes.size());
  const std::lock_guard lock(mutex_);
  if (const int socket = connection_.socket.get(); socket >= 0) (void)ipc::send(socket, message);
}

void HostTie::take_stray(const ipc::Message& message) {
  const auto stray = message.as<ipc::Stray>();
  if (!stray || stray->length > sizeof stray->bytes) return;
  net::Received received{.source_port = stray->source_port,
                         .interface = stray->interface,
                         .traffic_class = stray->traffic_class,
                         .hop_limit = stray->hop_limit,
                         .segment = stray->segment,
                         .bytes = std::as_bytes(std::span(stray->bytes)).first(stray->length)};
  std::ranges::copy(stray->from, received.from.bytes.begin());
  std::ranges::copy(stray->to, received.to.bytes.begin());
  std::shared_ptr<HelperWork> work;
  {
    const std::lock_guard lock(mutex_);
    work = work_;
  }
  const std::lock_guard working(working_mutex_);
  if (work) work->on_stray(received);
}

void HostTie::reconnect() {
  Claim claim;
  {
    const std::lock_guard lock(mutex_);
    claim = connection_.claim;
  }
  // The data path goes on while we wait, which may be long where no agent can be started.
  // One of many survivors: each waits a little, at random, so that one agent is started and not two hundred.
  const auto patience = base::milliseconds(base::random_u64() % 40);
  auto connection = connect(&claim, patience, [this](int fd, base::Instant until) { doze_on(fd, until); });
  if (connection) {
    {
      const std::lock_guard lock(mutex_);
      if (!attached_) return;
      connection_ = std::move(*connection);
      reinterpret_cast<arena::TablesHead*>(tables_.data())->slot.store(connection_.claim.slot);
    }
    tell_change();  // what changed while no agent ran
    const std::lock_guard lock(listeners_mutex_);
    for (auto* listener : listeners_)
      listener->on_agent_changed([this](int fd, base::Instant until) { doze_on(fd, until); });
    return;
  }
  const auto& error = connection.error();
  // Only the agent's word on the slot, or segments that the program closed, are final. All else may pass: no
  // descriptor left, no memory, an agent that can't be started now.
  if (error.code != EBUSY && error.code != EINVAL && error.code != EBADF) {
    doze_on(-1, base::now() + base::milliseconds(100));
    return;  // help() tries again
  }
  lose_slot(error);
}

void HostTie::lose_slot(const base::Error& error) {
  base::explain(error);
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
    (void)renew_wake();  // for peers this process is gone
  }
  const std::lock_guard lock(listeners_mutex_);
  for (auto* listener : listeners_) listener->on_slot_lost(error);
}

void HostTie::tell_change() {
  std::shared_ptr<const arena::DeviceTable> before;
  std::shared_ptr<const arena::DeviceTable> after;
  {
    const std::lock_guard lock(mutex_);
    if (!devices_ || !connection_.registry) return;
    after = connection_.registry.read_view(connection_.view);
    if (!after) return;
    before = std::exchange(devices_, after);
  }
  if (std::memcmp(before.get(), after.get(), sizeof *after) == 0) return;
  const std::lock_guard lock(listeners_mutex_);
  for (auto* listener : listeners_) listener->on_devices_changed(*before, *after);
}

}  // namespace verbena::client
