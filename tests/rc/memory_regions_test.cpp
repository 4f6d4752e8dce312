// Memory regions as programs register, change and give them back, and what peers can do with each.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "pair_test.hpp"

namespace verbena::rc {
namespace {

constexpr uint64_t kSize = 65536;

class Registration : public testing::Test {
 protected:
  ~Registration() override {
    EXPECT_EQ(0, ibv_dealloc_pd(pd_));
    EXPECT_EQ(0, ibv_close_device(context_));
  }
  // Registers and gives back: 0, or the errno.
  int attempt(void* address, size_t length, int access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(pd_, address, length, access);
    if (mr == nullptr) return errno;
    EXPECT_EQ(address, mr->addr);
    EXPECT_EQ(length, mr->length);
    EXPECT_EQ(pd_, mr->pd);
    EXPECT_EQ(context_, mr->context);
    EXPECT_EQ(0, ibv_dereg_mr(mr));
    return 0;
  }
  ibv_context* context_ = open_device();
  ibv_pd* pd_ = ibv_alloc_pd(context_);
};

TEST_F(Registration, EveryCombinationOfAccess) {
  const Memory memory(kSize, Backing::kPrivate);
  const int flags[] = {IBV_ACCESS_LOCAL_WRITE,     IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
                       IBV_ACCESS_REMOTE_ATOMIC,   IBV_ACCESS_MW_BIND,      IBV_ACCESS_ZERO_BASED,
                       IBV_ACCESS_RELAXED_ORDERING};
  for (unsigned set = 0; set < 1u << 7; ++set) {
    int access = 0;
    for (unsigned bit = 0; bit < 7; ++bit)
      if ((set >> bit & 1) != 0) access |= flags[bit];
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    const bool refused = writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0;
    EXPECT_EQ(refused ? EINVAL : 0, attempt(memory.data(), kSize, access)) << access;
  }
  EXPECT_EQ(0, attempt(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
  EXPECT_EQ(EINVAL, attempt(memory.data(), kSize, 1 << 16));
}

TEST_F(Registration, AnyAddressAndLength) {
  const Memory memory(kSize, Backing::kPrivate);
  for (const size_t offset : {0, 1, 7, 4095, 4096, 60000})
    for (const size_t length : {1, 2, 4096, 5000})
      EXPECT_EQ(0, attempt(memory.data() + offset, length, kAllAccess));
  int on_stack = 0;
  EXPECT_EQ(0, attempt(&on_stack, sizeof on_stack, kAllAccess));
  static const int constant = 5;
  EXPECT_EQ(0, attempt(const_cast<int*>(&constant), sizeof constant, IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(EFAULT, attempt(const_cast<int*>(&constant), sizeof constant, kAllAccess)) << "it is read-only";
}

TEST_F(Registration, MemoryThatIsNotThere) {
  Memory memory(kSize, Backing::kPrivate);
  std::byte* data = memory.data();
  ASSERT_EQ(0, memory.unmap(8192, 4096));
  EXPECT_EQ(0, attempt(data, 8192, kAllAccess));
  EXPECT_EQ(EFAULT, attempt(data, 8193, kAllAccess)) << "its last byte isn't mapped";
  EXPECT_EQ(EFAULT, attempt(data + 8192, 1, 0));
  EXPECT_EQ(EFAULT, attempt(data + 12287, 2, 0)) << "its first byte isn't mapped";
  EXPECT_EQ(EFAULT, attempt(data, kSize, 0)) << "a hole in the middle";
  EXPECT_EQ(0, attempt(data + 12288, 4096, kAllAccess));
  EXPECT_EQ(EFAULT, attempt(nullptr, 4096, kAllAccess));
  EXPECT_EQ(EINVAL, attempt(reinterpret_cast<void*>(~uintptr_t{4095}), 8192, 0)) << "it wraps around";
}

TEST_F(Registration, MemoryThatMayNotBeWritten) {
  const Memory memory(kSize, Backing::kPrivate);
  ASSERT_EQ(0, ::mprotect(memory.data() + 4096, 4096, PROT_READ));
  EXPECT_EQ(EFAULT, attempt(memory.data(), kSize, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(EFAULT, attempt(memory.data() + 4096, 1, kAllAccess));
  EXPECT_EQ(0, attempt(memory.data(), kSize, 0));
  EXPECT_EQ(0, attempt(memory.data(), kSize, IBV_ACCESS_REMOTE_READ));
  ASSERT_EQ(0, ::mprotect(memory.data() + 4096, 4096, PROT_NONE));
  EXPECT_EQ(EFAULT, attempt(memory.data(), kSize, IBV_ACCESS_REMOTE_READ));
  ASSERT_EQ(0, ::mprotect(memory.data() + 4096, 4096, PROT_READ | PROT_WRITE));
  EXPECT_EQ(0, attempt(memory.data(), kSize, kAllAccess));
}

// Registering takes no memory away from the program: no memlock limit applies.
TEST_F(Registration, MoreThanCouldBeLocked) {
  const Memory memory(uint64_t{16} << 30, Backing::kPrivate);
  EXPECT_EQ(0, attempt(memory.data(), memory.length(), kAllAccess));
}

TEST_F(Registration, DomainWithRegionsIsBusy) {
  const Memory memory(kSize, Backing::kPrivate);
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(nullptr, pd);
  ibv_mr* mr = ibv_reg_mr(pd, memory.data(), kSize, 0);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(EBUSY, ibv_dealloc_pd(pd));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

class Regions : public PairTest {
 protected:
  void set() {
    open_connected();
    local_ = a().add_buffer(kSize);
    remote_ = b().add_buffer(kSize);
    a().fill(local_, 1);
    b().fill(remote_, 2);
  }
  // A request of a's that is done, and how.
  ibv_wc_status run(const SendOrder& order) {
    EXPECT_EQ(0, a().post_send(order));
    return a().next(Queue::kSend).status;
  }
  // Connects anew after a refused request.
  void heal() {
    EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
    for (Side* side : {&a(), &b()}) EXPECT_EQ(0, side->to_state(IBV_QPS_RESET));
    connect();
  }
  SendOrder write(uint64_t address, uint32_t rkey, uint64_t length = 64) {
    SendOrder order = rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, length)}, Buffer{});
    order.remote_address = address;
    order.rkey = rkey;
    return order;
  }

  Buffer local_;
  Buffer remote_;
};
// The region under test is registered by hand, so it lives here: both ends are in this process.
INSTANTIATE_TEST_SUITE_P(Rc, Regions, testing::Values(Where::kOneProcess), name_of);

TEST_P(Regions, Iova) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  for (const uint64_t iova : {uint64_t{0}, uint64_t{0x1000}, uint64_t{12345}, uint64_t{1} << 62}) {
    ibv_mr* mr = ibv_reg_mr_iova(b().endpoint().pd(), memory.data(), kSize, iova, kAllAccess);
    ASSERT_NE(nullptr, mr);
    for (const uint64_t length : {64, 20000}) {
      fill_pattern(memory.data(), kSize, 7);
      EXPECT_EQ(IBV_WC_SUCCESS, run(write(iova + 100, mr->rkey, length)));
      EXPECT_EQ(-1, pattern_mismatch(memory.data() + 100, length, 1));
      EXPECT_EQ(-1, pattern_mismatch(memory.data(), 100, 7));
    }
    EXPECT_EQ(IBV_WC_SUCCESS, run(write(iova + kSize - 64, mr->rkey)));
    EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(iova + kSize - 63, mr->rkey)));
    heal();
    EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(reinterpret_cast<uint64_t>(memory.data()), mr->rkey)));
    heal();
    EXPECT_EQ(0, ibv_dereg_mr(mr));
  }
}

// Addresses of local pieces count from the iova, too.
TEST_P(Regions, IovaAtHome) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  fill_pattern(memory.data(), kSize, 9);
  ibv_mr* mr = ibv_reg_mr_iova(a().endpoint().pd(), memory.data(), kSize, 0x5000, kAllAccess);
  ASSERT_NE(nullptr, mr);
  for (const uint32_t length : {64u, 20000u}) {
    EXPECT_EQ(IBV_WC_SUCCESS, run(rdma(IBV_WR_RDMA_WRITE, 1, {ibv_sge{0x5000, length, mr->lkey}}, remote_)));
    EXPECT_EQ(-1, b().mismatch(remote_, 0, length, 9));
    b().fill(remote_, 11);
    EXPECT_EQ(IBV_WC_SUCCESS,
              run(rdma(IBV_WR_RDMA_READ, 1, {ibv_sge{0x5000 + 30000, length, mr->lkey}}, remote_)));
    EXPECT_EQ(-1, pattern_mismatch(memory.data() + 30000, length, 11));
  }
  // A receive as well.
  ASSERT_EQ(0, a().post_receive(3, {ibv_sge{0x5000 + 8, 100, mr->lkey}}));
  ASSERT_EQ(0, b().post_send(send_of(4, {remote_.piece(0, 100)})));
  EXPECT_TRUE(next_is(a(), Queue::kReceive, 3, IBV_WC_SUCCESS));
  EXPECT_EQ(-1, pattern_mismatch(memory.data() + 8, 100, 11));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_P(Regions, ZeroBased) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  ibv_mr* mr = ibv_reg_mr(b().endpoint().pd(), memory.data(), kSize, kAllAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(200, mr->rkey)));
  EXPECT_EQ(-1, pattern_mismatch(memory.data() + 200, 64, 1));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(reinterpret_cast<uint64_t>(memory.data()), mr->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_P(Regions, RegionsMayOverlap) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  ibv_pd* pd = b().endpoint().pd();
  ibv_mr* whole = ibv_reg_mr(pd, memory.data(), kSize, IBV_ACCESS_REMOTE_READ);
  ibv_mr* part = ibv_reg_mr(pd, memory.data() + 100, 1000, kAllAccess);
  ASSERT_NE(nullptr, whole);
  ASSERT_NE(nullptr, part);
  EXPECT_NE(whole->rkey, part->rkey);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(address + 100, part->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(part));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(address + 100, whole->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(whole));
}

TEST_P(Regions, ChangeTranslation) {
  set();
  const Memory first(kSize, Backing::kPrivate);
  const Memory second(2 * kSize, Backing::kPrivate);
  const auto at = [](const Memory& memory) { return reinterpret_cast<uint64_t>(memory.data()); };
  ibv_mr* mr = ibv_reg_mr(b().endpoint().pd(), first.data(), kSize, kAllAccess);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(at(first), mr->rkey)));
  ASSERT_EQ(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.data(), 2 * kSize, 0));
  EXPECT_EQ(second.data(), mr->addr);
  EXPECT_EQ(2 * kSize, mr->length);
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(at(second) + 2 * kSize - 64, mr->rkey)));
  EXPECT_EQ(-1, pattern_mismatch(second.data() + 2 * kSize - 64, 64, 1));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(at(first), mr->rkey))) << "it left";
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_P(Regions, ChangeAccess) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  ibv_mr* mr = ibv_reg_mr(b().endpoint().pd(), memory.data(), kSize, kAllAccess);
  ASSERT_NE(nullptr, mr);
  ASSERT_EQ(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(address, mr->rkey)));
  heal();
  ASSERT_EQ(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess));
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(address, mr->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_P(Regions, ChangeDomain) {
  set();
  const Memory memory(kSize, Backing::kPrivate);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  ibv_pd* other = ibv_alloc_pd(b().endpoint().context());
  ASSERT_NE(nullptr, other);
  ibv_mr* mr = ibv_reg_mr(other, memory.data(), kSize, kAllAccess);
  ASSERT_NE(nullptr, mr);
  EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, run(write(address, mr->rkey)));
  heal();
  ASSERT_EQ(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, b().endpoint().pd(), nullptr, 0, 0));
  EXPECT_EQ(b().endpoint().pd(), mr->pd);
  EXPECT_EQ(0, ibv_dealloc_pd(other)) << "nothing is in it any more";
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(address, mr->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

TEST_P(Regions, RefusedChangesLeaveItAsItWas) {
  set();
  Memory memory(kSize, Backing::kPrivate);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  ibv_mr* mr = ibv_reg_mr(b().endpoint().pd(), memory.data(), 4096, kAllAccess);
  ASSERT_NE(nullptr, mr);
  ASSERT_EQ(0, memory.unmap(8192, 4096));
  EXPECT_NE(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data() + 8192, 4096, 0));
  EXPECT_NE(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_NE(0, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0));
  EXPECT_NE(0, ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0));
  EXPECT_NE(0, ibv_rereg_mr(mr, 1 << 20, nullptr, nullptr, 0, 0));
  EXPECT_EQ(IBV_WC_SUCCESS, run(write(address, mr->rkey)));
  EXPECT_EQ(0, ibv_dereg_mr(mr));
}

class BusyRegions : public Regions {};
RC_IN_BOTH(BusyRegions);

// A region that a long request is using: it is given back at once or after what is being copied, and the rest
// of the request is refused. The program may then free the memory.
TEST_P(BusyRegions, GivenBackUnderALongRequest) {
  for (const bool at_the_target : {true, false})
    for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      SCOPED_TRACE(testing::Message() << (at_the_target ? "target" : "requester") << ", opcode " << opcode);
      const auto refused = at_the_target ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
      ibv_wc found{};
      // If the machine puts us aside for so long, all is done before we come to give it back: once more.
      for (int attempt = 0; attempt < 10 && found.status == IBV_WC_SUCCESS; ++attempt) {
        open_connected();
        const uint64_t length = 512 << 20;
        const Buffer local = a().add_buffer(length);
        const Buffer remote = b().add_buffer(length);
        ASSERT_EQ(0, a().post_send(rdma(opcode, 1, {local.all()}, remote)));
        Side& side = at_the_target ? b() : a();
        const Buffer& buffer = at_the_target ? remote : local;
        ASSERT_EQ(0, side.deregister(buffer));
        ASSERT_EQ(0, side.unmap(buffer, 0, length));
        found = a().next(Queue::kSend);
      }
      // An answer that was lost on the way can't be given again by then: the requester waits for it in vain.
      const bool lost = over_wire() && at_the_target && found.status == IBV_WC_RETRY_EXC_ERR;
      ASSERT_TRUE(found.status == refused || lost) << ibv_wc_status_str(found.status);
      EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
      if (at_the_target) {
        EXPECT_TRUE(event_is(b(), IBV_EVENT_QP_ACCESS_ERR));
      } else {
        EXPECT_TRUE(state_is(b(), IBV_QPS_RTS));
      }
    }
}

// After ibv_dereg_mr has returned nobody writes there any more, whatever was under way.
TEST_P(BusyRegions, NothingIsWrittenAfterwards) {
  for (int round = 0; round < 30; ++round) {
    open_connected();
    const Buffer local = a().add_buffer(1 << 20);
    const Buffer remote = b().add_buffer(1 << 20);
    a().fill(local, 5);
    std::thread writer([&] {
      for (;;) {
        EXPECT_EQ(0, a().post_send(rdma(IBV_WR_RDMA_WRITE, 1,
                                        {local.piece(0, round % 2 == 0 ? 1 << 20 : 4096)}, remote)));
        if (a().next(Queue::kSend).status != IBV_WC_SUCCESS) return;
      }
    });
    ::usleep(static_cast<useconds_t>(200 + round * 100));
    ASSERT_EQ(0, b().deregister(remote));
    b().fill(remote, 6);
    writer.join();
    EXPECT_EQ(-1, b().mismatch(remote, 0, 1 << 20, 6));
    EXPECT_TRUE(state_is(a(), IBV_QPS_ERR));
  }
}

// A region that changes under fire: every request meets the one or the other, whole.
TEST_P(BusyRegions, ManyRegistrationsUnderTraffic) {
  set();
  std::atomic<bool> stop = false;
  std::thread traffic([&] {
    while (!stop && !HasFailure())
      EXPECT_EQ(IBV_WC_SUCCESS, run(rdma(IBV_WR_RDMA_WRITE, 1, {local_.piece(0, 64)}, remote_)));
  });
  for (int i = 0; i < 300; ++i) EXPECT_EQ(0, b().deregister(b().add_buffer(4096)));
  stop = true;
  traffic.join();
  EXPECT_EQ(-1, b().mismatch(remote_, 0, 64, 1));
}

}  // namespace
}  // namespace verbena::rc
