// Device memory: copies, regions in it, and what peers do with those.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr unsigned kAccess = kAllAccess | IBV_ACCESS_ZERO_BASED;

class DeviceMemoryTest : public PairTest {
 protected:
  void prepare() {
    open_connected();
    theirs_ = b().add_buffer(8192);
    ASSERT_EQ(0, ibv_query_device_ex(context(), nullptr, &device_));
  }
  [[nodiscard]] ibv_context* context() { return a().endpoint().context(); }
  [[nodiscard]] ibv_pd* pd() { return a().endpoint().pd(); }
  [[nodiscard]] ibv_dm* allocate(uint64_t length, uint32_t log_align = 0, uint32_t comp_mask = 0) {
    ibv_alloc_dm_attr attr{.length = length, .log_align_req = log_align, .comp_mask = comp_mask};
    return ibv_alloc_dm(context(), &attr);
  }
  [[nodiscard]] ibv_wc_status ask(ibv_wr_opcode opcode, uint32_t rkey, uint64_t offset, uint64_t length) {
    EXPECT_EQ(0, b().post_send({.opcode = opcode,
                                .remote_address = offset,
                                .rkey = rkey,
                                .compare_add = 5,
                                .pieces = {theirs_.piece(0, length)}}));
    return b().next(Queue::kSend).status;
  }

  Buffer theirs_;
  ibv_device_attr_ex device_{};
};
RC_IN_BOTH(DeviceMemoryTest);

TEST_P(DeviceMemoryTest, IsCopiedInWords) {
  prepare();
  ibv_dm* dm = allocate(100);
  ASSERT_NE(nullptr, dm);
  std::vector<char> out(100, 'a');
  std::vector<char> in(100);
  EXPECT_EQ(0, ibv_memcpy_to_dm(dm, 0, out.data(), 100));
  EXPECT_EQ(0, ibv_memcpy_from_dm(in.data(), dm, 4, 96));
  EXPECT_EQ(0, std::memcmp(in.data(), out.data(), 96));
  EXPECT_NE(0, ibv_memcpy_to_dm(dm, 3, out.data(), 4));
  EXPECT_NE(0, ibv_memcpy_to_dm(dm, 4, out.data(), 3));
  EXPECT_NE(0, ibv_memcpy_to_dm(dm, 104, out.data(), 4));
  EXPECT_NE(0, ibv_memcpy_from_dm(in.data(), dm, 0, 104));
  EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_P(DeviceMemoryTest, HasItsLimit) {
  prepare();
  ASSERT_NE(0u, device_.max_dm_size);
  ibv_dm* all = allocate(device_.max_dm_size);
  ASSERT_NE(nullptr, all);
  EXPECT_EQ(nullptr, allocate(4));
  EXPECT_EQ(ENOMEM, errno);
  EXPECT_EQ(0, ibv_free_dm(all));
  for (const auto& [length, align, mask] :
       {std::tuple{device_.max_dm_size + 1, 0u, 0u}, {0ul, 0u, 0u}, {64ul, 40u, 0u}, {64ul, 0u, 1u}}) {
    errno = 0;
    EXPECT_EQ(nullptr, allocate(length, align, mask));
    EXPECT_EQ(EINVAL, errno);
  }
  ibv_dm* aligned = allocate(64, 12);
  ASSERT_NE(nullptr, aligned);
  EXPECT_EQ(0, ibv_free_dm(aligned));
}

TEST_P(DeviceMemoryTest, PeersUseRegionsInIt) {
  prepare();
  ibv_dm* dm = allocate(8192);
  ASSERT_NE(nullptr, dm);
  ibv_mr* mr = ibv_reg_dm_mr(pd(), dm, 4096, 4096, kAccess);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(EBUSY, ibv_free_dm(dm));
  b().fill(theirs_, 3);
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_WRITE, mr->rkey, 0, 4096));
  std::vector<std::byte> seen(4096);
  EXPECT_EQ(0, ibv_memcpy_from_dm(seen.data(), dm, 4096, 4096));
  EXPECT_EQ(-1, pattern_mismatch(seen.data(), 4096, 3));
  uint64_t word = 37;
  EXPECT_EQ(0, ibv_memcpy_to_dm(dm, 4096 + 16, &word, sizeof word));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_ATOMIC_FETCH_AND_ADD, mr->rkey, 16, 8));
  EXPECT_EQ(37u, b().word(theirs_));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_RDMA_READ, mr->rkey, 16, 8));
  EXPECT_EQ(42u, b().word(theirs_));
  EXPECT_EQ(IBV_WC_SUCCESS, ask(IBV_WR_ATOMIC_WRITE, mr->rkey, 24, 8));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, ask(IBV_WR_RDMA_READ, mr->rkey, 4090, 8));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
  EXPECT_EQ(0, ibv_free_dm(dm));
}

// Offsets of the region are what our own requests use as well.
TEST_P(DeviceMemoryTest, OurRequestsUseIt) {
  prepare();
  ibv_dm* dm = allocate(4096);
  ibv_mr* mr = ibv_reg_dm_mr(pd(), dm, 0, 4096, kAccess);
  ASSERT_NE(nullptr, mr);
  const uint64_t word = 99;
  EXPECT_EQ(0, ibv_memcpy_to_dm(dm, 8, &word, sizeof word));
  ASSERT_EQ(0, a().post_receive(4, {{64, 8, mr->lkey}}));
  ASSERT_EQ(0, a().post_send({.opcode = IBV_WR_RDMA_WRITE,
                              .remote_address = theirs_.address,
                              .rkey = theirs_.rkey,
                              .pieces = {{8, 8, mr->lkey}}}));
  EXPECT_TRUE(next_is(a(), Queue::kSend, 1, IBV_WC_SUCCESS));
  ASSERT_EQ(0, b().post_send(send_of(1, {theirs_.piece(0, 8)})));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 4, IBV_WC_SUCCESS));
  EXPECT_TRUE(next_is(b(), Queue::kSend, 1, IBV_WC_SUCCESS));
  uint64_t back = 0;
  EXPECT_EQ(0, ibv_memcpy_from_dm(&back, dm, 64, sizeof back));
  EXPECT_EQ(99u, back);
  EXPECT_EQ(0, ibv_dereg_mr(mr));
  EXPECT_EQ(0, ibv_free_dm(dm));
}

TEST_P(DeviceMemoryTest, RegistrationsThatCantBe) {
  prepare();
  ibv_dm* dm = allocate(100);
  for (const auto& [offset, length, access] :
       {std::tuple{0ul, 104ul, kAccess},
        {100ul, 4ul, kAccess},
        {4ul, 100ul, kAccess},
        {0ul, 100ul, unsigned{kAllAccess}},
        {0ul, 100ul, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED}}) {
    errno = 0;
    EXPECT_EQ(nullptr, ibv_reg_dm_mr(pd(), dm, offset, length, access)) << offset << " " << length;
    EXPECT_EQ(EINVAL, errno);
  }
  ibv_mr* mr = ibv_reg_dm_mr(pd(), dm, 0, 100, kAccess);
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess));
  // Nor by a second handle of it.
  ibv_mr* imported = ibv_import_mr(pd(), mr->handle);
  ASSERT_NE(nullptr, imported);
  char plain[64];
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, plain, sizeof plain, 0));
  EXPECT_EQ(IBV_REREG_MR_ERR_INPUT,
            ibv_rereg_mr(imported, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess));
  ibv_unimport_mr(imported);
  EXPECT_EQ(0, ibv_dereg_mr(mr));
  EXPECT_EQ(0, ibv_free_dm(dm));
}

}  // namespace
}  // namespace verbena::rc
