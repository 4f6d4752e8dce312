// What the paths of all services over the network share: requests are handed to an engine, many at a time,
// and packets come by the port.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "verbs/send_path.hpp"
#include "wire/peering.hpp"
#include "wire/port.hpp"
#include "wire/queue_requests.hpp"

namespace verbena::wire {

class PipelinedPath : public verbs::SendPath, public Connection {
 public:
  // The send queue's side, with its lock held.
  void begin(uint32_t sq_psn) override { next_psn_ = {sq_psn}; }
  void stop() override { stopped_ = true; }
  void pass_over() override { requests_.pass_over(); }
  // From here on packets come.
  void serve(const std::shared_ptr<verbs::SendQueue>& queue) override {
    requests_.serve(*queue);
    served_ = true;
    port_->add(*this);
  }
  // Waiting for a receive, and the peer's end, are the engine's business, or nobody's.
  [[nodiscard]] uint8_t rnr_timer_code() const override { return 0; }
  [[nodiscard]] bool peer_gone() const override { return false; }
  [[nodiscard]] bool ask_for_receive() override { return true; }
  void tell_posted() override {}

 protected:
  PipelinedPath(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
                uint32_t domain)
      : port_(std::move(port)), requests_(process, std::move(self), domain) {}
  // The first thing in a destructor: the port calls what is being destroyed.
  void leave() {
    if (served_) port_->remove(*this);
  }

  std::shared_ptr<Port> port_;
  QueueRequests requests_;
  // Under the send queue's lock.
  base::Psn next_psn_;  // with which the next requester begins
  bool stopped_ = false;

 private:
  bool served_ = false;
};

// Of a connected queue pair: one way, whose other end may turn out to be Verbena.
class ConnectedPath : public PipelinedPath {
 public:
  [[nodiscard]] base::Qpn own() const override { return peering_.own; }
  [[nodiscard]] const net::Route* route() const override { return &routes_[current_.load()]; }
  [[nodiscard]] const net::Route* alternate() const override {
    return alternate_loaded_.load() ? &routes_[1 - current_.load()] : nullptr;
  }
  void refuse_path() override { migration_.refuse(); }
  void recognise() override { recognised_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool recognised() const override { return recognised_.load(std::memory_order_relaxed); }

  // Path migration.
  [[nodiscard]] verbs::PathMigration* migration() override { return &migration_; }
  void load_alternate(const verbs::Alternate& alternate) override;
  void rearm() override { migration_.rearm(); }
  void migrate() override { (void)change_path(); }

 protected:
  ConnectedPath(std::shared_ptr<Port> port, verbs::Process& process, std::shared_ptr<verbs::QueueOwner> self,
                const Peering& peering)
      : PipelinedPath(std::move(port), process, std::move(self), peering.domain),
        peering_(peering),
        routes_{peering.route, {}},
        recognised_(peering.route.recognised) {}
  [[nodiscard]] Port::Sending sending(base::Instant now, Port::Sending::Pace pace) const {
    return {*port_, *route(), recognised(), now, pace, migration_.says_migrated()};
  }
  // May it go on to the engine, by the way it came? A word about migration in it is heeded.
  [[nodiscard]] bool admit(const roce::Packet& packet, const net::Received& received);
  // False: there is no other path, or it isn't armed.
  bool change_path();
  // Did the path change in the time before `now` that is this long? The answer is given once for each change.
  [[nodiscard]] bool changed_within(base::Instant now, base::Duration span);

  Peering peering_;
  std::atomic<int64_t> alternate_timeout_ = 0;  // nanoseconds

 private:
  // The one in use, and the other: loaded under the port's receiving lock, and used only while it is loaded.
  std::array<net::Route, 2> routes_;
  std::atomic<unsigned> current_ = 0;
  std::atomic<bool> alternate_loaded_ = false;
  std::atomic<base::Instant> changed_at_{};  // to be asked for once; else none
  verbs::PathMigration migration_;
  std::atomic<bool> recognised_;
};

}  // namespace verbena::wire
