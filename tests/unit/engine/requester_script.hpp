// A requester with a host that writes down what it is told.
#pragma once

#include <fmt/format.h>

#include <optional>

#include "engine/rc_requester.hpp"
#include "script.hpp"

namespace verbena::engine {

class RequesterScript : public ::testing::Test, public RequesterHost {
 protected:
  void open(RcRequesterConfig changes = {}) {
    changes.target = base::Qpn{5};
    changes.first_psn = kFirst;
    changes.mtu = kMtu;
    changes.capacity = 64;
    requester_.emplace(changes, *this);
  }
  static RcRequesterConfig usual() {
    return {.fetches = 4, .timeout = std::chrono::milliseconds(67), .retries = 7, .rnr_retries = 7};
  }

  void send(uint64_t length, bool fenced = false) {
    requester_->post({.kind = Request::Kind::kSend, .fenced = fenced, .length = length});
  }
  void write(uint64_t length, bool fenced = false) {
    requester_->post(
        {.kind = Request::Kind::kWrite, .fenced = fenced, .key = 7, .address = 0x1000, .length = length});
  }
  void read(uint64_t length) {
    requester_->post({.kind = Request::Kind::kRead, .key = 7, .address = 0x1000, .length = length});
  }
  void add(uint64_t value) {
    requester_->post(
        {.kind = Request::Kind::kFetchAdd, .key = 7, .address = 0x1000, .length = 8, .compare_add = value});
  }
  // All that may be sent now.
  Lines sent() {
    while (requester_->poll_transmit(now_, sink_)) {
    }
    return sink_.take();
  }
  DropReason receive(const roce::Packet& packet) { return requester_->on_packet(now_, packet); }
  DropReason ack(uint32_t psn) { return receive(ack_packet(psn)); }
  DropReason nak(uint32_t psn, uint8_t syndrome = roce::syndrome::kSequence) {
    return receive(ack_packet(psn, syndrome));
  }
  Lines ended() { return std::exchange(ended_, {}); }
  void pass(int64_t microseconds) { now_ = now_ + std::chrono::microseconds(microseconds); }
  // Time passes until the timer rings.
  void ring() {
    now_ = requester_->next_deadline();
    ASSERT_NE(now_, kNoDeadline);
    requester_->on_timer(now_);
  }

  [[nodiscard]] bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) override {
    if (number == unreadable_ && offset + into.size() > unreadable_from_) return false;
    for (auto& byte : into) byte = static_cast<std::byte>(number + 1);
    return true;
  }
  [[nodiscard]] bool scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                             Tail tail) override {
    scattered_.push_back(
        fmt::format("{}: {}+{}{}", number, offset, from.size(), tail == Tail::kLast ? " last" : ""));
    return number != unwritable_;
  }
  void ended(uint32_t number, RequestStatus status) override {
    ended_.push_back(status == RequestStatus::kSuccess
                         ? fmt::format("{}", number)
                         : fmt::format("{} status {}", number, static_cast<int>(status)));
  }
  [[nodiscard]] bool other_path() override { return std::exchange(other_path_, false); }
  [[nodiscard]] Lines scattered() { return std::exchange(scattered_, {}); }

  static constexpr uint32_t kNobody = UINT32_MAX;
  std::optional<RcRequester> requester_;
  base::Instant now_ = at_us(0);
  ScriptSink sink_;
  uint32_t unreadable_ = kNobody;
  uint64_t unreadable_from_ = 0;
  uint32_t unwritable_ = kNobody;
  bool other_path_ = false;  // there is one, once

 private:
  Lines ended_;
  Lines scattered_;
};

}  // namespace verbena::engine
