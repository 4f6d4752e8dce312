#include "client/data_path.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string_view>

#include "client/host_tie.hpp"
#include "client/introduction.hpp"
#include "client/wire_link.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::client {
namespace {

// Letters come in bursts: a helper that has read one stays awake for the next.
constexpr base::Duration kReadingOn = std::chrono::microseconds(50);

std::mutex current_mutex;
std::weak_ptr<DataPath> current_path;

// Another thread of the parent's may have been in the middle of either, and isn't here. The child's path is
// made anew anyway, so they begin anew, and what the old pointer held is leaked.
void forget_in_child() {
  new (&current_mutex) std::mutex;
  new (&current_path) std::weak_ptr<DataPath>;
}

}  // namespace

base::Result<std::shared_ptr<DataPath>> DataPath::current() {
  static const bool installed [[maybe_unused]] = ::pthread_atfork(nullptr, nullptr, &forget_in_child) == 0;
  const std::lock_guard lock(current_mutex);
  const auto tie = HostTie::instance();
  const auto claim = tie->claim();
  const auto tables = tie->tables();
  const auto rings = tie->rings();
  if (!claim || tables.empty() || rings.empty())
    return base::fail(EIO, "this process has no slot on its host; close its devices and open them anew");
  if (auto known = current_path.lock();
      known && known->process_.slot().value == claim->slot && known->epoch_ == claim->epoch)
    return known;
  std::shared_ptr<DataPath> made(new DataPath(arena::ProcessArena(tables.data(), rings.data()),
                                              {static_cast<uint8_t>(claim->slot)}, claim->epoch));
  made->process_.regions().set_liveness([weak = std::weak_ptr(made)](base::Slot slot) {
    const auto path = weak.lock();
    const auto neighbour = path ? path->exchange_->neighbour(slot) : nullptr;
    return neighbour != nullptr && !neighbour->gone();
  });
  current_path = made;
  tie->set_work(made);
  return made;
}

DataPath::DataPath(arena::ProcessArena arena, base::Slot slot, uint32_t epoch)
    : process_(arena, slot), epoch_(epoch), tie_(HostTie::instance()) {
  auto self =
      std::make_shared<local::Self>(arena, epoch, process_, [] { HostTie::instance()->wake_helper(); });
  exchange_ = std::make_shared<local::Exchange>(process_, std::move(self));
  process_.set_postman(exchange_);
  // Short: whoever posts or polls waits for it.
  exchange_->set_introducer([this](base::Slot peer) -> std::shared_ptr<local::Neighbour> {
    auto met = meet(peer, Patience::kShort);
    return met ? *met : nullptr;
  });
  const char* wished = ::secure_getenv("VERBENA_PATH");
  process_.arena().head().wants_wire = wished != nullptr && std::string_view(wished) == "wire" ? 1 : 0;
  process_.pending().on_first = [](void* path) { static_cast<DataPath*>(path)->wake_own_helper(); };
  process_.pending().context = this;
}

DataPath::~DataPath() = default;

base::Result<std::shared_ptr<wire::Port>> DataPath::port() {
  const std::lock_guard lock(meeting_);
  if (port_) return port_;
  const int socket = tie_->roce_socket();
  if (socket < 0)
    return base::fail(
        EADDRINUSE,
        "the RoCEv2 port (UDP 4791) of this host belongs to another user or to the kernel's rxe, so "
        "queue pairs reach processes of this host and user only; `verbena agent --system`, run by "
        "root, serves all users");
  base::UniqueFd own(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  if (!own) return base::fail_errno("duplicating the RoCEv2 socket");
  auto link = make_wire_link(std::move(own));
  if (!link) return std::unexpected(link.error());
  port_ = std::make_shared<wire::Port>(
      std::move(*link), process_.slot(),
      wire::Port::Environment{
          .wake = [] { HostTie::instance()->wake_helper(); },
          .shown = &process_.arena().head().counters,
          .pass_on = [](const net::Received& stray) { HostTie::instance()->pass_on(stray); },
          .own = process_.arena(),
          .meet = [this](base::Slot slot) { return meet_for_datagrams(slot); }});
  process_.set_wire(*port_);
  static const bool hooked [[maybe_unused]] = std::atexit([] { on_exit(); }) == 0;
  return port_;
}

void DataPath::on_exit() {
  std::shared_ptr<DataPath> path;
  if (const std::unique_lock lock(current_mutex, std::try_to_lock); lock) path = current_path.lock();
  if (path && path->usable() && path->process_.wire_active()) path->port_->acknowledge_all();
}

base::Result<std::shared_ptr<XrcLink>> DataPath::xrc() {
  const std::lock_guard lock(xrc_mutex_);
  if (xrc_ && !xrc_->lost()) return xrc_;
  auto opened = XrcLink::open();
  if (!opened) return opened;
  xrc_ = std::move(*opened);
  HostTie::instance()->wake_helper();  // it hears of events from now on
  return xrc_;
}

void DataPath::on_port_down(const verbs::EventQueue& device, unsigned port) {
  std::shared_ptr<DataPath> path;
  {
    const std::lock_guard lock(current_mutex);
    path = current_path.lock();
  }
  if (!path || !path->usable()) return;
  for (const auto& queue_pair : path->process_.queue_pairs())
    if (queue_pair->config().events == &device) queue_pair->on_port_down(port);
}

uint64_t DataPath::counted(std::string_view name) {
  const std::lock_guard lock(current_mutex);
  const auto path = current_path.lock();
  if (!path || !path->usable()) return 0;
  const auto& table = path->process_.arena().head().counters;
  for (unsigned i = 0; i < std::min(table.count.acquire(), arena::kMaxCounters); ++i)
    if (base::text(table.counters[i].name) == name) return table.counters[i].value.get();
  return 0;
}

void DataPath::detach_all(base::Qpn queue_pair) {
  std::shared_ptr<wire::Port> port;
  {
    const std::lock_guard lock(meeting_);
    port = port_;
  }
  if (port) port->detach_all(queue_pair);
}

bool DataPath::usable() const { return tie_->current(); }

void DataPath::wake_own_helper() { exchange_->self().wake_helper(); }

base::Result<std::shared_ptr<local::Neighbour>> DataPath::meet(base::Slot slot, Patience patience) {
  const std::lock_guard lock(meeting_);
  if (auto known = exchange_->neighbour(slot); known && !known->gone()) {
    const auto* peer = dynamic_cast<local::Peer*>(known.get());
    pollfd state{peer != nullptr ? peer->wake_fd() : -1, 0, 0};
    if (peer == nullptr || (::poll(&state, 1, 0) == 0)) return known;
    lose(known);
  }
  auto introduction = patience == Patience::kLong ? introduce(slot) : introduce_soon(slot);
  if (!introduction) return std::unexpected(introduction.error());
  auto peer = local::Peer::open({.slot = slot,
                                 .epoch = introduction->epoch,
                                 .pid = introduction->pid,
                                 .tables = std::move(introduction->tables),
                                 .rings = std::move(introduction->rings),
                                 .wake = std::move(introduction->wake),
                                 .memory = std::move(introduction->memory)},
                                process_.slot());
  if (!peer) return std::unexpected(peer.error());
  exchange_->meet(*peer);
  HostTie::instance()->wake_helper();  // it watches for the peer's end from now on
  return std::shared_ptr<local::Neighbour>(*peer);
}

std::shared_ptr<local::Neighbour> DataPath::meet_for_datagrams(base::Slot slot) {
  if (slot.value == 0 || process_.arena().head().wants_wire != 0) return nullptr;
  auto peer = meet(slot, Patience::kShort);
  return peer && (*peer)->arena().head().wants_wire == 0 ? *peer : nullptr;
}

void DataPath::lose(const std::shared_ptr<local::Neighbour>& neighbour) {
  if (neighbour->set_gone()) return;  // another process may have its slot by now
  exchange_->part(*neighbour);
  if (process_.wire_active()) port_->part(neighbour->slot());
  process_.peer_gone(neighbour->slot(), neighbour->epoch());
}

bool DataPath::look_at_bells() {
  bool any = false;
  for (const auto& queue : process_.queues()) {
    auto& attention = process_.arena().bell(queue->index()).attention;
    if (attention.get() == 0) continue;
    const uint32_t wanted = attention.atomic().exchange(0);
    queue->merge();
    for (const auto& queue_pair : process_.queue_pairs())
      if (queue_pair->config().recv_cq == queue) queue_pair->tell_waiting();
    if ((wanted & arena::kRing) != 0) exchange_->self().ring_channel(queue->index());
    any = true;
  }
  if (any)
    for (const auto& shared : process_.shared_queues()) shared->refresh();
  return any;
}

// Letters come in bursts: a helper that nobody relieves by polling reads on for a moment.
void DataPath::read_letters(bool alone) {
  base::Instant last = base::now();
  do {
    if (exchange_->read_letters()) last = base::now();
  } while (alone && base::now() - last < kReadingOn);
}

base::Instant DataPath::help(base::Instant now) {
  exchange_->self().set_helper_sleeps(false);
  const bool alone = attendance_.look(now, process_.polls(), process_.wire_active() && port_->busy());
  const bool letters = exchange_->has_letters();
  if (letters) read_letters(alone);
  const bool stops = std::exchange(relied_, false) && !process_.rely_no_more();
  if (look_at_bells() || letters || stops) attendance_.left_undone();
  if (!alone) return pause(process_.wire_active() ? stand_by(now) : Attendance::kAfterLastPoll);

  attendance_.worked_alone(work_on());
  const base::Instant next = std::min(process_.pending().run_all(now), wire_due());
  // Asleep from here on: who leaves something must wake us. What was left just before is seen here.
  exchange_->self().set_helper_sleeps(true);
  if (left_behind() || process_.has_failures()) return now;
  return std::min({next, process_.pending().next_due(), wire_due()});
}

// Peers have left something.
bool DataPath::left_behind() {
  if (exchange_->has_letters()) return true;
  return std::ranges::any_of(process_.queues(), [&](const auto& queue) {
    return process_.arena().bell(queue->index()).attention.get() != 0;
  });
}

// What comes by the network comes in bursts. To sleep after each run costs more than the run, here and at the
// sender, which has to wake us.
bool DataPath::work_on() {
  constexpr base::Duration kLookingOn = std::chrono::microseconds(30);
  constexpr base::Duration kMost = base::milliseconds(1);  // letters, bells and the agent wait meanwhile
  if (!process_.work(verbs::Wire::Driver::kHelper)) return false;
  if (!process_.wire_active() || !attendance_.may_look_on()) return true;
  const base::Instant begun = base::now();
  base::Instant last = begun;
  for (base::Instant now = begun; now - last < kLookingOn && now - begun < kMost; now = base::now()) {
    if (attendance_.polled_since(process_.polls()) || exchange_->has_letters()) break;
    if (process_.work(verbs::Wire::Driver::kHelper)) {
      last = now;
      continue;
    }
    now = base::now();
    ::sched_yield();
    if (attendance_.yielded(base::now() - now)) break;
  }
  return true;
}

// Counted from the end of a look: else one that takes long is followed by the next at once.
base::Instant DataPath::pause(base::Duration least) {
  timespec used{};
  if (attendance_.weighs_time()) ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  const base::Duration pause =
      attendance_.pause(least, std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec));
  const base::Instant now = base::now();
  if (!attendance_.relies()) return now + pause;
  relied_ = true;
  process_.rely_on_polls();
  exchange_->self().set_helper_rests();
  return left_behind() ? now : now + pause;
}

// Tells how long the program may poll without us.
base::Duration DataPath::stand_by(base::Instant now) {
  port_->promise({});
  // The program went on to something else: it would have posted by now.
  if (now - port_->owing_since() >= Attendance::kOverdue) {
    attendance_.left_undone();
    (void)port_->drive(now, verbs::Wire::Driver::kHelper);
  }
  const auto [step, rest] = attendance_.stand_by(now, port_->busy(), port_->driven_at());
  switch (step) {
    case Attendance::Step::kRest:
      break;
    case Attendance::Step::kDrive:
      attendance_.drove(port_->drive(now, verbs::Wire::Driver::kStandIn));
      break;
    case Attendance::Step::kLookAtSocket:
      pollfd socket{port_->fd(), POLLIN, 0};
      return attendance_.saw_packets(::poll(&socket, 1, 0) > 0);
  }
  return rest;
}

// Whoever schedules something earlier than what we answer wakes us.
base::Instant DataPath::wire_due() {
  if (!process_.wire_active()) return kWhenWoken;
  port_->promise(kWhenWoken);
  const base::Instant due = port_->next_due();
  port_->promise(due);
  return due;
}

void DataPath::watch(std::vector<pollfd>& into) {
  watched_.clear();
  for (auto& neighbour : exchange_->neighbours())
    if (auto* peer = dynamic_cast<local::Peer*>(neighbour.get()); peer != nullptr && !peer->gone()) {
      into.push_back({peer->wake_fd(), 0, 0});
      watched_.push_back(std::move(neighbour));
    }
  // While somebody polls, that one looks at the socket; help() comes back in a moment to see.
  if (process_.wire_active() && attendance_.alone()) into.push_back({port_->fd(), POLLIN, 0});
  const std::unique_lock lock(xrc_mutex_, std::try_to_lock);
  if (lock && xrc_)
    if (const int keeper = xrc_->fd(); keeper >= 0) into.push_back({keeper, POLLIN, 0});
}

void DataPath::on_stray(const net::Received& received) {
  if (process_.wire_active()) port_->take_stray(base::now(), received);
}

void DataPath::on_events(std::span<const pollfd> watched) {
  for (size_t i = 0; i < watched.size() && i < watched_.size(); ++i)
    if (watched[i].revents != 0) lose(watched_[i]);
  const std::unique_lock lock(xrc_mutex_, std::try_to_lock);
  if (lock && xrc_) xrc_->read_events();
}

}  // namespace verbena::client
