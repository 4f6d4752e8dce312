// The agent's side of connection management: who may ask for it, and which sessions it has.
#include <algorithm>

#include "agent/agent.hpp"

namespace verbena::agent {

void Agent::on_cm_open(Session& session, const ipc::Message& message) {
  const auto open = message.as<ipc::CmOpen>();
  if (!open || !message.fds.empty() || session.cm != 0 || session.slot) {
    registry_.count(arena::Counter::kBadMessages);
    const int key = session.socket.get();
    refuse(session, {EPROTO, "a second or malformed CmOpen, or one on the connection that is attached"});
    return end_session(key);
  }
  const auto slot = own_slot(session, open->own_slot, open->own_epoch);
  if (!slot) return refuse(session, slot.error());
  session.cm_slot = *slot;
  session.cm = cm_->add_client(session.peer.pid, session.peer.uid);
  answer(session, ipc::Done{});
}

void Agent::on_cm_command(Session& session, ipc::Message& message) {
  const int key = session.socket.get();
  const auto done = cm_->on_command(session.cm, message);
  if (done) return std::visit([&](const auto& reply) { answer(session, reply); }, *done);
  refuse(session, done.error());
  if (done.error().code != EPROTO) return;
  registry_.count(arena::Counter::kBadMessages);
  end_session(key);
}

void Agent::end_cm_of(base::Slot slot) {
  std::vector<int> ending;
  for (const auto& [socket, session] : sessions_)
    if (session.cm != 0 && session.cm_slot == slot) ending.push_back(socket);
  for (const int socket : ending) end_session(socket);
}

void Agent::go_on_with_cm(base::Instant now) {
  cm_->go_on(now);
  for (const auto client : cm_->take_cut_off()) {
    const auto found =
        std::ranges::find_if(sessions_, [client](const auto& s) { return s.second.cm == client; });
    if (found == sessions_.end()) continue;
    end_session(found->first);
    cm_->go_on(now);  // the other ends of its connections get to know
  }
  if (qp1_) qp1_->flush();
}

}  // namespace verbena::agent
