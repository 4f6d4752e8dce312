// What processes bring for their peers, and who may have it: arenas and memory are shared only between
// processes of the same user and the same pid namespace (DESIGN 2.3, "Trust").
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <climits>

#include "agent/agent.hpp"
#include "arena/process_segments.hpp"
#include "ipc/process_id.hpp"

namespace verbena::agent {
namespace {

// Said to strangers, so that nobody searches for a setting that would help today.
constexpr char kWirePath[] = "the wire path over loopback will serve them once Verbena has it";

// A connected stream socket of the Unix kind: writing into it can't do more than wake, or fail.
bool is_wake(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return ::getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
  };
  return option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_STREAM && option(SO_ACCEPTCONN) == 0;
}

// A process's memory and no file by which its peers could be made to wait or to spoil something else.
bool is_memory(int fd) {
  struct statfs system {};
  struct stat st {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != PROC_SUPER_MAGIC || ::fstat(fd, &st) != 0 ||
      !S_ISREG(st.st_mode) || (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
    return false;
  char path[PATH_MAX];
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path);
  return length > 0 && std::string_view(path, static_cast<size_t>(length)).ends_with("/mem");
}

}  // namespace

base::Result<Agent::Belongings> Agent::take_belongings(const ipc::Attach& attach, ipc::Message& message,
                                                       int pidfd) {
  const bool has_memory = attach.has_memory != 0;
  auto& fds = message.fds;
  if (fds.empty()) {
    for (const int number : {attach.tables, attach.rings, attach.wake})
      fds.push_back(ipc::copy_descriptor(pidfd, number));
    if (has_memory) fds.push_back(ipc::copy_descriptor(pidfd, attach.memory));
  }
  if (fds.size() != (has_memory ? 4u : 3u))
    return base::fail(EPROTO, "an Attach brings two segments, a socket, and memory if it says so");
  auto sealed = arena::check_sealed(fds[0].get(), arena::Sharing::kOwnerWrites, arena::kTablesSize);
  if (!sealed) return base::fail(EPROTO, "tables: " + sealed.error().sentence);
  sealed = arena::check_sealed(fds[1].get(), arena::Sharing::kPeersWrite, arena::kRingsSize);
  if (!sealed) return base::fail(EPROTO, "rings: " + sealed.error().sentence);
  if (!is_wake(fds[2].get())) return base::fail(EPROTO, "wake: not a connected Unix stream socket");
  if (has_memory && !is_memory(fds[3].get())) return base::fail(EPROTO, "memory: not a process's memory");
  return Belongings{.tables = std::move(fds[0]),
                    .rings = std::move(fds[1]),
                    .wake = std::move(fds[2]),
                    .memory = has_memory ? std::move(fds[3]) : base::UniqueFd(),
                    .trusts_containers = attach.trusts_containers != 0};
}

void Agent::on_introduce(Session& session, const ipc::Message& message) {
  const auto wanted = message.as<ipc::Introduce>();
  if (!wanted || !message.fds.empty()) {
    registry_.count(arena::Counter::kBadMessages);
    return refuse(session, {EPROTO, "a malformed Introduce"});
  }
  const auto asker = asking_slot(session, *wanted);
  if (!asker) return refuse(session, asker.error());
  const auto peer = wanted_slot(*wanted, session.peer.uid);
  if (!peer) return refuse(session, peer.error());
  const auto introduced = introduce(*asker, *peer);
  if (!introduced) return refuse(session, introduced.error());

  const auto& belongings = attachments_[peer->value]->belongings;
  std::vector<int> fds{belongings.tables.get(), belongings.rings.get(), belongings.wake.get()};
  if (belongings.memory) fds.push_back(belongings.memory.get());
  const auto sent = ipc::send(session.socket.get(), *introduced, fds);
  if (sent) return;
  if (sent.error().code == ETOOMANYREFS)
    return refuse(session, {EAGAIN,
                            "too many descriptors of this user are in flight between processes; "
                            "raise the hard limit of open files (ulimit -Hn)"});
  ::shutdown(session.socket.get(), SHUT_RDWR);  // as in answer()
}

base::Result<base::Slot> Agent::asking_slot(const Session& session, const ipc::Introduce& wanted) const {
  if (session.peer.pid == 0)
    return base::fail(EPERM,
                      fmt::format("this process is in a pid namespace that the host agent (pid {}) doesn't "
                                  "see, so it shares memory with no other; {}",
                                  ::getpid(), kWirePath));
  return own_slot(session, wanted.own_slot, wanted.own_epoch);
}

base::Result<base::Slot> Agent::own_slot(const Session& session, uint32_t claimed, uint32_t epoch) const {
  const auto not_yours = [&] {
    return base::fail(ESTALE, fmt::format("slot {} of epoch {} isn't this process's (pid {})", claimed, epoch,
                                          session.peer.pid));
  };
  if (claimed < base::kFirstProcessSlot || claimed > base::kLastProcessSlot) return not_yours();
  const base::Slot slot{static_cast<uint8_t>(claimed)};
  const auto word = slots_->word(slot);
  const Owner owner = slots_->owner(slot);
  if (word.state != arena::SlotState::kActive || word.epoch != epoch ||
      owner.pid != static_cast<uint32_t>(session.peer.pid) || owner.uid != session.peer.uid ||
      owner.start_ticks != ipc::start_ticks_of(session.peer.pid))
    return not_yours();
  const auto& attachment = attachments_[slot.value];
  if (!attachment || !attachment->belongings.tables)
    return base::fail(EAGAIN,
                      fmt::format("this process (slot {}) hasn't come back to the host agent yet, which "
                                  "was restarted",
                                  slot.value));
  return slot;
}

base::Result<base::Slot> Agent::wanted_slot(const ipc::Introduce& wanted, uid_t asker) const {
  const auto nobody = [&] { return base::fail(ESRCH, fmt::format("no process has slot {}", wanted.slot)); };
  if (wanted.slot < base::kFirstProcessSlot || wanted.slot > base::kLastProcessSlot) return nobody();
  const base::Slot slot{static_cast<uint8_t>(wanted.slot)};
  const auto state = slots_->word(slot).state;
  const Owner owner = slots_->owner(slot);
  if (state == arena::SlotState::kLeased ||
      (state == arena::SlotState::kFree && !slots_->range().contains(slot.value)))
    return base::fail(EPERM,
                      fmt::format("slot {} belongs to another user's host agent, and processes of different "
                                  "users share no memory; {}",
                                  slot.value, kWirePath));
  const auto& attachment = attachments_[slot.value];
  if (state != arena::SlotState::kActive || !attachment) return nobody();
  if (owner.uid != asker)
    return base::fail(EPERM,
                      fmt::format("slot {} is a process of uid {}, you are uid {}: processes of different "
                                  "users share no memory; {}",
                                  slot.value, owner.uid, asker, kWirePath));
  if (owner.pid == 0)
    return base::fail(EPERM,
                      fmt::format("the process in slot {} is in a pid namespace that the host agent (pid {}) "
                                  "doesn't see, so it shares memory with no other; {}",
                                  slot.value, ::getpid(), kWirePath));
  if (!attachment->belongings.tables)
    return base::fail(EAGAIN,
                      fmt::format("the process in slot {} (pid {}) hasn't come back to the host agent yet, "
                                  "which was restarted; is it stopped?",
                                  slot.value, owner.pid));
  return slot;
}

base::Result<ipc::Introduced> Agent::introduce(base::Slot asker, base::Slot peer) const {
  const auto& ours = *attachments_[asker.value];
  const auto& theirs = *attachments_[peer.value];
  const Owner owner = slots_->owner(peer);
  ipc::Introduced introduced{.epoch = slots_->word(peer).epoch,
                             .has_memory = theirs.belongings.memory ? 1u : 0u,
                             .start_ticks = owner.start_ticks};
  const auto here = ipc::home_of(ours.pidfd.get());
  const auto there = ipc::home_of(theirs.pidfd.get());
  if (ipc::pid_of_pidfd(theirs.pidfd.get()) < 0)  // dead, only we haven't heard of it yet
    return base::fail(ESRCH, fmt::format("no process has slot {}", peer.value));
  if (here.inode != 0 && here.inode == there.inode) {
    introduced.pid = there.pid;
  } else if (!ours.belongings.trusts_containers || !theirs.belongings.trusts_containers) {
    return base::fail(
        EPERM,
        fmt::format(
            "the process in slot {} (pid {} to the host agent) is in another pid namespace than you, such as "
            "another container, and shares no memory with you unless VERBENA_TRUST_CONTAINERS=1 is set for "
            "both; {}",
            peer.value, owner.pid, kWirePath));
  }
  return introduced;
}

}  // namespace verbena::agent
