// Parent domains with the program's allocators, thread domains, and imports of device, domain and region.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "end.hpp"

namespace verbena::surface {
namespace {

// What the allocators were asked for.
struct Ledger {
  std::map<void*, uint64_t> live;  // by resource type
  int allocated = 0;
  int freed = 0;
  bool refuses = false;
  bool leaves = false;  // to the device
};

void* allocate(ibv_pd*, void* context, size_t size, size_t alignment, uint64_t type) {
  auto& ledger = *static_cast<Ledger*>(context);
  if (ledger.leaves) return IBV_ALLOCATOR_USE_DEFAULT;
  if (ledger.refuses) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) return nullptr;
  std::memset(memory, 0xa5, size);  // nobody may rely on zeros
  ledger.live[memory] = type;
  ++ledger.allocated;
  return memory;
}

void release(ibv_pd*, void* context, void* memory, uint64_t type) {
  auto& ledger = *static_cast<Ledger*>(context);
  EXPECT_EQ(type, ledger.live.at(memory));
  ledger.live.erase(memory);
  ++ledger.freed;
  free(memory);
}

class Domains : public testing::Test {
 protected:
  ~Domains() override { EXPECT_EQ(0, ibv_dealloc_pd(pd_)); }
  ibv_pd* parent(ibv_td* td = nullptr, uint32_t mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                                                       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = pd_;
    attr.td = td;
    attr.comp_mask = mask;
    attr.alloc = allocate;
    attr.free = release;
    attr.pd_context = &ledger_;
    return ibv_alloc_parent_domain(device(), &attr);
  }

  ibv_pd* pd_ = ibv_alloc_pd(device());
  Ledger ledger_;
};

TEST_F(Domains, QueuesLiveInTheProgramsMemory) {
  ibv_pd* domain = parent();
  ASSERT_NE(nullptr, domain);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 100;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain;
  ibv_cq_ex* cq = ibv_create_cq_ex(device(), &attr);
  ASSERT_NE(nullptr, cq);
  EXPECT_EQ(1, ledger_.allocated);
  {
    End a({.pd = domain, .cq = ibv_cq_ex_to_cq(cq)}), b({.pd = domain});
    EXPECT_EQ(3, ledger_.allocated);  // and a send queue each
    connect(a, b);
    for (uint64_t i = 0; i < 50; ++i) {
      b.receive(i, 0, 64);
      a.set_word(0, i);
      ASSERT_EQ(0, a.post_send(i));
      ASSERT_TRUE(a.next_is(i, IBV_WC_SUCCESS));
      ASSERT_TRUE(b.next_is(i, IBV_WC_SUCCESS));
      EXPECT_EQ(i, b.word(0));
    }
    EXPECT_EQ(EBUSY, ibv_dealloc_pd(domain));
    EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd_));
  }
  EXPECT_EQ(2, ledger_.freed);  // at once, by the thread that destroys
  EXPECT_EQ(EBUSY, ibv_dealloc_pd(domain));
  EXPECT_EQ(0, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
  EXPECT_EQ(3, ledger_.freed);
  EXPECT_TRUE(ledger_.live.empty());
  EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd_));
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
}

// It protects as what it stands for does: keys and queue pairs of both go together.
TEST_F(Domains, OneProtectionUnderTwoNames) {
  ibv_pd* domain = parent();
  {
    End a({.pd = domain}), b({.pd = pd_});
    connect(a, b);
    ibv_mr* of_base = ibv_reg_mr(pd_, a.bytes(), 4096, kAccess);
    ibv_sge one{a.address(), 8, of_base->lkey};
    ibv_send_wr request{};
    request.sg_list = &one;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = b.address();
    request.wr.rdma.rkey = b.mr()->rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(0, ibv_post_send(a.qp(), &request, &bad));
    ASSERT_TRUE(a.next_is(0, IBV_WC_SUCCESS));
    EXPECT_EQ(0, ibv_dereg_mr(of_base));
  }
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
}

TEST_F(Domains, AnAllocatorMayRefuseOrLeaveItToUs) {
  ibv_pd* domain = parent();
  ledger_.refuses = true;
  errno = 0;
  EXPECT_THROW(End({.pd = domain}), std::runtime_error);
  ledger_.refuses = false;
  ledger_.leaves = true;
  {
    End a({.pd = domain});
    EXPECT_EQ(0, ledger_.allocated);
  }
  EXPECT_EQ(0, ledger_.freed);
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
}

TEST_F(Domains, WithoutAllocators) {
  ibv_pd* domain = parent(nullptr, 0);
  {
    End a({.pd = domain}), b({.pd = domain});
    connect(a, b);
    b.receive(1);
    ASSERT_EQ(0, a.post_send(1));
    EXPECT_TRUE(b.next_is(1, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(0, ledger_.allocated);
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
}

TEST_F(Domains, ThreadDomains) {
  ibv_td_init_attr attr{};
  ibv_td* td = ibv_alloc_td(device(), &attr);
  ASSERT_NE(nullptr, td);
  EXPECT_EQ(device(), td->context);
  ibv_pd* domain = parent(td);
  EXPECT_EQ(EBUSY, ibv_dealloc_td(td));
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
  EXPECT_EQ(0, ibv_dealloc_td(td));
  attr.comp_mask = 1;
  EXPECT_EQ(nullptr, ibv_alloc_td(device(), &attr));
  EXPECT_EQ(EINVAL, errno);
}

TEST_F(Domains, WhatIsRefused) {
  ibv_parent_domain_init_attr attr{};
  EXPECT_EQ(nullptr, ibv_alloc_parent_domain(device(), &attr));
  EXPECT_EQ(EINVAL, errno);
  attr.pd = pd_;
  attr.comp_mask = 1u << 9;
  EXPECT_EQ(nullptr, ibv_alloc_parent_domain(device(), &attr));
  EXPECT_EQ(EOPNOTSUPP, errno);
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  EXPECT_EQ(nullptr, ibv_alloc_parent_domain(device(), &attr));
  EXPECT_EQ(EINVAL, errno);
  ibv_pd* domain = parent();
  attr = {};
  attr.pd = domain;  // no parent of a parent
  EXPECT_EQ(nullptr, ibv_alloc_parent_domain(device(), &attr));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, ibv_dealloc_pd(domain));
}

// ---- Imports. ----

TEST(Imports, DeviceDomainAndRegion) {
  End a, b;
  ibv_context* context = ibv_import_device(dup(device()->cmd_fd));
  ASSERT_NE(nullptr, context);
  EXPECT_STREQ(ibv_get_device_name(device()->device), ibv_get_device_name(context->device));
  ibv_pd* pd = ibv_import_pd(context, b.pd()->handle);
  ASSERT_NE(nullptr, pd);
  ibv_mr* mr = ibv_import_mr(pd, b.mr()->handle);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(nullptr, mr->addr);
  EXPECT_EQ(b.mr()->rkey, mr->rkey);
  connect(a, b);
  a.set_word(0, 0xabc);
  ibv_sge one = a.piece(0, 8);
  ibv_send_wr request{};
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = b.address(64);
  request.wr.rdma.rkey = mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(0, ibv_post_send(a.qp(), &request, &bad));
  ASSERT_TRUE(a.next_is(0, IBV_WC_SUCCESS));
  EXPECT_EQ(0xabcu, b.word(64));
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  EXPECT_EQ(0, ibv_close_device(context));
}

TEST(Imports, WhatIsNotThere) {
  End a, b;
  EXPECT_EQ(nullptr, ibv_import_device(-1));
  EXPECT_EQ(nullptr, ibv_import_pd(device(), 0x7fffffff));
  EXPECT_EQ(ENOENT, errno);
  EXPECT_EQ(nullptr, ibv_import_mr(a.pd(), 0x7fffffff));
  EXPECT_EQ(ENOENT, errno);
  EXPECT_EQ(nullptr, ibv_import_mr(a.pd(), b.mr()->handle));  // another domain's
  EXPECT_EQ(ENOENT, errno);
}

// In the child, which opened a device of its own: the parent's cmd_fd opens it, but the parent's handles,
// which may be the numbers of objects here, bring nothing.
int import_parents(int command, uint32_t domain, uint32_t region) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* own = list != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (own == nullptr) return 1;
  std::vector<ibv_pd*> mine;
  static char bytes[64];
  for (uint32_t i = 0; i <= domain; ++i) {
    mine.push_back(ibv_alloc_pd(own));
    if (mine.back() == nullptr || ibv_reg_mr(mine.back(), bytes, sizeof bytes, 0) == nullptr) return 2;
  }
  ibv_context* context = ibv_import_device(command);
  if (context == nullptr) return 3;
  ibv_device_attr attr{};
  if (ibv_query_device(context, &attr) != 0) return 4;
  errno = 0;
  if (ibv_import_pd(context, domain) != nullptr || errno != ENOENT) return 5;
  ibv_pd* here = ibv_alloc_pd(context);
  if (here == nullptr) return 6;
  errno = 0;
  if (ibv_import_mr(here, region) != nullptr || errno != ENOENT) return 7;
  errno = 0;
  if (ibv_import_dm(context, 3) != nullptr || errno != ENOENT) return 8;
  if (ibv_import_pd(own, mine.front()->handle) == nullptr) return 9;  // its own are there
  return 0;
}

TEST(Imports, OfAnotherProcessOpenTheDeviceOnly) {
  End a;
  const pid_t child = fork();
  if (child == 0) _exit(import_parents(dup(device()->cmd_fd), a.pd()->handle, a.mr()->handle));
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "the step that went wrong";
}

TEST(Imports, AWindowIsNoRegion) {
  End a, b;
  connect(a, b);
  ibv_mr* mr = ibv_reg_mr(a.pd(), a.bytes(), 4096, kAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* window = ibv_alloc_mw(a.pd(), IBV_MW_TYPE_1);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {mr, a.address(), 64, IBV_ACCESS_REMOTE_READ};
  ASSERT_EQ(0, ibv_bind_mw(a.qp(), window, &bind));
  ASSERT_TRUE(a.next_is(0, IBV_WC_SUCCESS));
  EXPECT_EQ(nullptr, ibv_import_mr(a.pd(), window->handle));
  EXPECT_EQ(ENOENT, errno);
  EXPECT_EQ(0, ibv_dealloc_mw(window));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST(Imports, OfARegionThatIsGoneStayDead) {
  End a;
  ibv_mr* mr = ibv_reg_mr(a.pd(), a.bytes(), 4096, kAccess);
  ibv_mr* imported = ibv_import_mr(a.pd(), mr->handle);
  ASSERT_NE(nullptr, imported);
  EXPECT_EQ(0, ibv_dereg_mr(mr));
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, ibv_dereg_mr(imported));
}

TEST(Imports, OfANullRegionStayAsItIs) {
  End a;
  ibv_mr* mr = ibv_alloc_null_mr(a.pd());
  ASSERT_NE(nullptr, mr);
  ibv_mr* imported = ibv_import_mr(a.pd(), mr->handle);
  ASSERT_NE(nullptr, imported);
  EXPECT_EQ(mr->rkey, imported->rkey);
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, a.bytes(), 4096, 0));
  ibv_unimport_mr(imported);
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

// ---- What goes together. ----

TEST(Contexts, QueuesAndChannelsOfAnotherAreRefused) {
  ibv_context* other = ibv_open_device(device()->device);
  ibv_context* imported = ibv_import_device(dup(device()->cmd_fd));
  ASSERT_NE(nullptr, other);
  ASSERT_NE(nullptr, imported);
  ibv_comp_channel* channel = ibv_create_comp_channel(device());
  EXPECT_EQ(nullptr, ibv_create_cq(other, 4, nullptr, channel, 0));
  EXPECT_EQ(EINVAL, errno);
  ibv_cq* cq = ibv_create_cq(imported, 4, nullptr, channel, 0);
  EXPECT_NE(nullptr, cq) << "an import is the same context";
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  ibv_pd* pd = ibv_alloc_pd(other);
  EXPECT_EQ(nullptr, ibv_create_qp(pd, &init));
  EXPECT_EQ(EINVAL, errno);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
  pd = ibv_alloc_pd(device());
  ibv_qp* qp = ibv_create_qp(pd, &init);
  ASSERT_NE(nullptr, qp);
  EXPECT_EQ(0, ibv_destroy_qp(qp));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
  EXPECT_EQ(0, ibv_destroy_cq(cq));
  EXPECT_EQ(0, ibv_destroy_comp_channel(channel));
  EXPECT_EQ(0, ibv_close_device(imported));
  EXPECT_EQ(0, ibv_close_device(other));
}

}  // namespace
}  // namespace verbena::surface
