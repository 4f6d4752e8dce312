// The responder of a reliable connection (IBA 9.7.4; XRC: annex A14): takes requests in the order of their
// PSNs, carries them out by the responder's actions, answers. Sans-IO, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "engine/drop_reason.hpp"
#include "engine/packet_sink.hpp"
#include "engine/responder_actions.hpp"

namespace verbena::engine {

struct RcResponderConfig {
  roce::Service service = roce::Service::kRc;  // or kXrc: each request names a shared receive queue
  base::Qpn requester;
  base::Psn first_psn;
  uint16_t pkey = 0xffff;
  uint32_t mtu = 1024;
  unsigned fetches = 1;   // READs and atomics whose answers are kept (max_dest_rd_atomic)
  uint8_t rnr_timer = 0;  // code of the wait that an RNR NAK asks for
};

class RcResponder {
 public:
  RcResponder(const RcResponderConfig& config, ResponderActions& actions);

  DropReason on_packet(base::Instant now, const roce::Packet& packet);
  // After a packet that was taken and may_be_followed(): what follows it. How many were taken.
  size_t on_more(const roce::Packet& before, MorePayloads& payloads);
  // Sends one answer, if one is due. Called after a batch of packets, so that one acknowledgement serves all.
  bool poll_transmit(base::Instant now, PacketSink& sink);
  [[nodiscard]] bool has_answers() const {
    return ack_due_ || nak_ != 0 || !due_.empty() || untold_ != Verdict::kDone;
  }
  // Nothing that the requester waits for but an acknowledgement.
  [[nodiscard]] bool only_acknowledges() const {
    return ack_due_ && nak_ == 0 && due_.empty() && untold_ == Verdict::kDone;
  }
  // The acknowledgement that is due, for whoever sends it in poll_transmit's stead. owe_acknowledgement() has
  // it due again.
  [[nodiscard]] roce::Packet take_acknowledgement();
  void owe_acknowledgement() { ack_due_ = true; }
  void set_rnr_timer(uint8_t code) { config_.rnr_timer = code; }
  // The queue pair went to ERR: nothing is answered any more but the NAK that says so.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] base::Psn expected() const { return expected_; }
  // Inside a message: a requester that vanishes now leaves a receive half filled.
  [[nodiscard]] bool in_message() const { return message_ != Message::kNone; }

 private:
  enum class Message : uint8_t { kNone, kSend, kWrite };
  // A READ or atomic: what was answered, and is answered again if the answer is lost.
  struct Job {
    base::Psn first;
    uint32_t packets = 1;
    uint32_t each = 1;  // of them belong to a request: to less than all, if it was asked for in pairs
    bool atomic = false;
    uint64_t before = 0;  // the atomic's answer
    RemoteRange range;
    uint32_t msn = 0;
    uint32_t srq = 0;
  };
  // Answers to be sent: of a job, packets `next` to `end`.
  struct Due {
    uint64_t job = 0;
    uint32_t begin = 0;
    uint32_t next = 0;
    uint32_t end = 0;
    bool again = false;
  };
  [[nodiscard]] size_t more_of_message(MorePayloads& payloads);
  [[nodiscard]] size_t more_writes(const roce::Packet& before, MorePayloads& payloads);
  [[nodiscard]] size_t more_reads(const roce::Packet& before, MorePayloads& payloads);
  [[nodiscard]] DropReason on_duplicate(const roce::Packet& packet);
  [[nodiscard]] DropReason on_gap(base::Psn psn);
  [[nodiscard]] DropReason on_packet_after_failure(const roce::Packet& packet);
  [[nodiscard]] DropReason replay(const roce::Packet& packet);
  [[nodiscard]] bool shape_fits(const roce::Packet& packet) const;
  [[nodiscard]] Verdict aim(uint32_t srq, bool anew);
  [[nodiscard]] uint8_t ack_syndrome();
  [[nodiscard]] Verdict carry_out(const roce::Packet& packet);
  [[nodiscard]] Verdict on_send(const roce::Packet& packet);
  [[nodiscard]] Verdict on_write(const roce::Packet& packet);
  [[nodiscard]] Verdict on_read(const roce::Packet& packet);
  [[nodiscard]] Verdict on_atomic(const roce::Packet& packet);
  [[nodiscard]] Verdict on_atomic_write(const roce::Packet& packet);
  [[nodiscard]] DropReason refuse(Verdict verdict, const roce::Packet& packet);
  void fail(Verdict verdict, bool consumes_receive, base::Psn psn, uint32_t srq);
  void tell_failure();
  [[nodiscard]] bool add_job(const Job& job);
  [[nodiscard]] bool goes_on(const RemoteRange& range, uint32_t packets) const;
  void extend_job(uint64_t bytes, uint32_t packets);
  [[nodiscard]] Job& job(uint64_t number) { return jobs_[number % jobs_.size()]; }
  [[nodiscard]] const Job& job(uint64_t number) const { return jobs_[number % jobs_.size()]; }
  [[nodiscard]] bool in_pairs(const Job& job) const {
    return config_.service == roce::Service::kRc && job.each == roce::kPair;
  }
  [[nodiscard]] uint32_t granted() const { return static_cast<uint32_t>(jobs_.size()) - 1; }
  // When so many have been made.
  [[nodiscard]] bool remembered(uint64_t number, uint64_t made) const {
    return made - number <= (in_pairs(job(number)) ? jobs_.size() : granted());
  }
  bool send_due(PacketSink& sink);
  bool send_read_run(Due& due, PacketSink& sink);
  [[nodiscard]] roce::Packet read_response(const Due& due);
  bool send_read_response(Due& due, PacketSink& sink);
  void send_aeth(uint8_t syndrome, base::Psn psn, PacketSink& sink);
  [[nodiscard]] roce::Packet aeth_packet(uint8_t syndrome, base::Psn psn) const;
  [[nodiscard]] roce::Packet answer(roce::Operation operation, base::Psn psn) const;

  RcResponderConfig config_;
  ResponderActions& actions_;
  base::Psn expected_;
  uint32_t msn_ = 0;  // messages carried out, 24 bits
  bool failed_ = false;
  uint8_t last_nak_ = 0;             // of the failure: told again when asked again
  bool gap_told_ = false;            // a NAK is out: nothing more of this gap is told
  base::Psn gap_last_;               // the last packet that came after the gap
  Verdict untold_ = Verdict::kDone;  // a failure that the actions weren't told of yet
  bool untold_consumes_ = false;
  uint32_t untold_srq_ = 0;

  Message message_ = Message::kNone;
  uint32_t srq_ = 0;     // of the message, or of the last one
  uint64_t offset_ = 0;  // within the message
  RemoteRange write_;
  std::optional<uint32_t> aimed_;  // the queue that the actions are about

  // A ring of the newest ones. One more than are granted: those that were asked for in pairs don't begin
  // where the requester's READs do.
  std::vector<Job> jobs_;
  uint64_t jobs_made_ = 0;
  std::vector<Due> due_;  // in the order of sending
  bool ack_due_ = false;
  uint8_t nak_ = 0;  // its syndrome; 0: none is due
  base::Psn nak_psn_;
};

}  // namespace verbena::engine
