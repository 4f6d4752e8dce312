// One UC or UD (or, to compare, RC) queue pair of this process with what it needs: a domain, a completion
// queue, a buffer.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace verbena::unreliable {

inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr size_t kBufferBytes = 1 << 20;
inline constexpr std::chrono::milliseconds kSoon{10'000};  // for what must come
inline constexpr std::chrono::milliseconds kMoment{60};    // for what must not

// The device, opened once a process.
[[nodiscard]] ibv_context* device();
// The index of the first GID that begins like this one ("::ffff:127.0.0.1", "::1"); -1: none.
[[nodiscard]] int gid_index(const std::string& address);

struct Message {
  uint64_t wr_id = 1;
  size_t at = 0;  // in the buffer
  uint32_t length = 64;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t imm = 0;
  uint32_t lkey = 0;            // 0: the buffer's own
  uint64_t remote_address = 0;  // UC
  uint32_t rkey = 0;
  ibv_ah* ah = nullptr;  // UD
  uint32_t target = 0;
  uint32_t qkey = kQkey;
};

class End {
 public:
  explicit End(ibv_qp_type type, int gid = 0, ibv_pd* domain = nullptr);  // null: a domain of its own
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // UD: ready at once. UC, and RC: with `peer`.
  void ready_datagrams(uint32_t qkey = kQkey);
  void connect(End& peer, ibv_mtu mtu = IBV_MTU_1024);
  [[nodiscard]] int to_rts();
  [[nodiscard]] ibv_qp_state state();

  [[nodiscard]] int post(const Message& message);
  void receive(uint64_t wr_id, size_t at, uint32_t length);
  [[nodiscard]] bool next(ibv_wc& completion, std::chrono::milliseconds wait = kSoon);
  [[nodiscard]] testing::AssertionResult next_is(uint64_t wr_id, ibv_wc_status status);
  [[nodiscard]] testing::AssertionResult nothing_comes();
  // To another end of this host.
  [[nodiscard]] ibv_ah* handle_to(const End& peer) const;

  void fill(size_t at, size_t length, uint8_t seed);
  [[nodiscard]] bool holds(size_t at, size_t length, uint8_t seed) const;

  [[nodiscard]] ibv_qp* qp() const { return qp_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_mr* mr() const { return mr_; }
  [[nodiscard]] std::byte* bytes() { return memory_.get(); }
  [[nodiscard]] uint32_t number() const { return qp_->qp_num; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }

 private:
  ibv_qp_type type_;
  int gid_index_;
  ibv_gid gid_{};
  ibv_pd* pd_ = nullptr;
  bool own_pd_ = true;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;
  ibv_mr* mr_ = nullptr;
};

}  // namespace verbena::unreliable
