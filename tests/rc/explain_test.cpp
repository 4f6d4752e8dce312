// With VERBENA_EXPLAIN=1 each failure says in a sentence on stderr what happened, at which object, and what
// to change (P9). Both ends are in helper processes, whose stderr is read.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <regex>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

class Explain : public testing::Test {
 protected:
  void set(void (*spoil)(Links&) = [](Links&) {}) {
    a_.emplace(requester_);
    b_.emplace(responder_);
    Links links = links_between(*a_, *b_);
    links.a.timeout = 10;  // 4 ms
    links.a.retry_cnt = 1;
    links.a.rnr_retry = 1;
    spoil(links);
    connect(*a_, *b_, links);
    local_ = a_->add_buffer(65536);
    remote_ = b_->add_buffer(65536);
    a_number_ = number(*a_);
    b_number_ = number(*b_);
  }
  static std::string number(Side& side) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%06x", side.address().qpn);
    return text;
  }
  void post_failing(const SendOrder& order, ibv_wc_status status) {
    ASSERT_EQ(0, a_->post_send(order));
    EXPECT_TRUE(next_is(*a_, Queue::kSend, order.wr_id, status));
  }
  // A line that begins as ours do, names the queue pair, and holds the words in that order.
  static testing::AssertionResult says(Host& host, const std::string& qpn, const std::string& words) {
    const std::regex pattern("(^|\n)verbena: [^\n]*" + qpn + "[^\n]*" + words);
    for (int tries = 0; tries < 200; ++tries) {
      if (std::regex_search(host.said(), pattern)) return testing::AssertionSuccess();
      ::usleep(5000);  // the responder's may come a moment later
    }
    return testing::AssertionFailure() << "no line with " << qpn << " and \"" << words << "\" in:\n"
                                       << host.said();
  }
  testing::AssertionResult requester_says(const std::string& words) {
    return says(*requester_, a_number_, words);
  }
  // Over the network the requester knows the class of the refusal, and points to the peer for more.
  testing::AssertionResult requester_learns(const std::string& words, const std::string& over_the_wire) {
    return requester_says(over_wire() ? over_the_wire : words);
  }
  testing::AssertionResult responder_says(const std::string& words) {
    return says(*responder_, b_number_, words);
  }

  std::shared_ptr<Host> requester_ = Host::helper({"VERBENA_EXPLAIN=1"});
  std::shared_ptr<Host> responder_ = Host::helper({"VERBENA_EXPLAIN=1"});
  std::optional<Side> a_;
  std::optional<Side> b_;
  std::string a_number_;
  std::string b_number_;
  Buffer local_;
  Buffer remote_;
};

TEST_F(Explain, RemoteAccess) {
  set();
  SendOrder order = rdma(IBV_WR_RDMA_WRITE, 41, {local_.piece(0, 8)}, remote_);
  order.rkey = 0x7fffff01;
  post_failing(order, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(requester_says("WRITE.*41.*REM_ACCESS.*rkey 0x7fffff01.*(register|rkey of)"));
  EXPECT_TRUE(responder_says("error state.*key that names no memory region"));
  set();
  post_failing(rdma(IBV_WR_RDMA_READ, 42, {local_.piece(0, 8)}, remote_, 65530), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(requester_learns("READ.*42.*REM_ACCESS.*inside.*(address|length)",
                               "READ.*42.*REM_ACCESS.*0x.* to 0x.*inside.*EXPLAIN"));
  set();
  remote_ = b_->add_buffer({.length = 4096, .access = IBV_ACCESS_LOCAL_WRITE});
  post_failing(rdma(IBV_WR_RDMA_WRITE, 43, {local_.piece(0, 8)}, remote_), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(requester_learns("43.*IBV_ACCESS_REMOTE", "43.*without that access"));
  set();
  remote_ = b_->add_buffer({.length = 4096, .other_domain = true});
  post_failing(rdma(IBV_WR_RDMA_WRITE, 44, {local_.piece(0, 8)}, remote_), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(requester_says("44.*protection domain"));
}

TEST_F(Explain, InvalidRequest) {
  set();
  post_failing(fetch_add(41, local_.piece(0, 8), remote_, 4, 1), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(requester_says("fetch-and-add.*41.*REM_INV_REQ.*8"));
  EXPECT_TRUE(responder_says("misaligned"));
  set([](Links& links) { links.b.access = 0; });
  post_failing(rdma(IBV_WR_RDMA_READ, 42, {local_.piece(0, 8)}, remote_), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(requester_says("42.*qp_access_flags"));
  set();
  ASSERT_EQ(0, b_->post_receive(11, {remote_.piece(0, 16)}));
  post_failing(send_of(43, {local_.piece(0, 17)}), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(
      requester_learns("43.*REM_INV_REQ.*17 bytes.*larger receives", "43.*17 bytes for a shorter receive"));
  EXPECT_TRUE(next_is(*b_, Queue::kReceive, 11, IBV_WC_LOC_LEN_ERR));
  EXPECT_TRUE(responder_says("11.*LOC_LEN.*larger receives"));
}

TEST_F(Explain, BadReceive) {
  set();
  ibv_sge piece = remote_.all();
  piece.lkey = 0;
  ASSERT_EQ(0, b_->post_receive(11, {piece}));
  post_failing(send_of(41, {local_.piece(0, 8)}), IBV_WC_REM_OP_ERR);
  EXPECT_TRUE(requester_says("41.*REM_OP.*lkey"));
  EXPECT_TRUE(next_is(*b_, Queue::kReceive, 11, IBV_WC_LOC_PROT_ERR));
  EXPECT_TRUE(responder_says("11.*LOC_PROT.*lkey"));
}

TEST_F(Explain, WriteWithImmediate) {
  set();
  ASSERT_EQ(0, b_->post_receive(11));
  SendOrder order = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 41, {local_.piece(0, 8)}, remote_);
  order.rkey = 0;
  post_failing(order, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(next_is(*b_, Queue::kReceive, 11, IBV_WC_LOC_ACCESS_ERR));
  EXPECT_TRUE(responder_says("11.*LOC_ACCESS.*WRITE"));
}

TEST_F(Explain, LocalFaults) {
  set();
  SendOrder order = send_of(41, {local_.piece(0, 8)});
  order.pieces.list[0].lkey = 0x7fffff01;
  post_failing(order, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(requester_says("SEND.*41.*LOC_PROT.*lkey"));
  set();
  post_failing(fetch_add(42, local_.piece(0, 4), remote_, 0, 1), IBV_WC_LOC_LEN_ERR);
  EXPECT_TRUE(requester_says("42.*LOC_LEN.*exactly 8"));
  set([](Links& links) { links.a.max_rd_atomic = 0; });
  post_failing(rdma(IBV_WR_RDMA_READ, 43, {local_.piece(0, 8)}, remote_), IBV_WC_LOC_QP_OP_ERR);
  EXPECT_TRUE(requester_says("43.*LOC_QP_OP.*max_rd_atomic"));
}

TEST_F(Explain, NoAnswerAndNoReceive) {
  set();
  post_failing(send_of(41, {local_.piece(0, 8)}), IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_TRUE(requester_says("41.*RNR_RETRY_EXC.*(post receives|rnr_retry)"));
  set();
  ASSERT_EQ(0, b_->to_state(IBV_QPS_ERR));
  post_failing(send_of(42, {local_.piece(0, 8)}), IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(requester_says("42.*RETRY_EXC.*(error state|RTR)"));
}

// Refused calls say why, too.
TEST_F(Explain, RefusedCalls) {
  set();
  EXPECT_EQ(EINVAL, a_->to_state(IBV_QPS_INIT));
  EXPECT_TRUE(requester_says("RTS.*INIT|INIT.*RTS"));
  EXPECT_EQ(static_cast<uint32_t>(EINVAL),
            a_->add_buffer({.length = 4096, .access = IBV_ACCESS_REMOTE_WRITE}).error);
  EXPECT_NE(std::string::npos, requester_->said().find("IBV_ACCESS_LOCAL_WRITE"));
}

// Nothing is printed unless asked for (DESIGN 2.7), and one failure is one sentence.
TEST_F(Explain, OnlyWhenAskedAndOnce) {
  set();
  const auto quiet = Host::helper({"VERBENA_EXPLAIN=0"});
  {
    Side a(quiet);
    Side b(responder_);
    connect(a, b);
    const Buffer local = a.add_buffer(64);
    SendOrder order = send_of(1, {local.all()});
    order.pieces.list[0].lkey = 0;
    ASSERT_EQ(0, a.post_send(order));
    EXPECT_TRUE(next_is(a, Queue::kSend, 1, IBV_WC_LOC_PROT_ERR));
  }
  EXPECT_EQ("", quiet->said());

  SendOrder order = send_of(41, {local_.piece(0, 8)});
  order.pieces.list[0].lkey = 0;
  ASSERT_EQ(0, a_->post_sends({order, send_of(42, {}), send_of(43, {})}).error);
  EXPECT_TRUE(next_is(*a_, Queue::kSend, 41, IBV_WC_LOC_PROT_ERR));
  const std::string said = requester_->said();
  EXPECT_EQ(1, std::count(said.begin(), said.end(), '\n')) << said;
}

}  // namespace
}  // namespace verbena::rc
