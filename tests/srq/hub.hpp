// A shared receive queue of this process with what belongs to it, and queue pairs that take from it; or,
// without the queue, the requesters at the other ends.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "../rc/pair_test.hpp"

namespace verbena::srq {

using rc::Wait;

struct HubSpec {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t max_wr = 64;  // of the shared queue; 0: none, the queue pairs have receives of their own
  uint32_t max_sge = 4;
  size_t bytes = 4 << 20;
  int cqe = 4096;
};

inline constexpr uint32_t kQkey = 0x22222222;

class Hub {
 public:
  explicit Hub(const HubSpec& spec = {});
  ~Hub();  // a failure if something can't be destroyed
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Another queue pair, in RESET.
  ibv_qp* add_qp();
  // A queue pair of each, connected (UD: just ready).
  static void connect(Hub& a, ibv_qp* of_a, Hub& b, ibv_qp* of_b, const rc::Link& link = {});
  // A datagram queue pair.
  static void make_ready(Hub& hub, ibv_qp* qp) { bring_up(hub, qp, {}); }
  // With a requester in any process.
  void connect(ibv_qp* ours, rc::Side& peer, const rc::Link& link = {});
  static int to_state(ibv_qp* qp, ibv_qp_state state);
  static ibv_qp_state state_of(ibv_qp* qp);

  // `length` bytes at `at` of the memory.
  int post_shared(uint64_t wr_id, size_t at, uint32_t length);
  int send(ibv_qp* qp, uint64_t wr_id, size_t at, uint32_t length, ibv_ah* ah = nullptr, uint32_t target = 0);
  // The next completion; status rc::kNone: none came.
  ibv_wc next(Wait wait = rc::soon());
  testing::AssertionResult next_is(uint64_t wr_id, ibv_wc_status status, uint32_t qpn);
  testing::AssertionResult nothing_comes(Wait wait = rc::kMoment);
  testing::AssertionResult event_is(ibv_event_type type, const void* about);
  testing::AssertionResult no_event(Wait wait = rc::kMoment);

  void fill(size_t at, size_t length, uint64_t seed);
  // Where the bytes first differ from fill()'s (and rc::Endpoint's); -1: nowhere.
  int64_t mismatch(size_t at, size_t length, uint64_t seed) const;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  [[nodiscard]] ibv_srq* srq() const { return srq_; }
  [[nodiscard]] ibv_mr* mr() const { return mr_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  void destroy(ibv_qp* qp);

 private:
  static void bring_up(Hub& hub, ibv_qp* qp, const rc::Link& link);

  HubSpec spec_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_qp*> qps_;
  std::vector<std::byte> memory_;
  ibv_mr* mr_ = nullptr;
  ibv_gid gid_{};
};

}  // namespace verbena::srq
