// XRC domains and target queue pairs: who names them, who holds them, what is refused.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "party.hpp"

namespace verbena::xrc {
namespace {

int open_error(ibv_context* context, int fd, int flags) {
  ibv_xrcd_init_attr attr{
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
  errno = 0;
  ibv_xrcd* domain = ibv_open_xrcd(context, &attr);
  if (domain == nullptr) return errno;
  return ibv_close_xrcd(domain);
}

TEST(Objects, ADomainBelongsToItsFile) {
  FILE* file = std::tmpfile();
  ASSERT_NE(nullptr, file);
  const int fd = ::fileno(file);
  Party other(-1);
  ASSERT_NE(nullptr, other.srq());
  EXPECT_EQ(EAGAIN, open_error(other.context(), fd, 0)) << "nobody has made it";
  {
    Party party(fd);
    ASSERT_NE(nullptr, party.srq());
    EXPECT_EQ(0, open_error(party.context(), fd, 0));
    EXPECT_EQ(0, open_error(party.context(), fd, O_CREAT));
    EXPECT_EQ(EINVAL, open_error(party.context(), fd, O_CREAT | O_EXCL));
    EXPECT_EQ(EBUSY, ibv_close_xrcd(party.domain())) << "its shared receive queue is there";
    EXPECT_EQ(EBUSY, ibv_destroy_cq(party.cq()));
  }
  EXPECT_EQ(0, open_error(other.context(), fd, O_CREAT | O_EXCL)) << "the last one took it along";
  EXPECT_EQ(EBADF, open_error(other.context(), 9999, O_CREAT));
  std::fclose(file);
}

TEST(Objects, ATargetIsOpenedInItsDomainOnly) {
  Party party(-1);
  Party stranger(-1);
  ASSERT_NE(nullptr, party.srq());
  ibv_qp* target = party.make_target();
  ASSERT_NE(nullptr, target);
  EXPECT_EQ(nullptr, stranger.open_target(target->qp_num));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(nullptr, party.open_target(1234));
  ibv_qp* opened = party.open_target(target->qp_num);
  ASSERT_NE(nullptr, opened);
  EXPECT_EQ(target->qp_num, opened->qp_num);
  ASSERT_EQ(0, party.connect(target, 5));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(0, ibv_query_qp(opened, &attr, IBV_QP_STATE, &init));
  EXPECT_EQ(IBV_QPS_RTS, attr.qp_state) << "it is the same queue pair";
  EXPECT_EQ(5u, attr.dest_qp_num);
  attr.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(EINVAL, ibv_modify_qp(opened, &attr, IBV_QP_STATE));
}

TEST(Objects, HaveNoQueuesOfTheOtherSide) {
  Party party(-1);
  ASSERT_NE(nullptr, party.srq());
  ibv_qp* target = party.make_target();
  ibv_qp* initiator = party.make_initiator();
  ASSERT_TRUE(target != nullptr && initiator != nullptr);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(EINVAL, ibv_post_recv(target, &receive, &bad_receive));
  EXPECT_EQ(EINVAL, ibv_post_recv(initiator, &receive, &bad_receive));
  EXPECT_EQ(EINVAL, party.post(target, 1, {}));
  ibv_srq_init_attr_ex init{};
  init.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  init.srq_type = IBV_SRQT_XRC;
  init.pd = party.pd();
  EXPECT_EQ(nullptr, ibv_create_srq_ex(party.context(), &init)) << "without a domain";
  EXPECT_EQ(EINVAL, errno);
}

TEST(Objects, OtherQueuePairsDontReceiveByASharedQueueOfADomain) {
  Party party(-1);
  ASSERT_NE(nullptr, party.srq());
  for (const auto type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    ibv_qp_init_attr init{.send_cq = party.cq(),
                          .recv_cq = party.cq(),
                          .srq = party.srq(),
                          .cap = {.max_send_wr = 1, .max_send_sge = 1},
                          .qp_type = type};
    errno = 0;
    EXPECT_EQ(nullptr, ibv_create_qp(party.pd(), &init)) << type;
    EXPECT_EQ(EINVAL, errno) << type;
  }
}

}  // namespace
}  // namespace verbena::xrc
