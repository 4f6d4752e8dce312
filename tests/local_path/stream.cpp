#include "local_path/stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>

namespace verbena::local_path {
namespace {

constexpr uint64_t kFirstReceiveId = 100;
constexpr uint64_t kGoodbyeId = 50;
constexpr int64_t kPatience_us = 10'000'000;  // after that a request hangs

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Bytes that only this message of this sender has at this place.
void fill(std::byte* data, size_t length, uint64_t seed) {
  for (size_t at = 0; at < length; at += 8) {
    const uint64_t word = seed + at * 0x9e3779b97f4a7c15;
    std::memcpy(data + at, &word, std::min<size_t>(8, length - at));
  }
}

bool filled(const std::byte* data, size_t length, uint64_t seed) {
  for (size_t at = 0; at < length; at += 8) {
    const uint64_t word = seed + at * 0x9e3779b97f4a7c15;
    if (std::memcmp(data + at, &word, std::min<size_t>(8, length - at)) != 0) return false;
  }
  return true;
}

// At the front of every message.
struct Header {
  uint64_t number = 0;
  uint64_t length = 0;
  uint64_t last = 0;  // the sender has no more
};

class Stream {
 public:
  explicit Stream(const StreamPlan& plan) : plan_(plan), random_(plan.seed) {}

  StreamReport run() {
    for (size_t i = 0; i < kStreamReceives; ++i) post_one_receive(i);
    const int64_t end = now_us() + plan_.duration_us;
    int64_t deadline = end + kPatience_us;
    while (now_us() < deadline) {
      const bool over = now_us() >= end;
      if (plan_.passive && over) break;
      if (failed() && outstanding_ == 0) break;
      if (!failed() && !plan_.passive) {
        if (!over)
          begin_some();
        else if (outstanding_ == 0 && !said_goodbye_)
          say_goodbye();
        else if (outstanding_ == 0 && heard_goodbye_)
          break;
      }
      const bool had_failed = failed();
      take_completions();
      if (failed() && !had_failed) deadline = now_us() + kPatience_us;
    }
    report_.hung = outstanding_ + (!plan_.passive && !failed() && !heard_goodbye_ ? 1 : 0);
    return report_;
  }

 private:
  enum class Step : uint8_t { kIdle, kSend, kWrite, kReadBack, kAdd };
  struct Slot {
    Step step = Step::kIdle;
    size_t length = 0;
    uint64_t pattern = 0;
    uint64_t expected = 0;  // what the atomic must find
  };

  [[nodiscard]] bool failed() const { return report_.first_error != 0; }
  uint64_t random() { return random_ = mix(random_); }

  // Mostly small, some beyond what travels in a ring, a few beyond one chunk.
  size_t random_length() {
    const uint64_t kind = random() % 100;
    const size_t most = kind < 60 ? 256 : kind < 85 ? 8192 : kind < 95 ? 65536 : kLargestMessage;
    return sizeof(Header) + random() % (most - sizeof(Header));
  }

  std::byte* staging(size_t slot) const { return plan_.memory->data + kStagingAt + slot * kLargestMessage; }
  std::byte* read_back(size_t slot) const {
    return plan_.memory->data + kReadBackAt + slot * kLargestMessage;
  }

  void post_one_receive(size_t place) {
    const Work work{.id = kFirstReceiveId + place,
                    .memory = plan_.memory,
                    .offset = kReceivesAt + place * kLargestMessage,
                    .length = kLargestMessage};
    if (post_receive(plan_.pair, work) == 0) ++report_.receives_waiting;
  }

  void post(const Work& work) {
    if (post_send(plan_.pair, work) == 0) ++outstanding_;
  }

  void begin_some() {
    for (size_t i = 0; i < kStreamSlots && !failed(); ++i) {
      Slot& slot = slots_[i];
      if (slot.step != Step::kIdle) continue;
      slot.length = random_length();
      slot.pattern = mix(plan_.seed + ++begun_);
      Work work{.id = i,
                .memory = plan_.memory,
                .offset = kStagingAt + i * kLargestMessage,
                .length = slot.length,
                .key = plan_.peer_key};
      switch (random() % 3) {
        case 0:
          slot.step = Step::kSend;
          write_message(staging(i), slot.length, false);
          work.opcode = IBV_WR_SEND;
          break;
        case 1:
          slot.step = Step::kWrite;
          fill(staging(i), slot.length, slot.pattern);
          work.opcode = IBV_WR_RDMA_WRITE;
          work.remote = plan_.peer_address + kLandingAt + i * kLargestMessage;
          break;
        default:
          slot.step = Step::kAdd;
          slot.expected = added_++;
          work.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
          work.length = 8;
          work.remote = plan_.peer_address + kCounterAt;
          work.first = 1;
          break;
      }
      post(work);
    }
  }

  void write_message(std::byte* data, size_t length, bool last) {
    const Header header{.number = sent_++, .length = length, .last = last ? 1u : 0u};
    std::memcpy(data, &header, sizeof header);
    fill(data + sizeof header, length - sizeof header, mix(plan_.seed ^ header.number));
  }

  void say_goodbye() {
    said_goodbye_ = true;
    write_message(staging(0), sizeof(Header), true);
    post({.id = kGoodbyeId, .memory = plan_.memory, .offset = kStagingAt, .length = sizeof(Header)});
  }

  void take_completions() {
    std::array<ibv_wc, 16> taken;
    int count = ibv_poll_cq(plan_.queue.cq, taken.size(), taken.data());
    if (count == 0 && plan_.sleeps) {
      ibv_req_notify_cq(plan_.queue.cq, 0);
      count = ibv_poll_cq(plan_.queue.cq, taken.size(), taken.data());
      if (count == 0) sleep_on(plan_.queue, 20);
    }
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = taken[static_cast<size_t>(i)];
      if (one.wr_id >= kFirstReceiveId)
        on_receive(one);
      else
        on_sent(one);
    }
  }

  void on_receive(const ibv_wc& one) {
    --report_.receives_waiting;
    if (one.status != IBV_WC_SUCCESS) {
      ++report_.receives_failed;
      return;
    }
    ++report_.received;
    const size_t place = one.wr_id - kFirstReceiveId;
    const std::byte* data = plan_.memory->data + kReceivesAt + place * kLargestMessage;
    Header header;
    std::memcpy(&header, data, sizeof header);
    if (header.number != heard_++ || header.length != one.byte_len ||
        !filled(data + sizeof header, header.length - sizeof header, mix(plan_.peer_seed ^ header.number)))
      ++report_.bad;
    if (header.last != 0) heard_goodbye_ = true;
    post_one_receive(place);
  }

  void on_sent(const ibv_wc& one) {
    --outstanding_;
    if (one.status != IBV_WC_SUCCESS) return on_failure(one);
    ++report_.done;
    if (failed()) ++report_.wrong_status;  // nothing may succeed after the first that failed
    if (one.wr_id == kGoodbyeId) return;
    const size_t place = one.wr_id;
    Slot& slot = slots_[place];
    if (slot.step == Step::kWrite && !failed()) {
      slot.step = Step::kReadBack;
      std::memset(read_back(place), 0xee, slot.length);
      return post({.id = place,
                   .opcode = IBV_WR_RDMA_READ,
                   .memory = plan_.memory,
                   .offset = kReadBackAt + place * kLargestMessage,
                   .length = slot.length,
                   .remote = plan_.peer_address + kLandingAt + place * kLargestMessage,
                   .key = plan_.peer_key});
    }
    uint64_t found = 0;
    std::memcpy(&found, staging(place), sizeof found);
    if ((slot.step == Step::kReadBack && !filled(read_back(place), slot.length, slot.pattern)) ||
        (slot.step == Step::kAdd && found != slot.expected))
      ++report_.bad;
    slot.step = Step::kIdle;
  }

  void on_failure(const ibv_wc& one) {
    if (!failed()) {
      report_.first_error = one.status;
      return;
    }
    ++report_.flushed;
    if (one.status != IBV_WC_WR_FLUSH_ERR) ++report_.wrong_status;
  }

  const StreamPlan& plan_;
  StreamReport report_;
  uint64_t random_;
  std::array<Slot, kStreamSlots> slots_;
  size_t outstanding_ = 0;
  uint64_t begun_ = 0;
  uint64_t sent_ = 0;   // messages
  uint64_t heard_ = 0;  // messages of the peer's
  uint64_t added_ = 0;
  bool said_goodbye_ = false;
  bool heard_goodbye_ = false;
};

}  // namespace

StreamReport run_stream(const StreamPlan& plan) { return Stream(plan).run(); }

std::ostream& operator<<(std::ostream& out, const StreamReport& report) {
  return out << report.first_error << ' ' << report.flushed << ' ' << report.wrong_status << ' '
             << report.done << ' ' << report.received << ' ' << report.bad << ' ' << report.receives_waiting
             << ' ' << report.receives_failed << ' ' << report.hung;
}

}  // namespace verbena::local_path
