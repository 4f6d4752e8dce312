// The responder of an unreliable connection (IBA 9.8.2.2): carries out what arrives whole, answers nothing. A
// message of which a packet is missing, or that isn't allowed, is dropped silently; its receive stays for the
// next one. Sans-IO, one thread at a time.
#pragma once

#include <cstdint>

#include "base/psn.hpp"
#include "base/time.hpp"
#include "engine/drop_reason.hpp"
#include "engine/responder_actions.hpp"
#include "roce/packet.hpp"

namespace verbena::engine {

struct UcResponderConfig {
  base::Psn first_psn;
  uint32_t mtu = 1024;
};

class UcResponder {
 public:
  UcResponder(const UcResponderConfig& config, ResponderActions& actions);

  DropReason on_packet(base::Instant now, const roce::Packet& packet);
  // The queue pair went to ERR, for a receive that is at fault itself.
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] base::Psn expected() const { return expected_; }
  // Inside a message that has arrived so far.
  [[nodiscard]] bool in_message() const { return message_ == Message::kSend || message_ == Message::kWrite; }

 private:
  enum class Message : uint8_t { kNone, kSend, kWrite };
  [[nodiscard]] Verdict on_send(const roce::Packet& packet);
  [[nodiscard]] Verdict on_write(const roce::Packet& packet);
  [[nodiscard]] DropReason drop(Verdict verdict);
  void tell_failure();

  UcResponderConfig config_;
  ResponderActions& actions_;
  base::Psn expected_;
  Message message_ = Message::kNone;
  uint64_t offset_ = 0;  // within the message
  RemoteRange write_;
  bool failed_ = false;
  Verdict untold_ = Verdict::kDone;  // a failure that the actions had no room for yet
};

}  // namespace verbena::engine
