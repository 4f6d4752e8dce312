// The requester of an unreliable connection (IBA 9.8): cuts requests into packets and sends them once. A
// request has ended when its last packet is sent. Sans-IO, one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "engine/packet_sink.hpp"
#include "engine/request.hpp"

namespace verbena::engine {

struct UcRequesterConfig {
  base::Qpn target;
  base::Psn first_psn;
  uint16_t pkey = 0xffff;
  uint32_t mtu = 1024;
  uint32_t capacity = 1;  // most requests at a time
};

class UcRequester {
 public:
  UcRequester(const UcRequesterConfig& config, RequesterHost& host);

  [[nodiscard]] bool full() const { return tail_ - head_ == requests_.size(); }
  [[nodiscard]] bool idle() const { return head_ == tail_; }
  // A request ended unsuccessfully: nothing more is sent.
  [[nodiscard]] bool failed() const { return failed_; }
  // A SEND or WRITE. Not when full().
  void post(const Request& request);
  // Sends one packet, if there is one to send. False: none.
  bool poll_transmit(base::Instant now, PacketSink& sink);
  [[nodiscard]] base::Psn next_psn() const { return psn_; }

 private:
  void end_head(RequestStatus status);

  UcRequesterConfig config_;
  RequesterHost& host_;
  std::vector<Request> requests_;  // a ring, by number
  uint32_t head_ = 0;              // the one being sent
  uint32_t tail_ = 0;
  uint32_t sent_ = 0;  // packets of it
  base::Psn psn_;      // of the next packet
  bool failed_ = false;
};

}  // namespace verbena::engine
