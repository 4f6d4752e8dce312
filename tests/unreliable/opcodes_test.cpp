// Which operation goes with which service (IBA table 49, as the seed and ibv_post_send's man page show it):
// accepted, or refused how. One cell isn't as in the man page: SEND_WITH_INV on UC, for which the wire has no
// opcode (in IBA's table of them RC and XRC have one).
#include <array>
#include <string>

#include "end.hpp"

namespace verbena::unreliable {
namespace {

enum class Answer : uint8_t {
  kTaken,
  kNone,   // EINVAL: the service has no such operation
  kNever,  // EOPNOTSUPP: the API knows it, we don't do it
};

struct Row {
  unsigned opcode;
  const char* name;
  std::array<Answer, 3> answers;  // RC, UC, UD
};

constexpr Answer kTaken = Answer::kTaken;
constexpr Answer kNone = Answer::kNone;
constexpr Row kRows[] = {
    {IBV_WR_SEND, "SEND", {kTaken, kTaken, kTaken}},
    {IBV_WR_SEND_WITH_IMM, "SEND_WITH_IMM", {kTaken, kTaken, kTaken}},
    {IBV_WR_RDMA_WRITE, "RDMA_WRITE", {kTaken, kTaken, kNone}},
    {IBV_WR_RDMA_WRITE_WITH_IMM, "RDMA_WRITE_WITH_IMM", {kTaken, kTaken, kNone}},
    {IBV_WR_RDMA_READ, "RDMA_READ", {kTaken, kNone, kNone}},
    {IBV_WR_ATOMIC_CMP_AND_SWP, "ATOMIC_CMP_AND_SWP", {kTaken, kNone, kNone}},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, "ATOMIC_FETCH_AND_ADD", {kTaken, kNone, kNone}},
    {IBV_WR_TSO, "TSO", {Answer::kNever, Answer::kNever, Answer::kNever}},
    {IBV_WR_SEND_WITH_INV, "SEND_WITH_INV", {kTaken, kNone, kNone}},
    {IBV_WR_LOCAL_INV, "LOCAL_INV", {kTaken, kTaken, kNone}},
    {IBV_WR_BIND_MW, "BIND_MW", {kTaken, kTaken, kNone}},
    {IBV_WR_ATOMIC_WRITE, "ATOMIC_WRITE", {kTaken, kNone, kNone}},
    {13, "no opcode", {kNone, kNone, kNone}},
};
constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
constexpr std::array kTypeNames = {"RC", "UC", "UD"};

// A window of type 2 on the end's whole buffer; posted twice it would be bound already.
int post_bind(End& end, ibv_mw* window) {
  ibv_send_wr request{};
  request.wr_id = 2;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw = {.mw = window,
                     .rkey = ibv_inc_rkey(window->rkey),
                     .bind_info = {.mr = end.mr(),
                                   .addr = reinterpret_cast<uint64_t>(end.bytes()),
                                   .length = kBufferBytes,
                                   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(end.qp(), &request, &bad);
  EXPECT_EQ(bad, error != 0 ? &request : nullptr);
  return error;
}

int bind_once(End& end) {
  ibv_mw* window = ibv_alloc_mw(end.pd(), IBV_MW_TYPE_2);
  EXPECT_NE(window, nullptr);
  if (window == nullptr) return -1;
  const int error = post_bind(end, window);
  if (error == 0) {
    EXPECT_TRUE(end.next_is(2, IBV_WC_SUCCESS));
  }
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  return error;
}

int post(const Row& row, ibv_qp_type type) {
  End a(type);
  End b(type);
  if (type == IBV_QPT_UD) {
    a.ready_datagrams();
    b.ready_datagrams();
  } else {
    a.connect(b);
    b.connect(a);
  }
  if (row.opcode == IBV_WR_BIND_MW) return bind_once(a);
  b.receive(1, 0, 4096);
  ibv_ah* handle = type == IBV_QPT_UD ? a.handle_to(b) : nullptr;
  const int error = a.post({.length = 8,
                            .opcode = static_cast<ibv_wr_opcode>(row.opcode),
                            .remote_address = reinterpret_cast<uint64_t>(b.bytes()),
                            .rkey = b.mr()->rkey,
                            .ah = handle,
                            .target = b.number()});
  if (handle != nullptr) {
    EXPECT_EQ(ibv_destroy_ah(handle), 0);
  }
  return error;
}

class Opcodes : public testing::TestWithParam<size_t> {};

TEST_P(Opcodes, AreTakenOrRefusedAsTheMatrixSays) {
  const size_t column = GetParam();
  for (const Row& row : kRows) {
    const int error = post(row, kTypes.at(column));
    const std::string what = std::string(row.name) + " on " + kTypeNames.at(column);
    switch (row.answers.at(column)) {
      case Answer::kTaken:
        EXPECT_EQ(error, 0) << what;
        break;
      case Answer::kNone:
        EXPECT_EQ(error, EINVAL) << what;
        break;
      case Answer::kNever:
        EXPECT_EQ(error, EOPNOTSUPP) << what;
        break;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Services, Opcodes, testing::Values(0, 1, 2),
                         [](const auto& tested) { return std::string(kTypeNames.at(tested.param)); });

// UC writes through a window of type 2 until it is invalidated; then what comes is lost, as UC's losses are.
TEST(WindowsOnUc, AreBoundWrittenThroughAndInvalidated) {
  End a(IBV_QPT_UC);
  End b(IBV_QPT_UC);
  a.connect(b);
  b.connect(a);
  ibv_mw* window = ibv_alloc_mw(b.pd(), IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  ASSERT_EQ(post_bind(b, window), 0);
  ASSERT_TRUE(b.next_is(2, IBV_WC_SUCCESS));
  const uint32_t rkey = ibv_inc_rkey(window->rkey);
  Message write{.length = 8,
                .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                .remote_address = reinterpret_cast<uint64_t>(b.bytes()),
                .rkey = rkey};
  b.receive(3, 4096, 8);
  b.receive(4, 4096, 8);
  a.fill(0, 8, 5);
  ASSERT_EQ(a.post(write), 0);
  ASSERT_TRUE(b.next_is(3, IBV_WC_SUCCESS));
  EXPECT_TRUE(b.holds(0, 8, 5));
  ASSERT_EQ(b.post({.wr_id = 5, .length = 0, .opcode = IBV_WR_LOCAL_INV, .imm = rkey}), 0);
  ASSERT_TRUE(b.next_is(5, IBV_WC_SUCCESS));
  a.fill(0, 8, 6);
  ASSERT_EQ(a.post(write), 0);
  EXPECT_TRUE(b.nothing_comes());
  EXPECT_TRUE(b.holds(0, 8, 5));
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

}  // namespace
}  // namespace verbena::unreliable
