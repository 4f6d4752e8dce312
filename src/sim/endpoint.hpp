// One end of a connection: the engine's requester and responder with memory, receives and a program around
// them. Made simply and apart from verbs/, so that it also tells whether the engine's interfaces say enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "sim/event_queue.hpp"
#include "sim/journal.hpp"
#include "sim/oracle.hpp"
#include "sim/plan.hpp"
#include "sim/random.hpp"
#include "sim/receive_pools.hpp"

namespace verbena::sim {

// The counter that all ends of a host offer, and what is known of those who added to it.
struct SharedCounter {
  uint64_t value = 0;
  uint64_t successes = 0;
  uint64_t attempts = 0;
  std::set<uint64_t> seen;  // values before
};

struct EndpointConfig {
  roce::Service service = roce::Service::kRc;  // or kXrc: receives are of the host's pools
  base::Qpn qpn;
  base::Qpn peer_qpn;
  base::Psn send_psn;
  base::Psn receive_psn;
  uint32_t mtu = 1024;
  uint32_t capacity = 16;
  unsigned fetches = 1;  // both ways
  base::Duration timeout{};
  unsigned retries = 7;
  unsigned rnr_retries = 7;
  uint8_t rnr_timer = 1;
  uint32_t window_bytes = 1 << 20;
  uint64_t data_bytes = 1 << 16;
  bool counts_credits = true;
  uint32_t busy = 0;              // millionths of actions that find no room
  uint32_t receives_at_once = 1;  // posted in the beginning and each time
  base::Duration receive_lag{};   // at most so long between two such times; zero: all at once
  base::Duration pause{};         // at most so long between posts of requests, now and then
};

class Endpoint final : public engine::RequesterHost, public engine::ResponderActions {
 public:
  Endpoint(const EndpointConfig& config, EventQueue& events, Journal& journal, Oracle& oracle,
           SharedCounter& counter, ReceivePools& pools, Random random);

  // Both ends and both plans are there: from now on it works.
  void begin(Endpoint& peer, SharedCounter& peer_counter, std::vector<Planned> plan);
  [[nodiscard]] uint64_t data_pattern() const { return data_pattern_; }
  [[nodiscard]] uint64_t read_only_pattern() const { return read_only_pattern_; }
  [[nodiscard]] uint32_t key_base() const { return config_.qpn.value << 8; }
  [[nodiscard]] const EndpointConfig& config() const { return config_; }
  [[nodiscard]] engine::RcRequester& requester() { return requester_; }
  [[nodiscard]] engine::RcResponder& responder() { return responder_; }

  // What the program does by itself: posts requests and receives that are due.
  void run_program();
  [[nodiscard]] base::Instant next_deadline() const;
  // The queue pair is in ERR: its requester is still.
  [[nodiscard]] bool in_error() const { return trouble_ != Trouble::kNone; }
  [[nodiscard]] bool finished() const { return in_error() || ended_ == plan_.size(); }
  [[nodiscard]] base::Instant finished_at() const { return finished_at_; }
  [[nodiscard]] size_t planned() const { return plan_.size(); }
  // Something happened that lets the peer's requests end in RETRY_EXC.
  void excuse() { excused_ = true; }
  void vanish() { trouble_ = Trouble::kVanished; }
  // When nothing more happens: is everything as it must be?
  void judge();
  [[nodiscard]] std::string name() const;

  [[nodiscard]] bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] bool scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                             engine::Tail tail) override;
  [[nodiscard]] size_t scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                                    engine::MorePayloads& payloads) override;
  [[nodiscard]] const std::byte* in_place(uint32_t number, uint64_t offset, size_t length) override;
  void ended(uint32_t number, engine::RequestStatus status) override;

  [[nodiscard]] engine::Verdict aim(uint32_t srq) override;
  [[nodiscard]] engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override;
  [[nodiscard]] engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] engine::Verdict read(const engine::RemoteRange& range, std::span<const iovec> into,
                                     engine::Tail tail) override;
  [[nodiscard]] size_t write_more(const engine::RemoteRange& range, size_t each, engine::Tail tail,
                                  engine::MorePayloads& payloads) override;
  [[nodiscard]] const std::byte* in_place(const engine::RemoteRange& range) override;
  [[nodiscard]] engine::Verdict atomic(const engine::AtomicRequest& request, uint64_t& before) override;
  [[nodiscard]] engine::Verdict begin_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict place(uint64_t offset, std::span<const iovec> from,
                                      engine::Tail tail) override;
  [[nodiscard]] size_t place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) override;
  [[nodiscard]] engine::Verdict finish_receive(const engine::Arrival& arrival) override;
  [[nodiscard]] engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  [[nodiscard]] uint32_t credits() override;
  [[nodiscard]] engine::Verdict fail(engine::Verdict why, bool consumes_receive) override;

 private:
  enum class Trouble : uint8_t {
    kNone,
    kOwnRequest,    // ended unsuccessfully
    kPeersRequest,  // was at fault
    kVanished,      // the process crashed
  };
  [[nodiscard]] bool may_be_given_up(uint32_t number) const;
  void check_answer(uint32_t number);
  void check_arrival(const engine::Arrival& arrival);
  void check_memory();
  [[nodiscard]] bool silent_or_busy(engine::Verdict& verdict);
  [[nodiscard]] uint64_t receive_capacity() const;
  [[nodiscard]] bool is_xrc() const { return config_.service == roce::Service::kXrc; }
  [[nodiscard]] uint32_t region_of(uint32_t key) const;
  [[nodiscard]] bool receive_is_there();
  [[nodiscard]] const Planned& awaited() const { return peer_->plan_[peer_->consuming_[consumed_]]; }

  EndpointConfig config_;
  EventQueue& events_;
  Journal& journal_;
  Oracle& oracle_;
  SharedCounter& counter_;
  SharedCounter* peer_counter_ = nullptr;
  ReceivePools& pools_;
  Random random_;
  Endpoint* peer_ = nullptr;
  engine::RcRequester requester_;
  engine::RcResponder responder_;

  std::vector<Planned> plan_;
  std::vector<uint32_t> consuming_;  // numbers of those that consume a receive of the peer's
  uint32_t posted_ = 0;
  uint32_t ended_ = 0;
  uint32_t succeeded_ = 0;
  base::Instant next_post_{};
  base::Instant finished_at_{};
  std::vector<std::vector<std::byte>> results_;  // of READs and atomics, by number modulo capacity
  Trouble trouble_ = Trouble::kNone;
  bool excused_ = false;

  std::vector<std::byte> lent_;  // what in_place() gave last

  uint64_t data_pattern_ = 0;
  uint64_t read_only_pattern_ = 0;
  std::vector<std::byte> data_;
  uint32_t receives_posted_ = 0;
  uint32_t consumed_ = 0;
  base::Instant next_receives_{};
  std::vector<std::byte> receiving_;
  // XRC: which queue the actions are about, and of which a receive was taken for the message at hand.
  std::optional<uint32_t> aimed_;
  std::optional<uint32_t> claimed_;
};

}  // namespace verbena::sim
