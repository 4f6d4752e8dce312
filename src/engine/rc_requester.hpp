// The requester of a reliable connection (IBA 9.7; XRC: annex A14): cuts requests into packets, sends them
// within a window, takes acknowledgements and answers, goes back to what was lost. Sans-IO: packets, time and
// chance are handed in. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "engine/drop_reason.hpp"
#include "engine/granted_ranges.hpp"
#include "engine/packet_sink.hpp"
#include "engine/request.hpp"
#include "engine/timers.hpp"
#include "engine/window.hpp"

namespace verbena::engine {

inline constexpr base::Instant kNoDeadline{INT64_MAX};

struct RcRequesterConfig {
  roce::Service service = roce::Service::kRc;  // or kXrc, which differs in headers only
  base::Qpn target;
  base::Psn first_psn;
  uint16_t pkey = 0xffff;
  uint32_t mtu = 1024;       // payload of a full packet
  uint32_t capacity = 1;     // most requests at a time
  unsigned fetches = 1;      // READs and atomics under way at a time (max_rd_atomic)
  base::Duration timeout{};  // zero: never gives up
  unsigned retries = 7;      // timeouts that are borne before giving up
  unsigned rnr_retries = kEndlessRnrRetries;
  uint32_t window_bytes = 1 << 20;  // the most that the window may grow to
  uint32_t chance = 1;              // spreads the retries of many requesters
};

class RcRequester {
 public:
  RcRequester(const RcRequesterConfig& config, RequesterHost& host);

  [[nodiscard]] bool full() const { return tail_ - head_ == config_.capacity; }
  // Nothing waits and nothing is under way.
  [[nodiscard]] bool idle() const { return head_ == tail_; }
  [[nodiscard]] bool failed() const { return failed_; }
  // Some packet waits until it may be sent.
  [[nodiscard]] bool has_unsent() const { return !failed_ && cursor_ != tail_; }
  // Not when full(). Sends nothing yet.
  void post(const Request& request);
  // Sends one packet, or a few that are alike, if it may be done now. False: none.
  bool poll_transmit(base::Instant now, PacketSink& sink);
  // An acknowledgement or answer.
  DropReason on_packet(base::Instant now, const roce::Packet& packet);
  // After a middle one of a READ's answers that was taken: what may follow it. How many were taken.
  size_t on_more(base::Instant now, const roce::Packet& before, MorePayloads& payloads);
  [[nodiscard]] base::Instant next_deadline() const;
  void on_timer(base::Instant now);
  // ibv_modify_qp may change them while requests are under way.
  // Part of a READ isn't asked for again in parts of its own: rxe forgets what lies before the last of them.
  void set_whole_replays(bool whole) { whole_replays_ = whole; }
  // WRITEs that are posted from now on may go as packets of one length, and READs be asked for in pairs
  // (adr/0019), where the peer has let us before: what it refuses it must refuse as a whole.
  void set_even(bool even) { even_ = even; }
  void set_retry_rules(base::Duration timeout, unsigned retries, unsigned rnr_retries);
  [[nodiscard]] base::Psn next_psn() const { return end_psn_; }
  // Packets that were sent and aren't acknowledged.
  [[nodiscard]] uint32_t under_way() const { return cursor_psn().since(unacknowledged()); }

  struct Counters {
    uint64_t packets = 0;
    uint64_t retransmitted = 0;
    uint64_t timeouts = 0;
    uint64_t sequence_naks = 0;
    uint64_t rnr_naks = 0;
    uint64_t implied_losses = 0;  // answers that show that one before them was lost
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] const Window& window() const { return window_; }

 private:
  struct Flight {
    Request request;
    base::Psn first;
    uint32_t packets = 1;          // of the request or, for a READ, of its answer
    uint32_t done = 0;             // of them acknowledged or received
    uint64_t cost_before = 0;      // of all requests ever posted before it
    uint32_t messages_before = 0;  // that consume a receive
    bool unreadable = false;       // gather failed: ends so when its turn comes
    bool even = false;             // a WRITE whose packets are messages of their own, a READ of pairs
  };
  [[nodiscard]] Flight& at(uint32_t number) { return requests_[number & mask_]; }
  [[nodiscard]] const Flight& at(uint32_t number) const { return requests_[number & mask_]; }
  [[nodiscard]] uint64_t cost_until(const Flight& flight, uint32_t packets) const;
  [[nodiscard]] uint64_t cost_acknowledged() const;
  [[nodiscard]] base::Psn unacknowledged() const;
  [[nodiscard]] base::Psn cursor_psn() const;

  [[nodiscard]] bool goes_even(const Request& request) const;
  [[nodiscard]] bool may_start(const Flight& flight) const;
  [[nodiscard]] bool has_no_credit_for(const Flight& flight) const;
  [[nodiscard]] bool followed_at_once() const;
  [[nodiscard]] bool worth_asking(bool last) const;
  [[nodiscard]] roce::Packet packet_for(const Request& request) const;
  [[nodiscard]] roce::Packet piece_of(const Flight& flight, uint32_t index, uint32_t length) const;
  bool send_middles(base::Instant now, const Flight& flight, PacketSink& sink);
  bool send_piece(base::Instant now, Flight& flight, PacketSink& sink);
  bool ask_again(base::Instant now, const Flight& unreadable, PacketSink& sink);
  bool send_fetch(base::Instant now, Flight& flight, PacketSink& sink);
  bool send_read(base::Instant now, const Flight& flight, PacketSink& sink);
  [[nodiscard]] uint32_t worth_reading(const Flight& flight) const;
  [[nodiscard]] uint32_t ask_in_pairs(const Flight& flight, uint32_t packets, PacketSink& sink);
  [[nodiscard]] roce::Packet read_request(const Flight& flight, uint32_t index, uint32_t packets) const;
  [[nodiscard]] uint64_t unasked_limit() const;
  void sent(base::Instant now, base::Psn psn, uint32_t packets, bool asks);

  [[nodiscard]] bool acknowledge_before(base::Instant now, base::Psn psn);
  DropReason on_acknowledge(base::Instant now, const roce::Packet& packet);
  DropReason on_nak(base::Instant now, const roce::Packet& packet);
  DropReason on_read_response(base::Instant now, const roce::Packet& packet);
  DropReason on_atomic_acknowledge(base::Instant now, const roce::Packet& packet);
  [[nodiscard]] const Flight& answered_by(base::Psn psn) const;
  [[nodiscard]] bool fits_read(const Flight& flight, const roce::Packet& packet) const;
  DropReason take_credits(const roce::Aeth& aeth);
  void progressed(base::Instant now);
  void end_head(RequestStatus status);
  void end_unreadable();
  void fail_head(RequestStatus status);
  void rewind();
  void arm(base::Instant now);
  [[nodiscard]] base::Instant gives_up_at() const;
  void excuse(base::Duration late, base::Instant now);
  void implied_loss(base::Instant now, base::Psn psn);
  void lost(base::Instant now);
  [[nodiscard]] bool second_try_answered(base::Instant now) const;
  void take_sample(base::Duration sample);
  [[nodiscard]] base::Duration patience() const;
  [[nodiscard]] base::Duration rnr_wait(uint8_t syndrome, base::Instant now) const;

  RcRequesterConfig config_;
  RequesterHost& host_;
  std::vector<Flight> requests_;  // a power of two of them
  uint32_t mask_;
  // head_ <= cursor_ <= tail_: ended | under way | being sent | waiting.
  uint32_t head_ = 0;
  uint32_t cursor_ = 0;
  uint32_t tail_ = 0;
  uint32_t cursor_packet_ = 0;  // packets of the request at the cursor that were sent
  base::Psn next_psn_;          // of the next request posted
  base::Psn end_psn_;           // one past the highest ever sent
  uint64_t cost_posted_ = 0;
  uint64_t cost_sent_ = 0;     // up to the cursor
  uint64_t cost_asked_ = 0;    // up to where an acknowledgement was asked for
  uint32_t number_asked_ = 0;  // the request behind that
  uint32_t messages_posted_ = 0;
  bool failed_ = false;

  std::vector<base::Psn> fetch_ends_;  // one past the last answer of each fetch under way
  // Where fetches that are made again ended the first time: a responder replays no more than it was asked
  // for.
  std::vector<base::Psn> replay_ends_;
  bool whole_replays_ = false;
  bool even_ = false;
  GrantedRanges writable_;
  GrantedRanges readable_;
  uint32_t message_limit_ = 0;  // messages that may be sent, by the receiver's credits
  bool credits_known_ = false;

  Window window_;
  base::Instant deadline_ = kNoDeadline;
  base::Instant stalled_since_{};
  bool excused_ = false;  // was away when it should have given up, since the last progress
  unsigned backoff_ = 0;
  base::Instant rnr_until_{};
  unsigned rnr_attempts_ = 0;
  base::Instant rnr_since_{};  // of the first of them
  bool recovering_ = false;    // went back since the last progress
  bool timed_out_ = false;     // because nothing came for long
  unsigned quick_tries_ = 0;   // times that it went back at once since then
  bool resent_ = false;        // and sent something since
  bool overtaken_ = false;     // acknowledgements passed the cursor
  base::Instant resent_at_{};
  base::Psn last_answer_;  // of those that came too early

  bool timing_ = false;
  base::Psn timed_;
  base::Instant timed_at_{};
  base::Duration smoothed_{};
  base::Duration variation_{};
  base::Duration shortest_{};
  Counters counters_;
};

}  // namespace verbena::engine
