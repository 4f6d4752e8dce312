#include "agent/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "arena/process_segments.hpp"
#include "base/check.hpp"
#include "ipc/process_id.hpp"

namespace verbena::agent {
namespace {

constexpr size_t kMaxSessions = 2048;
constexpr int kMaxLeaseSessions = 64;  // other users' connections must not crowd our own out
constexpr base::Duration kHelloTimeout = base::seconds(5);

}  // namespace

Agent::Agent(Options options, EventLoop loop, base::UniqueFd listener)
    : options_(std::move(options)),
      loop_(std::move(loop)),
      listener_(std::move(listener)),
      idle_since_(base::now()) {
  spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  cm_ = std::make_unique<CmService>(
      loop_, [this](std::string_view sentence) { log(sentence); },
      [this](const cm::Outgoing& outgoing) {
        if (qp1_) qp1_->send(outgoing);
      });
}

base::Result<std::unique_ptr<Agent>> Agent::start(Options options) {
  auto listener =
      ipc::listen_at(options.system ? ipc::system_agent_name() : ipc::user_agent_name(::geteuid()));
  if (!listener) return std::unexpected(listener.error());
  auto loop = EventLoop::create();
  if (!loop) return std::unexpected(loop.error());
  std::unique_ptr<Agent> agent(new Agent(std::move(options), std::move(*loop), std::move(*listener)));
  if (auto begun = agent->begin(); !begun) return std::unexpected(begun.error());
  return agent;
}

void Agent::run(int stop) {
  const auto watched = loop_.watch(stop, [this] { stopping_ = true; });
  CHECK(watched.has_value());
  while (!stopping_) {
    loop_.run_once(next_deadline(base::now()));
    tick(base::now());
  }
  // Programs that only read files don't know that we leave; the next agent of this user clears up after them.
  if (!view_in_use(directory_.path)) views_->remove_all();
}

void Agent::tick(base::Instant now) {
  if (park_deadline_ && now >= *park_deadline_) {
    park_deadline_.reset();
    auto park = fetch_park(survivors_);
    if (!park || !adopt_park(std::move(*park))) take_port();
    finish_start();
  }
  if (port_retry_ && now >= *port_retry_) on_lease_lost();
  if (interfaces_due_ && now >= *interfaces_due_) on_interfaces_changed();
  slots_->expire(now);
  std::erase_if(ending_leases_, [&](const EndingLease& lease) {
    if (now < lease.end) return false;
    const auto word = slots_->word(lease.slot);
    if (word.state == arena::SlotState::kLeased && word.epoch == lease.epoch)
      slots_->end_lease({lease.slot.value, 1}, now, {});
    return true;
  });
  std::vector<int> silent;
  for (const auto& [socket, session] : sessions_) {
    const bool spoke = session.view || session.deferred || session.lease;
    if (!spoke && now - session.since > kHelloTimeout) silent.push_back(socket);
  }
  for (const int socket : silent) end_session(socket);
  go_on_with_cm(now);
  if (in_use()) idle_since_ = now;
  // Whoever just said Hello may be about to attach.
  if (now - idle_since_ >= options_.idle_timeout && sessions_.empty() && !options_.system) stopping_ = true;
}

bool Agent::in_use() const {
  // A connection that only looks (a status, a list of devices) is no reason to stay.
  return !ready_ || !observers_.empty() || !ending_leases_.empty() || cm_->in_use() ||
         std::ranges::any_of(sessions_, [](const auto& s) { return s.second.lease.has_value(); }) ||
         std::ranges::any_of(attachments_, [](const auto& a) { return a.has_value(); }) ||
         slots_->next_deadline().has_value();  // a quarantine forgotten would be none
}

base::Instant Agent::next_deadline(base::Instant now) const {
  base::Instant next = now + base::seconds(3600);
  const auto consider = [&](std::optional<base::Instant> at) {
    if (at && *at < next) next = *at;
  };
  consider(park_deadline_);
  consider(interfaces_due_);
  consider(port_retry_);
  consider(slots_->next_deadline());
  consider(cm_->next_deadline());
  for (const auto& lease : ending_leases_) consider(lease.end);
  for (const auto& [socket, session] : sessions_)
    if (!session.view && !session.lease) consider(session.since + kHelloTimeout);
  if (!in_use() && sessions_.empty()) consider(idle_since_ + options_.idle_timeout);
  return next;
}

void Agent::accept(int listener, bool for_leases) {
  base::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket && (errno == EMFILE || errno == ENFILE)) {
    spare_.reset();
    socket.reset(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    Session over{.socket = std::move(socket)};
    if (over.socket)
      refuse(over, {EMFILE, "the host agent has no descriptor left; raise its hard limit (ulimit -Hn)"});
    over.socket.reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return;
  }
  if (!socket) return;
  const auto peer = ipc::peer_of(socket.get());
  if (!peer) return;
  Session session{.socket = std::move(socket), .peer = *peer, .since = base::now(), .for_leases = for_leases};
  if (!options_.system && !for_leases && peer->uid != ::geteuid()) {
    registry_.count(arena::Counter::kRefusedUid);
    refuse(session,
           {EACCES, fmt::format("this is the host agent of uid {}, you are uid {}", ::geteuid(), peer->uid)});
    return;
  }
  const auto of_lessees = std::ranges::count_if(sessions_, [](const auto& s) { return s.second.for_leases; });
  if (sessions_.size() >= kMaxSessions || (for_leases && of_lessees >= kMaxLeaseSessions)) {
    refuse(session, {EAGAIN, "the host agent has too many connections; try again in a moment"});
    return;
  }
  const int key = session.socket.get();
  if (!loop_.watch(key, [this, key] { on_readable(key); })) return;
  sessions_.emplace(key, std::move(session));
}

Agent::Session* Agent::session_at(int socket) {
  const auto found = sessions_.find(socket);
  return found == sessions_.end() ? nullptr : &found->second;
}

void Agent::end_session(int socket) {
  Session* session = session_at(socket);
  if (session == nullptr) return;
  loop_.unwatch(socket);
  const auto slot = session->slot;
  const auto lease = session->lease;
  const auto peer = session->peer;
  const auto cm = session->cm;
  sessions_.erase(socket);
  if (cm != 0) cm_->end_client(cm);
  if (lease)
    for (unsigned s = lease->first; s < lease->first + lease->count; ++s)
      let_lease_end({static_cast<uint8_t>(s)});
  if (!slot || !attachments_[slot->value]) return;
  attachments_[slot->value]->session = -1;
  // A process that closed our descriptor still has its queue pairs; one that went by exec or exit has not.
  const bool visible = peer.pid > 0;
  if (visible && !ipc::maps_file(peer.pid, std::string("/memfd:") + arena::kTablesName))
    end_attachment(*slot, arena::Counter::kOwnersEnded);
}

void Agent::let_lease_end(base::Slot slot) {
  // The lessee's agent may have been killed: its next one gets time to ask for the same slots.
  ending_leases_.push_back({slot, slots_->word(slot).epoch, base::now() + base::seconds(10)});
}

void Agent::end_attachment(base::Slot slot, arena::Counter why) {
  auto& attachment = attachments_[slot.value];
  if (!attachment) return;
  if (attachment->pidfd) loop_.unwatch(attachment->pidfd.get());
  const int session = attachment->session;
  const auto timewait = timewait_of(slot);
  attachment.reset();
  end_cm_of(slot);
  registry_.count(why);
  slots_->release(slot, base::now(), timewait);
  if (Session* open = session_at(session)) {
    open->slot.reset();
    end_session(session);
  }
}

base::Duration Agent::timewait_of(base::Slot slot) const {
  const auto& attachment = attachments_[slot.value];
  arena::TablesHead head{};
  // Read, not mapped: whatever the process did to its memory costs us nothing.
  if (!attachment || !attachment->belongings.tables ||
      ::pread(attachment->belongings.tables.get(), static_cast<void*>(&head), sizeof head, 0) !=
          sizeof head ||
      head.magic != arena::kTablesMagic)
    return {};
  constexpr uint64_t kMost = 3'600'000'000'000;
  return base::Duration(static_cast<int64_t>(std::min(head.longest_timewait_ns.load(), kMost)));
}

void Agent::on_interfaces_changed() {
  interfaces_due_.reset();
  auto interfaces = net::list_interfaces();
  if (!interfaces) return log(interfaces.error().sentence);
  const auto changed = views_->update(std::move(*interfaces));
  for (auto& [socket, session] : sessions_) {
    if (!session.slot || !session.view || !changed[*session.view]) continue;
    answer(session, ipc::DevicesChanged{});
  }
  if (std::ranges::find(changed, true) != changed.end()) registry_.count(arena::Counter::kDeviceChanges);
}

void Agent::log(std::string_view sentence) const { registry_.log(base::now(), sentence); }

}  // namespace verbena::agent
