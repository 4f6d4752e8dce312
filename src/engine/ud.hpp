// Datagrams (IBA 9.8.3): a message is a packet, to whom each request says. Sans-IO, one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.hpp"
#include "base/psn.hpp"
#include "base/time.hpp"
#include "engine/drop_reason.hpp"
#include "engine/packet_sink.hpp"
#include "engine/request.hpp"
#include "engine/responder_actions.hpp"

namespace verbena::engine {

struct DatagramRequest {
  Request request;  // a SEND
  base::Qpn target;
  uint32_t qkey = 0;     // with the high bit set the sender's own is used (IBA 10.2.5)
  uint32_t address = 0;  // the host's name for where it goes: an address handle
};

// Ways to where datagrams go.
class DatagramWays {
 public:
  virtual ~DatagramWays() = default;
  // Where the request's packet is put. The same request may be asked for again.
  [[nodiscard]] virtual PacketSink& way(const DatagramRequest& request) = 0;
};

struct UdRequesterConfig {
  base::Qpn source;
  base::Psn first_psn;
  uint16_t pkey = 0xffff;
  uint32_t qkey = 0;
  uint32_t mtu = 1024;
  uint32_t capacity = 1;  // most requests at a time
};

class UdRequester {
 public:
  UdRequester(const UdRequesterConfig& config, RequesterHost& host);

  [[nodiscard]] bool full() const { return tail_ - head_ == requests_.size(); }
  [[nodiscard]] bool idle() const { return head_ == tail_; }
  // A request ended unsuccessfully: nothing more is sent.
  [[nodiscard]] bool failed() const { return failed_; }
  void post(const DatagramRequest& request);
  // Sends one packet, if there is one and its way takes it now. False: none.
  bool poll_transmit(base::Instant now, DatagramWays& ways);
  [[nodiscard]] base::Psn next_psn() const { return psn_; }

 private:
  void end_head(RequestStatus status);

  UdRequesterConfig config_;
  RequesterHost& host_;
  std::vector<DatagramRequest> requests_;  // a ring, by number
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  base::Psn psn_;
  bool failed_ = false;
};

struct UdResponderConfig {
  uint32_t qkey = 0;
  uint32_t mtu = 1024;
};

class UdResponder {
 public:
  UdResponder(const UdResponderConfig& config, DatagramActions& actions)
      : config_(config), actions_(actions) {}

  DropReason on_packet(base::Instant now, const roce::Packet& packet);
  void set_qkey(uint32_t qkey) { config_.qkey = qkey; }
  // The queue pair went to ERR, for a receive that is at fault itself.
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  void tell_failure();

  UdResponderConfig config_;
  DatagramActions& actions_;
  bool failed_ = false;
  Verdict untold_ = Verdict::kDone;  // a failure that the actions had no room for yet
};

}  // namespace verbena::engine
