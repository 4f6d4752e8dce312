// What the agent hands on without a part in it: a process's counters to tools, strayed packets to their
// owner.
#include <fmt/format.h>
#include <unistd.h>

#include "agent/agent.hpp"

namespace verbena::agent {

void Agent::on_look(Session& session, const ipc::Message& message) {
  const auto wanted = message.as<ipc::Look>();
  if (!wanted || wanted->slot > base::kLastProcessSlot)
    return refuse(session, {EPROTO, "a Look names a slot that can't be"});
  const base::Slot slot{static_cast<uint8_t>(wanted->slot)};
  const auto& attachment = attachments_[slot.value];
  if (!attachment || !attachment->belongings.tables)
    return refuse(session, {ESRCH, fmt::format("no process is in slot {}", slot.value)});
  if (session.peer.uid != 0 && session.peer.uid != slots_->owner(slot).uid)
    return refuse(session, {EPERM, fmt::format("slot {} is another user's", slot.value)});
  const int tables = attachment->belongings.tables.get();
  answer(session, ipc::Looked{}, std::span(&tables, 1));
}

void Agent::on_stray(Session& session, const ipc::Message& message) {
  const auto stray = message.as<ipc::Stray>();
  if (!stray || !session.slot || stray->length > sizeof stray->bytes) {
    registry_.count(arena::Counter::kBadMessages);
    return end_session(session.socket.get());
  }
  registry_.count(arena::Counter::kStrays);
  if (stray->slot < base::kFirstProcessSlot || stray->slot > base::kLastProcessSlot) return;
  const auto& attachment = attachments_[stray->slot];
  // Of the same user only: a packet is believed to have come from where it says.
  if (!attachment || attachment->session < 0 ||
      slots_->owner({static_cast<uint8_t>(stray->slot)}).uid != session.peer.uid)
    return;
  (void)ipc::send(attachment->session, *stray);
}

}  // namespace verbena::agent
