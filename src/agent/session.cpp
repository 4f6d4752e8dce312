// What clients ask, one handler a message. Bad input ends the session that sent it and nothing else.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "agent/agent.hpp"
#include "arena/process_segments.hpp"
#include "ipc/process_id.hpp"

namespace verbena::agent {
namespace {

constexpr size_t kMostLeased = 96;

base::Error protocol_error(std::string sentence) { return {EPROTO, std::move(sentence)}; }

}  // namespace

void Agent::refuse(Session& session, const base::Error& error) {
  ipc::Refused refused{.code = error.code};
  ipc::set_text(refused.sentence, error.sentence);
  answer(session, refused);
}

void Agent::on_readable(int socket) {
  Session* session = session_at(socket);
  if (session == nullptr) return;
  auto message = ipc::receive(socket);
  if (!message) {
    if (message.error().code == EAGAIN) return;
    if (message.error().code != ECONNRESET) {
      registry_.count(arena::Counter::kBadMessages);
      refuse(*session, message.error());
    }
    end_session(socket);
    return;
  }
  if (ready_) return dispatch(*session, *message);
  // While we look for what our predecessor left, a survivor's park is what we wait for; answers come after.
  if (session->deferred) return end_session(socket);
  session->deferred = std::move(*message);
  if (session->deferred->kind == ipc::Kind::kHello && !session->deferred->fds.empty() && park_deadline_) {
    if (adopt_park(std::move(session->deferred->fds.front()))) {
      park_deadline_.reset();
      finish_start();
    }
  }
}

void Agent::dispatch(Session& session, ipc::Message& message) {
  using ipc::Kind;
  const int key = session.socket.get();
  if (session.for_leases) {
    if (message.kind == Kind::kLease) return on_lease(session, message);
  } else if (session.cm != 0) {
    return on_cm_command(session, message);
  } else if (message.kind == Kind::kHello) {
    return on_hello(session, message);
  } else if (session.view) {
    switch (message.kind) {
      case Kind::kAttach:
        return on_attach(session, message);
      case Kind::kDetach:
        return on_detach(session);
      case Kind::kIntroduce:
        return on_introduce(session, message);
      case Kind::kCmOpen:
        return on_cm_open(session, message);
      case Kind::kObserve:
        return on_observe(session, message);
      case Kind::kLook:
        return on_look(session, message);
      case Kind::kStray:
        return on_stray(session, message);
      case Kind::kStop:
        return on_stop(session, message);
      default:
        break;
    }
  }
  registry_.count(arena::Counter::kBadMessages);
  refuse(session, protocol_error(fmt::format("a control message of kind {} has no place here",
                                             static_cast<unsigned>(message.kind))));
  end_session(key);
}

void Agent::on_hello(Session& session, ipc::Message& message) {
  const int key = session.socket.get();
  const auto hello = message.as<ipc::Hello>();
  if (!hello || session.view) {
    registry_.count(arena::Counter::kBadMessages);
    refuse(session, protocol_error("a second or malformed Hello"));
    return end_session(key);
  }
  // A survivor that was stopped while we started may still have the group that we had to do without.
  if (hello->survivor != 0 && !message.fds.empty() && group_.empty() && !lease_)
    (void)adopt_park(std::move(message.fds.front()));
  if (interfaces_due_) on_interfaces_changed();
  const auto view = views_->find_or_make(ipc::text(hello->spec), views_in_use());
  if (!view) {
    refuse(session, view.error());
    return end_session(key);
  }
  session.view = *view;
  ipc::Welcome welcome{.generation = registry_.layout().generation.load(),
                       .view = *view,
                       .has_port = group_.empty() ? 0u : 1u};
  ipc::set_text(welcome.tree, views_->tree_root(*view));
  ipc::set_text(welcome.advice, advice_);
  const int registry = registry_readonly_.get();
  answer(session, welcome, std::span(&registry, 1));
}

ViewTable::Flags Agent::views_in_use() const {
  ViewTable::Flags used{};
  for (const auto slot : slots_->in_state(arena::SlotState::kActive))
    used[slots_->owner(slot).view % used.size()] = true;
  for (const auto& [pidfd, observer] : observers_)
    used[registry_.layout().observers[observer.record].view.load() % used.size()] = true;
  for (const auto& [socket, other] : sessions_)
    if (other.view) used[*other.view] = true;
  return used;
}

void Agent::on_attach(Session& session, ipc::Message& message) {
  const auto claim = attach(session, message);
  if (!claim) {
    if (claim.error().code == ENOMEM) registry_.count(arena::Counter::kRefusedNoSlot);
    if (claim.error().code == EPROTO) registry_.count(arena::Counter::kBadMessages);
    return refuse(session, claim.error());
  }
  registry_.count(arena::Counter::kAttached);
  std::vector<int> fds;
  ipc::Attached attached{.slot = claim->slot.value, .epoch = claim->epoch};
  // The park holds every slot's socket: it goes only to our own user's processes.
  if (park_ && session.peer.uid == ::geteuid()) {
    attached.has_park = 1;
    fds.push_back(park_.get());
  }
  if (!group_.empty()) {
    attached.has_socket = 1;
    fds.push_back(group_[claim->slot.value].get());
  }
  answer(session, attached, fds);
}

base::Result<Claim> Agent::attach(Session& session, ipc::Message& message) {
  const auto wanted = message.as<ipc::Attach>();
  if (!wanted) return std::unexpected(wanted.error());
  if (session.slot) return base::fail(EPROTO, "a connection attaches once");
  base::UniqueFd pidfd = ipc::pidfd_of_peer(session.socket.get());
  if (!pidfd) return base::fail(ESRCH, "the process that attaches is gone");
  auto belongings = take_belongings(*wanted, message, pidfd.get());
  if (!belongings) return std::unexpected(belongings.error());

  const Owner owner{.pid = static_cast<uint32_t>(session.peer.pid),
                    .start_ticks = ipc::start_ticks_of(session.peer.pid),
                    .uid = session.peer.uid,
                    .view = *session.view};
  base::Result<Claim> claim;
  if (wanted->resume != 0) {
    if (wanted->slot > base::kLastProcessSlot)
      return base::fail(EPROTO, "an Attach names a slot that can't be");
    const base::Slot slot{static_cast<uint8_t>(wanted->slot)};
    const auto& attachment = attachments_[slot.value];
    const bool others = attachment && (attachment->session >= 0 ||
                                       (attachment->pidfd && slots_->owner(slot).pid != owner.pid));
    if (others) return base::fail(EBUSY, fmt::format("slot {} is another process's", slot.value));
    claim = slots_->resume({slot, wanted->epoch}, owner);
    if (claim && attachments_[slot.value] && attachments_[slot.value]->pidfd)
      loop_.unwatch(attachments_[slot.value]->pidfd.get());
  } else {
    // A slot that this very process has without being connected is from before an exec, or from an Attach
    // whose answer an earlier agent didn't live to send.
    for (const auto slot : slots_->in_state(arena::SlotState::kActive)) {
      const auto& attachment = attachments_[slot.value];
      const Owner holder = slots_->owner(slot);
      if (owner.pid != 0 && holder.pid == owner.pid && holder.start_ticks == owner.start_ticks &&
          attachment && attachment->session < 0)
        end_attachment(slot, arena::Counter::kDetached);
    }
    claim = slots_->claim(base::now(), owner);
    if (claim && !group_.empty()) net::drain(group_[claim->slot.value].get());
  }
  if (!claim) return claim;

  const base::Slot slot = claim->slot;
  Attachment attachment{
      .pidfd = std::move(pidfd), .belongings = std::move(*belongings), .session = session.socket.get()};
  const auto watched = loop_.watch(attachment.pidfd.get(),
                                   [this, slot] { end_attachment(slot, arena::Counter::kOwnersEnded); });
  if (!watched) {
    slots_->release(slot, base::now(), {});
    return std::unexpected(watched.error());
  }
  attachments_[slot.value] = std::move(attachment);
  session.slot = slot;
  return claim;
}

void Agent::on_detach(Session& session) {
  const int key = session.socket.get();
  if (!session.slot) {
    refuse(session, protocol_error("a Detach without a slot"));
    return end_session(key);
  }
  const base::Slot slot = *session.slot;
  session.slot.reset();
  attachments_[slot.value]->session = -1;
  end_attachment(slot, arena::Counter::kDetached);
  answer(session, ipc::Done{});
}

void Agent::on_observe(Session& session, ipc::Message& message) {
  if (auto added = add_observer(session, message); !added) return refuse(session, added.error());
  answer(session, ipc::Done{});
}

base::Result<void> Agent::add_observer(Session& session, ipc::Message& message) {
  if (auto observe = message.as<ipc::Observe>(); !observe) return std::unexpected(observe.error());
  base::UniqueFd pidfd = ipc::pidfd_of_peer(session.socket.get());
  if (!pidfd) return base::fail(ESRCH, "the process that observes is gone");
  const auto pid = static_cast<uint32_t>(session.peer.pid);
  auto& records = registry_.layout().observers;
  // A program that `verbena run` started may run `verbena run` itself: the same pid, another view.
  const uint64_t start_ticks = ipc::start_ticks_of(session.peer.pid);
  auto record = std::ranges::find_if(
      records, [&](auto& r) { return r.pid.load() == pid && r.start_ticks.load() == start_ticks; });
  const bool known = record != std::end(records);
  if (!known) record = std::ranges::find_if(records, [](auto& r) { return r.pid.load() == 0; });
  if (record == std::end(records))
    return base::fail(ENOSPC,
                      fmt::format("{} programs run under `verbena run` already", arena::kMaxObservers));
  record->view.store(*session.view);
  record->start_ticks.store(start_ticks);
  record->pid.store(pid);
  if (known) return {};
  const int key = pidfd.get();
  observers_[key] = {std::move(pidfd), static_cast<unsigned>(record - std::begin(records))};
  return loop_.watch(key, [this, key] { end_observer(key); });
}

void Agent::end_observer(int pidfd) {
  const auto found = observers_.find(pidfd);
  if (found == observers_.end()) return;
  registry_.layout().observers[found->second.record].pid.store(0);
  loop_.unwatch(pidfd);
  observers_.erase(found);
}

void Agent::on_stop(Session& session, const ipc::Message& message) {
  const auto stop = message.as<ipc::Stop>();
  if (!stop) return refuse(session, stop.error());
  std::set<uint32_t> users;  // a program under `verbena run` may be both observer and attached
  for (const auto slot : slots_->in_state(arena::SlotState::kActive)) users.insert(slots_->owner(slot).pid);
  for (const auto& [pidfd, observer] : observers_)
    users.insert(registry_.layout().observers[observer.record].pid.load());
  if (!users.empty() && stop->force == 0)
    return refuse(session,
                  {EBUSY, fmt::format("{} process{} this host agent (pid {}); end {} first, or stop it with "
                                      "--force (those that are attached then start another)",
                                      users.size(), users.size() == 1 ? " uses" : "es use",
                                      fmt::join(users, ", "), users.size() == 1 ? "it" : "them")});
  answer(session, ipc::Done{});
  stopping_ = true;
}

void Agent::on_lease(Session& session, const ipc::Message& message) {
  const auto wanted = message.as<ipc::Lease>();
  if (!wanted || session.lease) return end_session(session.socket.get());
  const Owner lessee{.pid = static_cast<uint32_t>(session.peer.pid),
                     .start_ticks = ipc::start_ticks_of(session.peer.pid),
                     .uid = session.peer.uid};
  // One agent a user, and never so many that the port's owner has none left.
  for (const auto& [socket, other] : sessions_)
    if (other.lease && other.peer.uid == session.peer.uid)
      return refuse(session, {EBUSY, fmt::format("uid {} has its lease already", session.peer.uid)});
  const auto mine = [&](base::Slot slot) { return slots_->owner(slot).uid == session.peer.uid; };
  const auto leased = slots_->in_state(arena::SlotState::kLeased);
  if (leased.size() - static_cast<size_t>(std::ranges::count_if(leased, mine)) >= kMostLeased)
    return refuse(session, {ENOMEM, "too many slots are leased to other users already"});
  const auto range = slots_->lease({wanted->first, wanted->count}, lessee);
  if (!range) return refuse(session, range.error());
  session.lease = *range;
  registry_.count(arena::Counter::kLeasesGranted);
  answer(session, ipc::Leased{.first = range->first, .count = range->count});
}

}  // namespace verbena::agent
