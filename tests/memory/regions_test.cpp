// Regions of other kinds than plain ones: on demand, all of the address space, null, from zero; and advice.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 65536;
constexpr unsigned kOnDemand = kAllAccess | IBV_ACCESS_ON_DEMAND;
using Mr = std::unique_ptr<ibv_mr, decltype([](ibv_mr* mr) { EXPECT_EQ(0, ibv_dereg_mr(mr)); })>;

// Pages of this process that come and go. They are far below whatever else is mapped: the kernel puts the
// next mapping into the highest gap, so that nothing of another thread's, or of a sanitizer's, comes to lie
// where they were.
struct Pages {
  Pages() : at(::mmap(nullptr, kFarBelow, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    ::munmap(at, kFarBelow);
    put();
  }
  ~Pages() { take(); }
  void put() {
    EXPECT_EQ(at, ::mmap(at, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  }
  void take() { ::munmap(at, kSize); }
  [[nodiscard]] std::byte* bytes() const { return static_cast<std::byte*>(at); }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(at); }
  static constexpr uint64_t kFarBelow = uint64_t{1} << 30;
  void* at;
};

class RegionsTest : public PairTest {
 protected:
  void prepare() {
    open_connected();
    theirs_ = b().add_buffer(kSize);
  }
  [[nodiscard]] Mr region(void* address, size_t length, unsigned access) {
    return Mr(
        ibv_reg_mr_iova2(a().endpoint().pd(), address, length, reinterpret_cast<uint64_t>(address), access));
  }
  // b's request to our memory, and how it ends.
  [[nodiscard]] ibv_wc_status ask(ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, uint64_t length) {
    EXPECT_EQ(0, b().post_send({.opcode = opcode,
                                .remote_address = address,
                                .rkey = rkey,
                                .pieces = {theirs_.piece(0, length)}}));
    return b().next(Queue::kSend).status;
  }
  // Ours, with memory of ours.
  [[nodiscard]] ibv_wc_status run(ibv_wr_opcode opcode, const Pieces& pieces) {
    EXPECT_EQ(
        0,
        a().post_send(
            {.opcode = opcode, .remote_address = theirs_.address, .rkey = theirs_.rkey, .pieces = pieces}));
    return a().next(Queue::kSend).status;
  }
  [[nodiscard]] int advise(ibv_advise_mr_advice advice, uint32_t flags, ibv_sge range) {
    return ibv_advise_mr(a().endpoint().pd(), advice, flags, &range, 1);
  }

  Buffer theirs_;  // b's
};
RC_IN_BOTH(RegionsTest);

TEST_P(RegionsTest, OnDemandIsWhatIsMappedWhenItIsUsed) {
  prepare();
  Pages pages;
  pages.take();  // nothing is there when it is registered
  const Mr mr = region(pages.at, kSize, kOnDemand);
  ASSERT_NE(nullptr, mr);
  pages.put();
  b().fill(theirs_, 4);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, pages.address(), kSize));
  EXPECT_EQ(-1, pattern_mismatch(pages.bytes(), kSize, 4));
  pages.put();  // other pages at the same place
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_READ, mr->rkey, pages.address(), 8));
  EXPECT_EQ(0u, b().word(theirs_));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_ATOMIC_FETCH_AND_ADD, mr->rkey, pages.address(), 8));
  EXPECT_EQ(IBV_WC_SUCCESS, run(IBV_WR_RDMA_READ, {{pages.address(), kSize, mr->lkey}}));
  EXPECT_EQ(IBV_WC_SUCCESS, run(IBV_WR_RDMA_WRITE, {{pages.address(), kSize, mr->lkey}}));
  pages.take();
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_WRITE, mr->rkey, pages.address(), 8));
}

TEST_P(RegionsTest, ImplicitIsAllOfTheAddressSpace) {
  prepare();
  const Mr mr = region(nullptr, SIZE_MAX, kOnDemand);
  ASSERT_NE(nullptr, mr);
  Pages pages;
  b().fill(theirs_, 6);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, pages.address() + 8, 4000));
  EXPECT_EQ(-1, pattern_mismatch(pages.bytes() + 8, 4000, 6));
  uint64_t on_stack = 5;
  EXPECT_EQ(IBV_WC_SUCCESS,
            run(IBV_WR_RDMA_WRITE, {{reinterpret_cast<uint64_t>(&on_stack), sizeof on_stack, mr->lkey}}));
  EXPECT_EQ(5u, b().word(theirs_));
  EXPECT_EQ(nullptr, region(nullptr, SIZE_MAX, kAllAccess)) << "only on demand";
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_WRITE, mr->rkey, 4096, 8)) << "nothing is mapped there";
}

TEST_P(RegionsTest, NullReadsZerosAndForgets) {
  prepare();
  const Mr null(ibv_alloc_null_mr(a().endpoint().pd()));
  ASSERT_NE(nullptr, null);
  EXPECT_EQ(SIZE_MAX, null->length);
  Pages pages;
  const Mr mr = region(pages.at, kSize, kAllAccess);
  for (const uint32_t length : {8u, 1000u, 50000u}) {
    b().fill(theirs_, 1);
    // Into nothing and into memory, then from nothing.
    EXPECT_EQ(IBV_WC_SUCCESS,
              run(IBV_WR_RDMA_READ, {{0, length, null->lkey}, {pages.address(), 8, mr->lkey}}));
    EXPECT_EQ(IBV_WC_SUCCESS, run(IBV_WR_RDMA_WRITE, {{0x123456789, length, null->lkey}}));
    for (uint64_t at = 0; at + 8 <= length; at += 8) ASSERT_EQ(0u, b().word(theirs_, at)) << at;
  }
  // A receive that wants the end of a message only.
  for (const uint64_t length : {64, 60000}) {
    b().fill(theirs_, 2);
    ASSERT_EQ(0, a().post_receive(3, {{0, static_cast<uint32_t>(length - 16), null->lkey},
                                      {pages.address(), 16, mr->lkey}}));
    ASSERT_EQ(0, b().post_send(send_of(1, {theirs_.piece(0, length)})));
    EXPECT_TRUE(next_is(a(), Queue::kReceive, 3, IBV_WC_SUCCESS));
    EXPECT_TRUE(next_is(b(), Queue::kSend, 1, IBV_WC_SUCCESS));
    std::byte expected[65536];
    fill_pattern(expected, length, 2);
    EXPECT_EQ(0, std::memcmp(expected + length - 16, pages.bytes(), 16));
  }
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_READ, null->lkey, 0, 8)) << "it is no rkey";
}

TEST_P(RegionsTest, ZeroBasedCountsFromZero) {
  prepare();
  Pages pages;
  const Mr mr = region(pages.bytes() + 100, 1000, kAllAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(nullptr, mr);
  b().fill(theirs_, 3);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, 0, 1000));
  EXPECT_EQ(-1, pattern_mismatch(pages.bytes() + 100, 1000, 3));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_WRITE, mr->rkey, 1, 1000));
}

TEST_P(RegionsTest, AddressesAsToldAndAnyOrder) {
  prepare();
  Pages pages;
  const Mr mr(ibv_reg_mr_iova2(a().endpoint().pd(), pages.at, kSize, 0x5000,
                               kAllAccess | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_OPTIONAL_RANGE));
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, 0x5000 + kSize - 8, 8));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_WRITE, mr->rkey, 0x4fff, 8));
}

TEST_P(RegionsTest, ReregistrationChangesWhatItIsTold) {
  prepare();
  Pages one;
  Pages two;
  Mr mr = region(one.at, kSize, IBV_ACCESS_LOCAL_WRITE);
  ibv_pd* other = ibv_alloc_pd(a().endpoint().context());
  const auto change = [&](int flags, ibv_pd* pd, void* address, size_t length, int access) {
    return ibv_rereg_mr(mr.get(), flags, pd, address, length, access);
  };
  EXPECT_EQ(0, change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, one.address(), 8));
  EXPECT_EQ(0, change(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, two.at, 4096, 0));
  EXPECT_EQ(two.at, mr->addr);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, two.address(), 8));
  // All three, there and back.
  EXPECT_EQ(0, change(IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION,
                      other, one.at, kSize, kAllAccess | IBV_ACCESS_ZERO_BASED));
  EXPECT_EQ(other, mr->pd);
  EXPECT_EQ(0, change(IBV_REREG_MR_CHANGE_PD, a().endpoint().pd(), nullptr, 0, 0));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, 0, 8));
  EXPECT_EQ(0, change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, one.address(), 8));
  EXPECT_EQ(0, ibv_dealloc_pd(other));
  // What can't be changes nothing.
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT, change(0, nullptr, nullptr, 0, 0));
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT, change(8, nullptr, nullptr, 0, 0));
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            change(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_NE(0, change(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, reinterpret_cast<void*>(4096), 4096, 0));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, one.address(), 8));
}

TEST_P(RegionsTest, AdviceAndItsErrors) {
  prepare();
  Pages pages;
  const Mr mr = region(pages.at, kSize, kOnDemand);
  const Mr plain = region(pages.at, kSize, kAllAccess);
  const Mr read_only = region(pages.at, kSize, IBV_ACCESS_ON_DEMAND);
  const ibv_sge all{pages.address(), kSize, mr->lkey};
  const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
  for (const auto advice : {IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT}) {
    EXPECT_EQ(0, advise(advice, 0, all));
    EXPECT_EQ(0, advise(advice, flush, all));
    EXPECT_EQ(EFAULT, advise(advice, flush, {pages.address() + 8, kSize, mr->lkey}));
    EXPECT_EQ(ENOENT, advise(advice, flush, {pages.address(), 8, mr->lkey ^ 1}));
    EXPECT_EQ(EINVAL, advise(advice, flush, {pages.address(), 8, plain->lkey}));
    EXPECT_EQ(EINVAL, advise(advice, 2, all));
  }
  EXPECT_EQ(EPERM, advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, {pages.address(), 8, read_only->lkey}));
  EXPECT_EQ(0, advise(IBV_ADVISE_MR_ADVICE_PREFETCH, flush, {pages.address(), 8, read_only->lkey}));
  EXPECT_EQ(EOPNOTSUPP, advise(static_cast<ibv_advise_mr_advice>(3), 0, all));
  EXPECT_EQ(EINVAL, ibv_advise_mr(a().endpoint().pd(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0));
  ibv_pd* other = ibv_alloc_pd(a().endpoint().context());
  ibv_sge range = all;
  EXPECT_EQ(EPERM, ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1));
  EXPECT_EQ(0, ibv_dealloc_pd(other));
  pages.take();
  EXPECT_EQ(EFAULT, advise(IBV_ADVISE_MR_ADVICE_PREFETCH, flush, all));
  EXPECT_EQ(0, advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 0, all)) << "it is advice";
  pages.put();
}

TEST_P(RegionsTest, WhatTheDevicePromises) {
  prepare();
  ibv_device_attr_ex attr{};
  ASSERT_EQ(0, ibv_query_device_ex(a().endpoint().context(), nullptr, &attr));
  EXPECT_EQ(static_cast<uint64_t>(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT), attr.odp_caps.general_caps);
  EXPECT_NE(0u, attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC);
  EXPECT_NE(0u, attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
  EXPECT_NE(0u, attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
  EXPECT_EQ(0u, attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A);
  EXPECT_NE(0u, attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);
  EXPECT_EQ(nullptr, ibv_reg_dmabuf_mr(a().endpoint().pd(), 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(EOPNOTSUPP, errno);
}

}  // namespace
}  // namespace verbena::rc
