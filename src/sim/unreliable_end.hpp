// Queue pairs of the unreliable services with a process around them: UC promises whole messages in order or
// nothing, UD single datagrams. Losing is allowed, but never without a cause.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rc_requester.hpp"
#include "engine/uc_requester.hpp"
#include "engine/uc_responder.hpp"
#include "engine/ud.hpp"
#include "sim/datagram_sink.hpp"
#include "sim/event_queue.hpp"
#include "sim/journal.hpp"
#include "sim/letter.hpp"
#include "sim/network.hpp"
#include "sim/oracle.hpp"
#include "sim/random.hpp"

namespace verbena::sim {

// What all ends of a run share.
struct Stage {
  EventQueue& events;
  Journal& journal;
  Oracle& oracle;
};

struct UnreliableConfig {
  base::Qpn qpn;
  HostId host = 0;
  uint32_t mtu = 1024;
  uint32_t qkey = 0;
  uint64_t receive_bytes = 1 << 16;
  uint32_t receives_at_once = 1;
  base::Duration receive_lag{};  // at most so long between two such times; zero: there are always enough
  base::Duration pause{};        // at most so long between posts
  uint32_t busy = 0;             // millionths of actions that find no room
};

// What the two have in common: posting, and receives.
class UnreliableEnd : public engine::RequesterHost {
 public:
  UnreliableEnd(const UnreliableConfig& config, const Stage& stage, Random random)
      : config_(config), stage_(stage), random_(random) {}

  [[nodiscard]] const UnreliableConfig& config() const { return config_; }
  [[nodiscard]] const Causes& causes() const { return causes_; }
  [[nodiscard]] std::vector<Letter>& letters() { return letters_; }
  // Numbers below have been posted.
  [[nodiscard]] uint32_t posted() const { return posted_; }

  // Of them ended well, so that their packets are all sent.
  [[nodiscard]] uint32_t succeeded() const { return ended_ - (failed_ ? 1 : 0); }

  void run_program();
  [[nodiscard]] base::Instant next_deadline() const;
  virtual void take(base::Instant now, const roce::Packet& packet) = 0;
  // Sends one packet; false: there is none, or no room.
  virtual bool transmit(base::Instant now, Network& network) = 0;
  // All letters have ended as they must?
  void judge();
  [[nodiscard]] std::string name() const;

  [[nodiscard]] bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] bool scatter(uint32_t, uint64_t, std::span<const std::byte>, engine::Tail) override;
  void ended(uint32_t number, engine::RequestStatus status) override;

 protected:
  [[nodiscard]] virtual bool full() const = 0;
  virtual void post(const Letter& letter) = 0;
  [[nodiscard]] bool busy() { return random_.millionths(config_.busy); }
  // Is this what the letter says?
  [[nodiscard]] static bool matches(const Letter& letter, const engine::Arrival& arrival,
                                    std::span<const std::byte> bytes);

  UnreliableConfig config_;
  Stage stage_;
  Random random_;
  Causes causes_;
  uint32_t receives_ = 0;

 private:
  std::vector<Letter> letters_;
  uint32_t posted_ = 0;
  uint32_t ended_ = 0;
  bool failed_ = false;
  base::Instant next_post_{};
  base::Instant next_receives_{};
};

class UcEnd final : public UnreliableEnd, public engine::ResponderActions {
 public:
  UcEnd(const UnreliableConfig& config, const Stage& stage, Random random, base::Psn sends, base::Psn expects,
        base::Qpn peer_qpn, HostId peer_host);
  void begin(UcEnd& peer);

  void take(base::Instant now, const roce::Packet& packet) override;
  bool transmit(base::Instant now, Network& network) override;
  // Counts the WRITEs of the peer's that are there as a whole; no byte is from nowhere.
  void judge_memory();

  engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override;
  engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                        engine::Tail tail) override;
  engine::Verdict read(const engine::RemoteRange&, std::span<const iovec>, engine::Tail) override;
  engine::Verdict atomic(const engine::AtomicRequest&, uint64_t&) override;
  engine::Verdict begin_receive(const engine::Arrival& arrival) override;
  engine::Verdict place(uint64_t offset, std::span<const iovec> from, engine::Tail tail) override;
  engine::Verdict finish_receive(const engine::Arrival& arrival) override;
  engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  uint32_t credits() override { return UINT32_MAX; }
  engine::Verdict fail(engine::Verdict why, bool) override;

  static constexpr uint64_t kAddress = 0x10000;
  [[nodiscard]] uint32_t key() const { return config_.qpn.value; }

 private:
  [[nodiscard]] bool full() const override { return requester_.full(); }
  void post(const Letter& letter) override { requester_.post(letter.datagram.request); }
  [[nodiscard]] bool whole(const Letter& letter) const;

  UcEnd* peer_ = nullptr;
  HostId peer_host_;
  engine::UcRequester requester_;
  engine::UcResponder responder_;
  std::vector<std::byte> memory_;  // what the peer's WRITEs go to
  std::vector<std::byte> receiving_;
  size_t next_letter_ = 0;  // of the peer's: those before it have arrived or were lost
};

class UdEnd final : public UnreliableEnd, public engine::DatagramActions, private engine::DatagramWays {
 public:
  UdEnd(const UnreliableConfig& config, const Stage& stage, Random random, base::Psn sends);
  void begin(std::span<UdEnd* const> others) { others_ = others; }

  void take(base::Instant now, const roce::Packet& packet) override;
  bool transmit(base::Instant now, Network& network) override;

  engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  engine::Verdict fail(engine::Verdict why) override;

 private:
  [[nodiscard]] bool full() const override { return requester_.full(); }
  void post(const Letter& letter) override { requester_.post(letter.datagram); }
  engine::PacketSink& way(const engine::DatagramRequest& request) override;

  std::span<UdEnd* const> others_;
  engine::UdRequester requester_;
  engine::UdResponder responder_;
  Network* network_ = nullptr;
  std::optional<DatagramSink> sink_;
};

}  // namespace verbena::sim
