// One RC queue pair of this process, plain or extended, with what it needs: tests choose how each part is
// made.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

namespace verbena::surface {

inline constexpr std::chrono::milliseconds kSoon{10'000};  // for what must come
inline constexpr unsigned kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr uint64_t kReliableOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                         IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                         IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

// The device, opened once a process.
[[nodiscard]] ibv_context* device();

struct EndSpec {
  ibv_pd* pd = nullptr;   // null: one of its own
  ibv_cq* cq = nullptr;   // null: one of its own
  uint64_t wc_flags = 0;  // not 0: its own is an extended one
  uint32_t cq_flags = 0;  // ibv_create_cq_attr_flags of an extended one
  uint64_t send_ops = 0;  // not 0: an extended queue pair
  ibv_comp_channel* channel = nullptr;
  int cqe = 256;
  ibv_qp_cap caps{
      .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
};

class End {
 public:
  explicit End(const EndSpec& spec = {});
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  [[nodiscard]] ibv_qp* qp() const { return qp_; }
  [[nodiscard]] ibv_qp_ex* ex() const { return ibv_qp_to_qp_ex(qp_); }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  // Of an extended queue.
  [[nodiscard]] ibv_cq_ex* cq_ex() const { return reinterpret_cast<ibv_cq_ex*>(cq_); }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_mr* mr() const { return mr_; }
  [[nodiscard]] uint64_t address(size_t at = 0) const {
    return reinterpret_cast<uint64_t>(bytes_.data() + at);
  }
  [[nodiscard]] std::byte* bytes() { return bytes_.data(); }
  [[nodiscard]] uint64_t word(size_t at) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  void set_word(size_t at, uint64_t value) { std::memcpy(bytes_.data() + at, &value, sizeof value); }
  [[nodiscard]] ibv_sge piece(size_t at, uint32_t length) const { return {address(at), length, mr_->lkey}; }

  // The classic calls.
  [[nodiscard]] int post_send(uint64_t wr_id, ibv_wr_opcode opcode = IBV_WR_SEND, size_t at = 0,
                              uint32_t length = 8);
  void receive(uint64_t wr_id, size_t at = 0, uint32_t length = 64);
  [[nodiscard]] bool next(ibv_wc& completion, std::chrono::milliseconds wait = kSoon);
  [[nodiscard]] testing::AssertionResult next_is(uint64_t wr_id, ibv_wc_status status);
  [[nodiscard]] testing::AssertionResult empty();
  [[nodiscard]] ibv_qp_state state();

 private:
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  bool own_pd_ = false;
  bool own_cq_ = false;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(65536);
};

// RESET to RTS, each with the other.
void connect(End& a, End& b);
// INIT, RTR and RTS with a queue pair of this host.
[[nodiscard]] int to_rts(ibv_qp* qp, uint32_t peer_qpn);

}  // namespace verbena::surface
