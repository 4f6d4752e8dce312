#include "client/cm_channel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ipc/channel.hpp"

namespace verbena::client {
namespace {

// A message that only makes the descriptor readable.
bool stands_for_held(const ipc::CmEvent& event) { return event.id == 0; }

}  // namespace

base::Result<std::shared_ptr<CmChannel>> CmChannel::create(uint32_t number) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return base::fail_errno("creating an event channel");
  return std::shared_ptr<CmChannel>(new CmChannel(number, ends[0], base::UniqueFd(ends[1])));
}

CmChannel::~CmChannel() { close_program_end(); }

void CmChannel::close_program_end() {
  if (const int fd = std::exchange(program_end_, -1); fd >= 0) ::close(fd);
}

base::Result<ipc::CmEvent> CmChannel::take() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const auto message = ipc::receive(program_end_);
    if (!message) {
      if (message.error().code != EAGAIN || (held_.empty() && late_.empty()))
        return std::unexpected(message.error());
      absorb();
    } else {
      const auto event = message->as<ipc::CmEvent>();
      if (!event) continue;  // not of ours: the program wrote into its descriptor
      if (!stands_for_held(*event)) held_.push_back(*event);
    }
    if (held_.empty()) continue;
    const ipc::CmEvent oldest = held_.front();
    held_.pop_front();
    owed_ = std::min(owed_, held_.size());
    stand_in();
    fill_socket();
    return oldest;
  }
}

void CmChannel::leave(const ipc::CmEvent& event) {
  const std::lock_guard lock(mutex_);
  late_.push_back(event);
  fill_socket();
}

void CmChannel::leave_first(const std::vector<ipc::CmEvent>& events) {
  if (events.empty()) return;
  const std::lock_guard lock(mutex_);
  absorb();
  held_.insert(held_.begin(), events.begin(), events.end());
  owed_ = held_.size();
  stand_in();
}

std::vector<ipc::CmEvent> CmChannel::extract(uint32_t id) {
  const std::lock_guard lock(mutex_);
  std::vector<ipc::CmEvent> taken;
  char first = 0;
  const bool empty = ::recv(program_end_, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) < 0;
  if (empty && held_.empty() && late_.empty()) return taken;
  absorb();
  const auto rest = std::stable_partition(held_.begin(), held_.end(),
                                          [&](const ipc::CmEvent& event) { return event.id != id; });
  taken.assign(rest, held_.end());
  held_.erase(rest, held_.end());
  owed_ = held_.size();
  stand_in();
  return taken;
}

void CmChannel::look(const std::function<void(const ipc::CmEvent&)>& at) {
  const std::lock_guard lock(mutex_);
  absorb();
  for (const auto& event : held_) at(event);
  owed_ = held_.size();
  stand_in();
}

void CmChannel::absorb() {
  for (;;) {
    const auto message = ipc::receive(program_end_);
    if (!message) break;
    if (const auto event = message->as<ipc::CmEvent>(); event && !stands_for_held(*event))
      held_.push_back(*event);
  }
  held_.insert(held_.end(), late_.begin(), late_.end());
  late_.clear();
}

void CmChannel::stand_in() {
  const int end = agent_end_.get();
  while (end >= 0 && owed_ > 0 && ipc::send(end, ipc::CmEvent{})) --owed_;
}

void CmChannel::fill_socket() {
  const int end = agent_end_.get();
  while (end >= 0 && !late_.empty() && ipc::send(end, late_.front())) late_.pop_front();
}

}  // namespace verbena::client
