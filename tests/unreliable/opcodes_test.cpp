// Which operation goes with which service (IBA table 49, as the seed shows it): accepted, or refused how.
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
    {IBV_WR_ATOMIC_WRITE, "ATOMIC_WRITE", {kTaken, kNone, kNone}},
    {13, "no opcode", {kNone, kNone, kNone}},
};
constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
constexpr std::array kTypeNames = {"RC", "UC", "UD"};

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

}  // namespace
}  // namespace verbena::unreliable
