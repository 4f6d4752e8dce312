// fork(), with and without ibv_fork_init: what the child inherits is dead, its own device isn't, and the
// parent doesn't notice.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "end.hpp"

namespace verbena::surface {
namespace {

// What else a program may have: one of each, made before fork(). Device memory isn't among them: it needs
// nothing of the host, and is the child's as other shared memory is.
struct Belongings {
  explicit Belongings(ibv_pd* domain) : pd(domain) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    srq = ibv_create_srq(pd, &init);
    where.port_num = 1;
    where.is_global = 1;
    ibv_query_gid(device(), 1, 0, &where.grh.dgid);
    ah = ibv_create_ah(pd, &where);
    mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    channel = ibv_create_comp_channel(device());
  }
  ~Belongings() {
    EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
    EXPECT_EQ(0, ibv_dealloc_mw(mw));
    EXPECT_EQ(0, ibv_destroy_ah(ah));
    EXPECT_EQ(0, ibv_destroy_srq(srq));
  }
  Belongings(const Belongings&) = delete;
  Belongings& operator=(const Belongings&) = delete;
  [[nodiscard]] bool whole() const { return srq && ah && mw && channel; }

  ibv_pd* pd;
  ibv_srq* srq = nullptr;
  ibv_ah_attr where{};
  ibv_ah* ah = nullptr;
  ibv_mw* mw = nullptr;
  ibv_comp_channel* channel = nullptr;
};

bool refuses(const void* made) { return made == nullptr && errno == EIO; }

// In the child: making new objects of what is inherited.
int make_of_inherited(End& end, Belongings& own) {
  if (!refuses(ibv_create_cq(device(), 16, nullptr, nullptr, 0))) return 40;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = end.cq();
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  if (!refuses(ibv_create_qp(own.pd, &init))) return 41;
  ibv_srq_init_attr shared{};
  shared.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  if (!refuses(ibv_create_srq(own.pd, &shared))) return 42;
  if (!refuses(ibv_create_ah(own.pd, &own.where))) return 43;
  if (!refuses(ibv_alloc_mw(own.pd, IBV_MW_TYPE_1))) return 44;
  if (!refuses(ibv_create_comp_channel(device()))) return 46;
  return 0;
}

// Changing and using them.
int change_inherited(End& end, Belongings& own) {
  if (ibv_resize_cq(end.cq(), 100) != EIO) return 50;
  ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 1};
  if (ibv_modify_srq(own.srq, &limit, IBV_SRQ_LIMIT) != EIO) return 51;
  ibv_recv_wr receive{}, *bad = nullptr;
  if (ibv_post_srq_recv(own.srq, &receive, &bad) != EIO || bad != &receive) return 52;
  ibv_mw_bind bind{};
  bind.bind_info = {.mr = end.mr(), .addr = end.address(), .length = 64, .mw_access_flags = 0};
  if (ibv_bind_mw(end.qp(), own.mw, &bind) != EIO) return 53;
  if (ibv_rereg_mr(end.mr(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) == 0)
    return 54;
  ibv_gid group{};
  group.raw[0] = 0xff;
  if (ibv_attach_mcast(end.qp(), &group, 0) != EIO) return 56;
  ibv_async_event event{};
  if (ibv_get_async_event(device(), &event) == 0) return 57;
  return 0;
}

// And taking them away, which would be the parent's loss.
int destroy_inherited(End& end, Belongings& own) {
  if (ibv_dereg_mr(end.mr()) != EIO) return 60;
  if (ibv_destroy_qp(end.qp()) != EIO) return 61;
  if (ibv_destroy_cq(end.cq()) != EIO) return 62;
  if (ibv_destroy_srq(own.srq) != EIO) return 63;
  if (ibv_destroy_ah(own.ah) != EIO) return 64;
  if (ibv_dealloc_mw(own.mw) != EIO) return 65;
  if (ibv_dealloc_pd(own.pd) != EIO) return 67;
  return 0;
}

// Runs in the child; the number of the first step that went wrong, 0: none.
int use_inherited(End& end, End& extended) {
  ibv_wc completion{};
  if (ibv_poll_cq(end.cq(), 1, &completion) >= 0) return 1;
  if (end.post_send(1) != EIO) return 2;
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  if (ibv_post_recv(end.qp(), &receive, &bad_receive) != EIO || bad_receive != &receive) return 3;
  if (ibv_req_notify_cq(end.cq(), 0) != EIO) return 4;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (ibv_query_qp(end.qp(), &attr, 0, &init) != EIO) return 5;
  attr.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(end.qp(), &attr, IBV_QP_STATE) != EIO) return 6;
  if (ibv_reg_mr(end.pd(), end.bytes(), 64, 0) != nullptr || errno != EIO) return 7;
  if (ibv_alloc_pd(device()) != nullptr || errno != EIO) return 8;
  ibv_wr_start(extended.ex());
  ibv_wr_send(extended.ex());
  if (ibv_wr_complete(extended.ex()) != EIO) return 9;
  ibv_poll_cq_attr poll{};
  if (ibv_start_poll(extended.cq_ex(), &poll) != EIO) return 10;
  ibv_modify_cq_attr moderate{};
  moderate.attr_mask = IBV_CQ_ATTR_MODERATE;
  if (ibv_modify_cq(end.cq(), &moderate) != EIO) return 11;
  ibv_td_init_attr thread{};
  if (ibv_alloc_td(device(), &thread) != nullptr || errno != EIO) return 12;
  ibv_mw window{.context = device(), .pd = end.pd(), .rkey = 0x100, .handle = 1, .type = IBV_MW_TYPE_1};
  ibv_mw_bind bind{};
  bind.bind_info = {end.mr(), end.address(), 8, IBV_ACCESS_REMOTE_READ};
  if (ibv_bind_mw(end.qp(), &window, &bind) != EIO || window.rkey != 0x100) return 13;
  return 0;
}

int open_own() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = list != nullptr && list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (context == nullptr) return 20;
  ibv_free_device_list(list);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  static char bytes[128];
  ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, kAccess);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  if (mr == nullptr || qp == nullptr || to_rts(qp, qp->qp_num) != 0) return 21;
  std::memcpy(bytes, "child", 6);
  ibv_sge one{reinterpret_cast<uint64_t>(bytes), 6, mr->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(bytes + 64);
  request.wr.rdma.rkey = mr->rkey;
  if (ibv_post_send(qp, &request, &bad) != 0) return 22;
  ibv_wc completion{};
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (ibv_poll_cq(cq, 1, &completion) == 0)
    if (std::chrono::steady_clock::now() > until) return 23;
  if (completion.status != IBV_WC_SUCCESS || std::memcmp(bytes + 64, "child", 6) != 0) return 24;
  if (ibv_destroy_qp(qp) != 0 || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0)
    return 25;
  return ibv_close_device(context) == 0 ? 0 : 26;
}

// Takes each lock that is a whole process's, again and again.
void make_and_destroy(const std::atomic<bool>& stop, ibv_pd* pd) {
  static char bytes[64];
  while (!stop) {
    ibv_cq* cq = ibv_create_cq(device(), 4, nullptr, nullptr, 0);
    ibv_mr* mr = ibv_reg_mr(pd, bytes, sizeof bytes, kAccess);
    ibv_alloc_dm_attr wanted{};
    wanted.length = 64;
    ibv_dm* dm = ibv_alloc_dm(device(), &wanted);
    EXPECT_EQ(0, ibv_free_dm(dm));
    EXPECT_EQ(0, ibv_dereg_mr(mr));
    EXPECT_EQ(0, ibv_destroy_cq(cq));
  }
}

TEST(ForkWhileOthersWork, TheChildWaitsForNobody) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own allocator isn't ready for fork() beside busy threads";
#endif
  ibv_pd* pd = ibv_alloc_pd(device());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { make_and_destroy(stop, pd); });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);  // a lock that nobody gives back
      ibv_alloc_dm_attr wanted{};
      wanted.length = 64;
      if (ibv_alloc_dm(device(), &wanted) == nullptr) _exit(1);
      _exit(open_own());
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    if (status != 0) break;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

class Fork : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Surface, Fork, testing::Bool(),
                         [](const auto& row) { return row.param ? "WithForkInit" : "Without"; });

TEST_P(Fork, TheChildStartsAnewAndTheParentGoesOn) {
  EXPECT_EQ(0, GetParam() ? ibv_fork_init() : 0);
  EXPECT_NE(IBV_FORK_DISABLED, ibv_is_fork_initialized());
  End a, b, extended({.wc_flags = IBV_WC_STANDARD_FLAGS, .send_ops = kReliableOps});
  connect(a, b);
  const pid_t child = fork();
  if (child == 0) {
    if (const int wrong = use_inherited(a, extended)) _exit(wrong);
    if (const int wrong = open_own()) _exit(wrong);
    _exit(use_inherited(a, extended) != 0 ? 30 : 0);  // the old ones stay dead beside the new
  }
  // The parent's traffic goes on meanwhile.
  int status = 0;
  uint64_t messages = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    b.receive(messages, 0, 64);
    a.set_word(0, messages);
    ASSERT_EQ(0, a.post_send(messages));
    ASSERT_TRUE(a.next_is(messages, IBV_WC_SUCCESS));
    ASSERT_TRUE(b.next_is(messages, IBV_WC_SUCCESS));
    ASSERT_EQ(messages, b.word(0));
    ++messages;
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  EXPECT_GT(messages, 0u);
}

TEST_P(Fork, NothingOfTheParentsIsMadeChangedOrDestroyed) {
  EXPECT_EQ(0, GetParam() ? ibv_fork_init() : 0);
  End a, b;
  connect(a, b);
  Belongings own(a.pd());
  ASSERT_TRUE(own.whole());
  const pid_t child = fork();
  if (child == 0) {
    if (const int wrong = make_of_inherited(a, own)) _exit(wrong);
    if (const int wrong = change_inherited(a, own)) _exit(wrong);
    _exit(destroy_inherited(a, own));
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "the step that went wrong";
  b.receive(1, 0, 64);
  a.set_word(0, 77);
  ASSERT_EQ(0, a.post_send(1));
  ASSERT_TRUE(a.next_is(1, IBV_WC_SUCCESS));
  ASSERT_TRUE(b.next_is(1, IBV_WC_SUCCESS));
  EXPECT_EQ(77u, b.word(0));
}

// With VERBENA_EXPLAIN each call that the child's inherited objects refuse says why.
TEST(ForkSaid, EachRefusalHasASentence) {
  End end, extended({.wc_flags = IBV_WC_STANDARD_FLAGS, .send_ops = kReliableOps});
  int pipe_ends[2];
  ASSERT_EQ(0, pipe(pipe_ends));
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    setenv("VERBENA_EXPLAIN", "1", 1);
    ibv_wc completion{};
    ibv_recv_wr receive{}, *bad = nullptr;
    ibv_poll_cq_attr poll{};
    (void)ibv_poll_cq(end.cq(), 1, &completion);
    (void)end.post_send(1);
    (void)ibv_post_recv(end.qp(), &receive, &bad);
    (void)ibv_req_notify_cq(end.cq(), 0);
    (void)ibv_start_poll(extended.cq_ex(), &poll);
    ibv_wr_start(extended.ex());
    ibv_wr_send(extended.ex());
    (void)ibv_wr_complete(extended.ex());
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t got = 0; (got = read(pipe_ends[0], bytes, sizeof bytes)) > 0;)
    said.append(bytes, static_cast<size_t>(got));
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  size_t sentences = 0;
  for (size_t at = 0; (at = said.find("opened before fork()", at)) != std::string::npos; ++at) ++sentences;
  EXPECT_EQ(6u, sentences) << said;
}

}  // namespace
}  // namespace verbena::surface
