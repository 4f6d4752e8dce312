#include "keeper/keeper.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <type_traits>

#include "ipc/rendezvous.hpp"

namespace verbena::keeper {
namespace {

constexpr base::Duration kIdle = base::seconds(1);
constexpr size_t kMostSessions = 1024;

}  // namespace

void Keeper::run(int stop) {
  for (;;) {
    std::vector<pollfd> polled{{stop, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const auto& [name, device] : targets_.devices())
      polled.push_back({device.open->events().fd(), POLLIN, 0});
    const size_t first_session = polled.size();
    for (const auto& [socket, session] : sessions_) polled.push_back({socket, POLLIN, 0});
    if (::poll(polled.data(), polled.size(), sessions_.empty() ? 100 : -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = first_session; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const auto session = sessions_.find(polled[i].fd);
      if (on_readable(session->second)) continue;
      targets_.release_all(session->second.holdings);
      sessions_.erase(session);
    }
    size_t at = 2;
    for (const auto& [name, device] : targets_.devices())
      if (at < first_session && polled[at++].revents != 0) tell_events(device);
    if (polled[1].revents != 0) accept();
    if (!sessions_.empty()) idle_since_ = base::now();
    if (base::now() - idle_since_ >= kIdle) return;
  }
}

void Keeper::accept() {
  base::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  const auto peer = ipc::peer_of(socket.get());
  if (!peer || peer->uid != ::geteuid() || sessions_.size() >= kMostSessions) return;
  const int key = socket.get();
  sessions_[key].socket = std::move(socket);
}

bool Keeper::on_readable(Session& session) {
  const auto message = ipc::receive(session.socket.get());
  if (!message) return message.error().code == EAGAIN;
  on_message(session, *message);
  return true;
}

template <typename Answer>
void Keeper::answer(Session& session, const base::Result<Answer>& result) {
  base::Result<void> sent;
  if (!result) {
    ipc::Refused refused{.code = result.error().code};
    ipc::set_text(refused.sentence, result.error().sentence);
    sent = ipc::send(session.socket.get(), refused);
  } else if constexpr (std::is_void_v<Answer>) {
    sent = ipc::send(session.socket.get(), ipc::Done{});
  } else {
    sent = ipc::send(session.socket.get(), *result);
  }
  // Whoever doesn't read is cut off.
  if (!sent) ::shutdown(session.socket.get(), SHUT_RDWR);
}

void Keeper::on_message(Session& session, const ipc::Message& message) {
  Holdings& holder = session.holdings;
  const auto with = [&]<typename Command>(auto&& act) {
    const auto command = message.as<Command>();
    if (!command) return answer(session, base::Result<void>(std::unexpected(command.error())));
    answer(session, act(*command));
  };
  switch (message.kind) {
    case ipc::Kind::kXrcOpenDomain:
      return with.operator()<ipc::XrcOpenDomain>(
          [&](const auto& c) { return targets_.open_domain(holder, c); });
    case ipc::Kind::kXrcCloseDomain:
      return with.operator()<ipc::XrcCloseDomain>(
          [&](const auto& c) { return targets_.close_domain(holder, c.id); });
    case ipc::Kind::kXrcServe:
      return with.operator()<ipc::XrcServe>([&](const auto& c) { return targets_.serve(holder, c); });
    case ipc::Kind::kXrcCreate:
      return with.operator()<ipc::XrcCreate>([&](const auto& c) { return targets_.create(holder, c); });
    case ipc::Kind::kXrcOpen:
      return with.operator()<ipc::XrcOpen>([&](const auto& c) { return targets_.open(holder, c); });
    case ipc::Kind::kXrcRelease:
      return with.operator()<ipc::XrcRelease>([&](const auto& c) { return targets_.release(holder, c.qpn); });
    case ipc::Kind::kXrcModify:
      return with.operator()<ipc::XrcModify>([&](const auto& c) { return targets_.modify(holder, c); });
    case ipc::Kind::kXrcQuery:
      return with.operator()<ipc::XrcQuery>([&](const auto& c) { return targets_.query(holder, c); });
    default:
      ::shutdown(session.socket.get(), SHUT_RDWR);
  }
}

void Keeper::tell_events(const Device& device) {
  const auto event = device.open->events().take();
  if (!event) return;
  const uint32_t qpn = targets_.named(event->element);
  if (qpn == 0) return;  // a port's, which every process hears of by itself
  for (auto& [socket, session] : sessions_)
    if (session.holdings.targets.contains(qpn))
      (void)ipc::send(socket, ipc::XrcEvent{.qpn = qpn, .type = event->type});
}

}  // namespace verbena::keeper
