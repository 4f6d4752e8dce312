// The way in: the port as it is, between a link that hands over what a test says and a queue pair's engines
// with a process of the test's own behind them.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/rc_requester.hpp"
#include "engine/rc_responder.hpp"
#include "engine/uc_responder.hpp"
#include "engine/ud.hpp"
#include "roce/bytes.hpp"
#include "support/engine_model.hpp"
#include "wire/port.hpp"

namespace verbena::test {

inline constexpr uint32_t kMtu = 256;
inline constexpr uint32_t kKey = 0x1234;
inline constexpr uint64_t kAddress = 0x10000;
inline constexpr size_t kRegionBytes = 1024;
inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr uint32_t kWindow = 0x5678;   // the only key that a SEND may invalidate
inline constexpr uint32_t kSharedQueues = 3;  // XRC: those from 0 on are there
inline constexpr base::Slot kSlot{7};
inline constexpr base::Qpn kOwn = base::Qpn::make(kSlot, 0x0203);
inline constexpr base::Qpn kPeer{0x050607};
inline constexpr base::Psn kExpected{0xfffffe};  // of requests to us
inline constexpr base::Psn kSent{0x7ffffe};      // of ours

enum class Way : uint8_t { kRecognised, kIpv6, kForeign };

[[nodiscard]] net::Route route_of(Way way);
// BTH to ICRC, as the peer sends it.
[[nodiscard]] std::vector<std::byte> bytes_of(const roce::Packet& packet, Way way);
// Makes the ICRC right again after a change.
void seal(std::vector<std::byte>& bytes, Way way, uint16_t id = 0);

class RigLink final : public net::Link {
 public:
  bool send(const net::Run& run) override {
    for (size_t i = 0; i < run.packets(); ++i)
      sent_to.push_back({roce::load_be<uint32_t>(&run.packet(i)[4]) & 0xffffff});
    return true;
  }
  uint16_t source_port(const net::Route&) override { return 0xc000; }
  size_t receive(net::Sink& sink, size_t budget) override;
  int fd() const override { return -1; }

  std::deque<net::Received> waiting;  // the bytes are the test's
  std::deque<net::ReceivedRun> runs;  // come after them
  std::vector<base::Qpn> sent_to;     // by the port itself
};

// The model's, with a memory window that the peer may invalidate.
class RigActions final : public engine::ResponderActions {
 public:
  explicit RigActions(ModelActions& model) : model_(model) {}

  engine::Verdict aim(uint32_t srq) override { return model_.aim(srq); }
  engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override {
    return model_.check(range, use);
  }
  engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                        engine::Tail tail) override {
    return model_.write(range, from, tail);
  }
  engine::Verdict read(const engine::RemoteRange& range, std::span<const iovec> into,
                       engine::Tail tail) override {
    return model_.read(range, into, tail);
  }
  size_t write_more(const engine::RemoteRange& range, size_t each, engine::Tail tail,
                    engine::MorePayloads& payloads) override {
    return model_.write_more(range, each, tail, payloads);
  }
  const std::byte* in_place(const engine::RemoteRange& range) override { return model_.in_place(range); }
  engine::Verdict atomic(const engine::AtomicRequest& request, uint64_t& before) override;
  engine::Verdict begin_receive(const engine::Arrival& arrival) override {
    return model_.begin_receive(arrival);
  }
  engine::Verdict place(uint64_t offset, std::span<const iovec> from, engine::Tail tail) override {
    return model_.place(offset, from, tail);
  }
  size_t place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) override {
    return model_.place_more(offset, each, payloads);
  }
  engine::Verdict finish_receive(const engine::Arrival& arrival) override {
    return may_invalidate(arrival) ? model_.finish_receive(arrival) : engine::Verdict::kNotWindow;
  }
  engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override {
    return may_invalidate(arrival) ? model_.deliver(arrival, from) : engine::Verdict::kNotWindow;
  }
  uint32_t credits() override { return model_.credits(); }
  engine::Verdict fail(engine::Verdict why, bool consumes_receive) override {
    return model_.fail(why, consumes_receive);
  }

 private:
  [[nodiscard]] static bool may_invalidate(const engine::Arrival& arrival) {
    return !arrival.invalidates || arrival.imm == kWindow;
  }
  ModelActions& model_;
};

class RigConnection final : public wire::Connection {
 public:
  RigConnection(roce::Service service, Way way, size_t region_bytes);

  [[nodiscard]] base::Qpn own() const override { return kOwn; }
  [[nodiscard]] const net::Route* route() const override { return &route_; }
  void recognise() override {}
  [[nodiscard]] bool recognised() const override { return route_.recognised; }
  void go_on(base::Instant now) override;
  wire::Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) override;
  size_t on_more(base::Instant now, const roce::Packet& before, engine::MorePayloads& payloads) override;

  // Everything that a packet may change.
  [[nodiscard]] std::string state() const;

  ModelActions actions;
  ModelHost host;
  std::optional<engine::RcRequester> requester;
  std::optional<engine::RcResponder> responder;
  std::optional<engine::UcResponder> uc;
  std::optional<engine::UdResponder> ud;
  std::vector<roce::Operation> order;  // of packets as they were handed over, but for those that followed one
  KeepingSink requests;                // what was sent
  KeepingSink answers;

 private:
  void open_reliable();

  roce::Service service_;
  net::Route route_;
  RigActions responders_{actions};
};

class PortRig {
 public:
  PortRig(roce::Service service, Way way, size_t region_bytes = kRegionBytes);
  ~PortRig() { port_->remove(connection); }

  // Hands it to the port; why it was of no use, as the port's counters tell it (kNone: it was).
  wire::Drop receive(const std::vector<std::byte>& bytes, unsigned segment = 0);
  // As it comes from somewhere else, or to another address of ours.
  wire::Drop receive(net::Received received);
  [[nodiscard]] net::Received received(const std::vector<std::byte>& bytes) const;
  // Packets of one size that come together: merged, or one by one.
  void receive_together(std::span<const std::vector<std::byte>> packets, bool merged);
  [[nodiscard]] const wire::Port::Counters& counters() const { return port_->counters(); }
  // Packets that the port itself has sent there.
  [[nodiscard]] ptrdiff_t sent_to(base::Qpn whom) const { return std::ranges::count(link_->sent_to, whom); }

  RigConnection connection;
  base::Instant now{1'000'000'000};

 private:
  Way way_;
  RigLink* link_;
  std::unique_ptr<wire::Port> port_;
  std::vector<uint64_t> seen_ = std::vector<uint64_t>(static_cast<size_t>(wire::Drop::kCount));
};

}  // namespace verbena::test
