// The fixture of most tests here: a connected pair, both ends in this process, or one in a helper process.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>

#include "side.hpp"

namespace verbena::rc {

enum class Where : uint8_t { kOneProcess, kTwoProcesses };

inline std::string name_of(const testing::TestParamInfo<Where>& info) {
  return info.param == Where::kOneProcess ? "InOneProcess" : "InTwoProcesses";
}
inline void PrintTo(Where where, std::ostream* out) {
  *out << (where == Where::kOneProcess ? "in one process" : "in two processes");
}

class PairTest : public testing::TestWithParam<Where> {
 protected:
  [[nodiscard]] Side& a() { return *a_; }  // always here; the requester where only one is
  [[nodiscard]] Side& b() { return *b_; }

  // Both ends, unconnected.
  void open(const EndpointSpec& spec_a = {}, const EndpointSpec& spec_b = {}) {
    a_.emplace(here_, spec_a);
    b_.emplace(there(), spec_b);
    links_ = links_between(a(), b());
  }
  void open_connected(const EndpointSpec& spec_a = {}, const EndpointSpec& spec_b = {}) {
    open(spec_a, spec_b);
    connect();
  }
  // As `links_` says.
  void connect() { rc::connect(a(), b(), links_); }

  [[nodiscard]] std::shared_ptr<Host> there() {
    if (!there_) there_ = GetParam() == Where::kOneProcess ? here_ : Host::helper();
    return there_;
  }

  Links links_;
  std::shared_ptr<Host> here_ = Host::here();
  std::shared_ptr<Host> there_;
  std::optional<Side> a_;
  std::optional<Side> b_;
};

#define RC_IN_BOTH(fixture) \
  INSTANTIATE_TEST_SUITE_P(Rc, fixture, testing::Values(Where::kOneProcess, Where::kTwoProcesses), name_of)

// The next completion of a queue has this wr_id and status, and the queue pair's number.
[[nodiscard]] testing::AssertionResult next_is(Side& side, Queue queue, uint64_t wr_id, ibv_wc_status status,
                                               Wait wait = soon());
[[nodiscard]] testing::AssertionResult nothing_comes(Side& side, Queue queue, Wait wait = kMoment);
// The next asynchronous event is this one, about this end.
[[nodiscard]] testing::AssertionResult event_is(Side& side, ibv_event_type type);
[[nodiscard]] testing::AssertionResult no_event(Side& side, Wait wait = kMoment);
[[nodiscard]] testing::AssertionResult state_is(Side& side, ibv_qp_state state);

inline SendOrder send_of(uint64_t wr_id, const Pieces& pieces) { return {.wr_id = wr_id, .pieces = pieces}; }

inline SendOrder rdma(ibv_wr_opcode opcode, uint64_t wr_id, const Pieces& pieces, const Buffer& remote,
                      uint64_t offset = 0) {
  return {.wr_id = wr_id,
          .opcode = opcode,
          .remote_address = remote.address + offset,
          .rkey = remote.rkey,
          .pieces = pieces};
}

inline SendOrder fetch_add(uint64_t wr_id, const ibv_sge& result, const Buffer& remote, uint64_t offset,
                           uint64_t add) {
  SendOrder order = rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id, {result}, remote, offset);
  order.compare_add = add;
  return order;
}

inline SendOrder compare_swap(uint64_t wr_id, const ibv_sge& result, const Buffer& remote, uint64_t offset,
                              uint64_t compare, uint64_t swap) {
  SendOrder order = rdma(IBV_WR_ATOMIC_CMP_AND_SWP, wr_id, {result}, remote, offset);
  order.compare_add = compare;
  order.swap = swap;
  return order;
}

}  // namespace verbena::rc
