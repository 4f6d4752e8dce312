// Both ends of the engine as simply as can be, for tests that look at everything a packet may change: a
// region, receives, what completed, what ended, what was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/packet_sink.hpp"
#include "engine/request.hpp"
#include "engine/responder_actions.hpp"
#include "roce/packet.hpp"

namespace verbena::test {

// The responder's process: one region that allows everything, and receives of one length.
class ModelActions final : public engine::ResponderActions, public engine::DatagramActions {
 public:
  struct Completion {
    engine::Arrival arrival;
    std::vector<std::byte> bytes;
  };

  ModelActions(uint32_t key, uint64_t address, size_t bytes) : key_(key), address_(address), memory_(bytes) {}

  void post_receives(uint32_t count) { receives_ += count; }
  void set_receive_bytes(uint64_t bytes) { receive_bytes_ = bytes; }
  void count_credits() { counts_credits_ = true; }
  // XRC: the shared receive queues 0 to n - 1 are there, and share the receives.
  void set_queues(uint32_t queues) { queues_ = queues; }
  // Every n-th action finds no room, as when the owner doesn't empty its rings; 0: none.
  void set_busy(unsigned every) { busy_ = every; }

  [[nodiscard]] std::vector<std::byte>& memory() { return memory_; }
  [[nodiscard]] uint32_t receives() const { return receives_; }
  [[nodiscard]] const std::vector<Completion>& completions() const { return completions_; }
  [[nodiscard]] unsigned failures() const { return failures_; }
  // All that a packet may change, but for the half of a message that has no completion yet.
  [[nodiscard]] std::string state() const;

  engine::Verdict aim(uint32_t srq) override;
  engine::Verdict check(const engine::RemoteRange& range, engine::RemoteUse use) override;
  engine::Verdict write(const engine::RemoteRange& range, std::span<const iovec> from,
                        engine::Tail tail) override;
  engine::Verdict read(const engine::RemoteRange& range, std::span<const iovec> into,
                       engine::Tail tail) override;
  size_t write_more(const engine::RemoteRange& range, size_t each, engine::Tail tail,
                    engine::MorePayloads& payloads) override;
  const std::byte* in_place(const engine::RemoteRange& range) override;
  engine::Verdict atomic(const engine::AtomicRequest& request, uint64_t& before) override;
  engine::Verdict begin_receive(const engine::Arrival& arrival) override;
  engine::Verdict place(uint64_t offset, std::span<const iovec> from, engine::Tail tail) override;
  size_t place_more(uint64_t offset, size_t each, engine::MorePayloads& payloads) override;
  engine::Verdict finish_receive(const engine::Arrival& arrival) override;
  // Of both interfaces: a datagram's GRH is left out.
  engine::Verdict deliver(const engine::Arrival& arrival, std::span<const iovec> from) override;
  uint32_t credits() override { return counts_credits_ ? receives_ : UINT32_MAX; }
  engine::Verdict fail(engine::Verdict why, bool consumes_receive) override;
  engine::Verdict fail(engine::Verdict why) override { return fail(why, false); }

 private:
  [[nodiscard]] bool busy() { return busy_ != 0 && ++asked_ % busy_ == 0; }

  uint32_t key_;
  uint64_t address_;
  std::vector<std::byte> memory_;
  uint32_t receives_ = 0;
  uint64_t receive_bytes_ = 1 << 16;
  bool counts_credits_ = false;
  uint32_t queues_ = 0;
  uint32_t aimed_ = 0;
  uint32_t begun_ = 0;  // the queue that the message at hand was begun for
  unsigned busy_ = 0;
  unsigned asked_ = 0;
  unsigned failures_ = 0;
  std::vector<std::byte> receiving_;
  std::vector<Completion> completions_;
};

// The requester's process. Requests' bytes are a function of their place, or those that were given.
class ModelHost final : public engine::RequesterHost {
 public:
  struct End {
    uint32_t number = 0;
    engine::RequestStatus status{};
  };
  struct Scattered {
    uint32_t number = 0;
    uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };

  void set_bytes(uint32_t number, std::vector<std::byte> bytes) { given_[number] = std::move(bytes); }
  void set_unreadable(uint32_t number) { unreadable_ = number; }
  void set_unwritable(uint32_t number) { unwritable_ = number; }
  [[nodiscard]] const std::vector<End>& ends() const { return ends_; }
  [[nodiscard]] const std::vector<Scattered>& scattered() const { return scattered_; }

  bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) override;
  bool scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from, engine::Tail tail) override;
  size_t scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                      engine::MorePayloads& payloads) override;
  const std::byte* in_place(uint32_t number, uint64_t offset, size_t length) override;
  void ended(uint32_t number, engine::RequestStatus status) override { ends_.push_back({number, status}); }

 private:
  std::map<uint32_t, std::vector<std::byte>> given_;
  uint32_t unreadable_ = UINT32_MAX;
  uint32_t unwritable_ = UINT32_MAX;
  std::vector<End> ends_;
  std::vector<Scattered> scattered_;
  std::vector<std::byte> lent_;  // what in_place() gave last
};

// A packet that keeps its payload.
struct KeptPacket {
  roce::Packet packet;
  std::vector<std::byte> payload;

  // With the payload in place, wherever this one has been moved to.
  [[nodiscard]] roce::Packet whole() const {
    roce::Packet with = packet;
    with.payload = payload;
    return with;
  }
};

class KeepingSink final : public engine::PacketSink {
 public:
  bool ready() override { return sent.size() < most; }
  std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) override;
  void commit(const roce::Packet& packet) override;
  size_t run_room(uint8_t, size_t) override { return run; }

  size_t most = SIZE_MAX;
  size_t run = 0;  // packets that are taken together
  std::vector<KeptPacket> sent;

 private:
  std::vector<std::byte> room_;
};

}  // namespace verbena::test
