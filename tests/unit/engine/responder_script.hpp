// A responder with actions that do as they are told and write down what they were asked for.
#pragma once

#include <fmt/format.h>

#include <optional>

#include "engine/rc_responder.hpp"
#include "script.hpp"

namespace verbena::engine {

class ScriptActions final : public ResponderActions {
 public:
  // What the next action that isn't a question says; then kDone again.
  Verdict next = Verdict::kDone;
  Verdict fail_says = Verdict::kDone;
  Verdict read_says = Verdict::kDone;
  Verdict aim_says = Verdict::kDone;  // the next time
  uint32_t receives = UINT32_MAX;
  uint64_t counter = 0;
  Lines done;

  Verdict aim(uint32_t srq) override {
    const auto verdict = std::exchange(aim_says, Verdict::kDone);
    done.push_back(verdict == Verdict::kDone ? fmt::format("aim {:x}", srq) : fmt::format("miss {:x}", srq));
    return verdict;
  }
  Verdict check(const RemoteRange& range, RemoteUse use) override {
    return say(fmt::format("check {} {:x}+{}", use == RemoteUse::kRead ? "read" : "write", range.address,
                           range.length));
  }
  Verdict write(const RemoteRange& range, std::span<const iovec>, Tail tail) override {
    return say(
        fmt::format("write {:x}+{}{}", range.address, range.length, tail == Tail::kLast ? " last" : ""));
  }
  Verdict read(const RemoteRange&, std::span<const iovec>, Tail) override {
    return std::exchange(read_says, Verdict::kDone);
  }
  Verdict atomic(const AtomicRequest& request, uint64_t& before) override {
    const bool writes = request.kind == AtomicKind::kWrite;
    const auto verdict = say(writes ? fmt::format("store {:x} at {:x}", request.first, request.address)
                                    : fmt::format("add {}", request.first));
    if (verdict != Verdict::kDone || writes) return verdict;
    before = counter;
    counter += request.first;
    return verdict;
  }
  Verdict begin_receive(const Arrival& arrival) override {
    return say(arrival.kind == Arrival::Kind::kSend ? "begin" : "begin imm");
  }
  Verdict place(uint64_t offset, std::span<const iovec> from, Tail tail) override {
    return say(fmt::format("place {}+{}{}", offset, from.empty() ? 0 : from[0].iov_len,
                           tail == Tail::kLast ? " last" : ""));
  }
  Verdict finish_receive(const Arrival& arrival) override {
    return say(arrival.invalidates ? fmt::format("finish {} invalidates {:x}", arrival.length, arrival.imm)
                                   : fmt::format("finish {}", arrival.length));
  }
  Verdict deliver(const Arrival& arrival, std::span<const iovec>) override {
    return say(arrival.invalidates ? fmt::format("deliver {} invalidates {:x}", arrival.length, arrival.imm)
                                   : fmt::format("deliver {}", arrival.length));
  }
  uint32_t credits() override { return receives; }
  Verdict fail(Verdict why, bool) override {
    done.push_back(fmt::format("fail {}", static_cast<int>(why)));
    return std::exchange(fail_says, Verdict::kDone);
  }

 private:
  Verdict say(std::string what) {
    const auto verdict = std::exchange(next, Verdict::kDone);
    if (verdict == Verdict::kDone) done.push_back(std::move(what));
    return verdict;
  }
};

class ResponderScript : public ::testing::Test {
 protected:
  void open(unsigned fetches = 4, roce::Service service = roce::Service::kRc) {
    responder_.emplace(RcResponderConfig{.service = service,
                                         .requester = base::Qpn{5},
                                         .first_psn = kFirst,
                                         .mtu = kMtu,
                                         .fetches = fetches,
                                         .rnr_timer = 9},
                       actions_);
  }
  void SetUp() override { open(); }
  DropReason receive(const roce::Packet& packet) { return responder_->on_packet(at_us(0), packet); }
  Lines answers() {
    while (responder_->poll_transmit(at_us(0), sink_)) {
    }
    return sink_.take();
  }
  Lines done() { return std::exchange(actions_.done, {}); }

  ScriptActions actions_;
  std::optional<RcResponder> responder_;
  ScriptSink sink_;
};

}  // namespace verbena::engine
