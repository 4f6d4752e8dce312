#include "verbs/qp_attributes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
constexpr ibv_qp_cap kCap{
    .max_send_wr = 8, .max_recv_wr = 9, .max_send_sge = 2, .max_recv_sge = 3, .max_inline_data = 64};

// The transition table a second time, turned round: for each attribute the types and changes that take it,
// "!" where they require it. Written from the standard's table, not from the code's.
struct Taken {
  int bit;
  std::string_view types;
  std::string_view where;
};
constexpr Taken kTaken[] = {
    {IBV_QP_CUR_STATE, "RC UC UD", "RTR>RTS RTS>RTS SQD>RTS SQE>RTS"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "RC UC UD", "RTS>SQD"},
    {IBV_QP_ACCESS_FLAGS, "RC UC", "RESET>INIT! INIT>INIT INIT>RTR RTR>RTS RTS>RTS SQD>RTS SQD>SQD SQE>RTS"},
    {IBV_QP_QKEY, "UD", "RESET>INIT! INIT>INIT INIT>RTR RTR>RTS RTS>RTS SQD>RTS SQD>SQD SQE>RTS"},
    {IBV_QP_PKEY_INDEX, "RC UC UD", "RESET>INIT! INIT>INIT INIT>RTR SQD>SQD"},
    {IBV_QP_PORT, "RC", "RESET>INIT! INIT>INIT SQD>SQD"},
    {IBV_QP_PORT, "UC UD", "RESET>INIT! INIT>INIT"},
    {IBV_QP_AV, "RC UC", "INIT>RTR! SQD>SQD"},
    {IBV_QP_PATH_MTU, "RC UC", "INIT>RTR!"},
    {IBV_QP_DEST_QPN, "RC UC", "INIT>RTR!"},
    {IBV_QP_RQ_PSN, "RC UC", "INIT>RTR!"},
    {IBV_QP_SQ_PSN, "RC UC UD", "RTR>RTS!"},
    {IBV_QP_TIMEOUT, "RC", "RTR>RTS! SQD>SQD"},
    {IBV_QP_RETRY_CNT, "RC", "RTR>RTS! SQD>SQD"},
    {IBV_QP_RNR_RETRY, "RC", "RTR>RTS! SQD>SQD"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "RC", "RTR>RTS! SQD>SQD"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "RC", "INIT>RTR! SQD>SQD"},
    {IBV_QP_MIN_RNR_TIMER, "RC", "INIT>RTR! RTR>RTS RTS>RTS SQD>RTS SQD>SQD"},
    {IBV_QP_ALT_PATH, "RC UC", "INIT>RTR RTR>RTS RTS>RTS SQD>RTS SQD>SQD"},
    {IBV_QP_PATH_MIG_STATE, "RC UC", "RTR>RTS RTS>RTS SQD>RTS SQD>SQD"},
};

bool has_part(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool legal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  // Row: from. Column: RESET INIT RTR RTS SQD SQE ERR.
  constexpr std::string_view grid[] = {"xx....x", "xxx...x", "x..x..x", "x..xx.x",
                                       "x..xx.x", "x..x..x", "x.....x"};
  if (type == IBV_QPT_RC && from == IBV_QPS_SQE && to == IBV_QPS_RTS) return false;
  return grid[from][to] == 'x';
}

AttributeMasks expected(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  const std::string change = std::string(state_name(from)) + ">" + std::string(state_name(to));
  AttributeMasks masks;
  for (const Taken& taken : kTaken) {
    if (!has_part(taken.types, type_name(type)) || !has_part(taken.where, change)) continue;
    (has_part(taken.where, change + "!") ? masks.required : masks.optional) |= taken.bit;
  }
  return masks;
}

std::vector<PortFacts> two_ports() {
  PortFacts first{.pkey_table_length = 2, .active_mtu = IBV_MTU_4096};
  first.gids.set(0).set(3);
  PortFacts second{.pkey_table_length = 2, .active_mtu = IBV_MTU_1024};
  second.gids.set(1);
  return {first, second};
}

ibv_ah_attr vector_of_port(uint8_t port) {
  ibv_ah_attr vector{};
  vector.is_global = 1;
  vector.port_num = port;
  vector.grh.sgid_index = port == 2 ? 1 : 3;
  return vector;
}

// Values that pass every check, for any mask.
ibv_qp_attr good_values() {
  return {.path_mtu = IBV_MTU_1024,
          .path_mig_state = IBV_MIG_REARM,
          .qkey = 0x11111111,
          .rq_psn = 0xff123456,  // the high byte goes
          .sq_psn = 0xff654321,
          .dest_qp_num = 0xabcdef,
          .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
          .ah_attr = vector_of_port(1),
          .alt_ah_attr = vector_of_port(2),
          .pkey_index = 1,
          .en_sqd_async_notify = 5,
          .max_rd_atomic = 16,
          .max_dest_rd_atomic = 17,
          .min_rnr_timer = 12,
          .port_num = 1,
          .timeout = 14,
          .retry_cnt = 7,
          .rnr_retry = 6,
          .alt_port_num = 2,
          .alt_timeout = 15,
          .rate_limit = 77};
}

// A queue pair as it got to that state, with nothing in flight.
QpAttributes in_state(ibv_qp_type type, ibv_qp_state state) {
  QpAttributes attributes = initial_attributes(kCap);
  ibv_qp_attr wanted = good_values();
  for (const ibv_qp_state step : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (attributes.attr.qp_state == state) break;
    wanted.qp_state = step;
    apply_modify(type, attributes, wanted,
                 IBV_QP_STATE | expected(type, attributes.attr.qp_state, step).required);
  }
  enter_state(attributes, state);
  attributes.alternate_loaded = true;
  attributes.attr.sq_draining = 0;
  return attributes;
}

// A call that passes if the change is legal: exactly the required attributes, good values.
struct Call {
  ibv_qp_type type;
  ibv_qp_state from;
  ibv_qp_state to;
  ibv_qp_attr wanted = good_values();
  int mask = IBV_QP_STATE | expected(type, from, to).required;

  Call(ibv_qp_type type_of, ibv_qp_state before, ibv_qp_state after)
      : type(type_of), from(before), to(after) {
    wanted.qp_state = to;
    wanted.cur_qp_state = from;
  }
  [[nodiscard]] Call toggled(int bits) const {
    Call other = *this;
    other.mask ^= bits;
    return other;
  }
};

// "" when the call passes; else the sentence, after a look at the errno.
std::string refusal(const base::Result<void>& result) {
  if (result) return "";
  EXPECT_EQ(EINVAL, result.error().code);
  return result.error().sentence;
}
std::string refusal(const Call& call) {
  return refusal(
      check_modify(call.type, in_state(call.type, call.from), call.wanted, call.mask, two_ports()));
}

template <typename Check>
void for_each_change(Check check) {
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state from : kQpStates)
      for (const ibv_qp_state to : kQpStates) {
        SCOPED_TRACE(std::string(type_name(type)) + " " + std::string(state_name(from)) + ">" +
                     std::string(state_name(to)));
        check(type, from, to);
      }
}

TEST(QpModify, PassesWithExactlyTheRequiredAttributes) {
  for_each_change([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    const std::string sentence = refusal(Call(type, from, to));
    EXPECT_EQ(legal(type, from, to), sentence.empty()) << sentence;
    EXPECT_TRUE(sentence.empty() || has_part(sentence, "set qp_state to one of ")) << sentence;
  });
}

TEST(QpModify, TakesEveryAttributeOfTheTableAndNamesTheOnesItRefuses) {
  for_each_change([](ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
    if (!legal(type, from, to)) return;
    const AttributeMasks masks = expected(type, from, to);
    for (const AttributeName& name : attribute_names()) {
      if (name.bit == IBV_QP_STATE) continue;
      SCOPED_TRACE(name.flag);
      const std::string sentence = refusal(Call(type, from, to).toggled(name.bit));
      const bool passes = (masks.optional & name.bit) != 0;
      EXPECT_TRUE(passes ? sentence.empty() : has_part(sentence, name.flag)) << sentence;
    }
  });
}

TEST(QpModify, WithoutStateMeansTheSameState) {
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state state : kQpStates) {
      Call call(type, state, state);
      call.mask &= ~IBV_QP_STATE;
      std::memset(&call.wanted.qp_state, 0xee, sizeof call.wanted.qp_state);  // must not be looked at
      EXPECT_EQ(legal(type, state, state), refusal(call).empty()) << state_name(state);
    }
}

TEST(QpModify, SentencesSayWhatToChange) {
  const Call rtr(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR);
  const Call rts(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS);
  const Call datagram(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS);
  EXPECT_EQ(
      "RC queue pair, INIT to RTR: missing IBV_QP_RQ_PSN (rq_psn), IBV_QP_MIN_RNR_TIMER (min_rnr_timer): set "
      "the fields and add the bits to attr_mask",
      refusal(rtr.toggled(IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER)));
  EXPECT_EQ(
      "RC queue pair, RTR to RTS: IBV_QP_PATH_MTU (path_mtu) can't be set here: take it out of attr_mask; it "
      "is taken on INIT to RTR",
      refusal(rts.toggled(IBV_QP_PATH_MTU)));
  EXPECT_EQ("UD queue pair, RTR to RTS: UD queue pairs have no timeout: take IBV_QP_TIMEOUT out of attr_mask",
            refusal(datagram.toggled(IBV_QP_TIMEOUT)));
  EXPECT_EQ("RC queue pair, RESET to RTS: there is no such change of state: set qp_state to one of INIT, ERR",
            refusal(Call(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_RTS)));
  EXPECT_TRUE(has_part(refusal(Call(IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQE)), "only the device enters SQE"));
  EXPECT_TRUE(has_part(refusal(Call(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTR)), "nothing can be changed"));
  EXPECT_TRUE(has_part(refusal(rts.toggled(IBV_QP_CAP)), "give ibv_create_qp the sizes needed"));
  EXPECT_TRUE(has_part(refusal(rts.toggled(IBV_QP_RATE_LIMIT)), "packets aren't paced"));
}

TEST(QpModify, RefusesBitsStatesAndTypesThatAreNone) {
  Call state(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS);
  EXPECT_TRUE(has_part(refusal(state.toggled(1 << 21 | 1 << 26)), "bits 0x4200000 "));
  for (const uint32_t number : {7u, 99u, 0xffffffffu}) {
    std::memcpy(&state.wanted.qp_state, &number, sizeof number);
    EXPECT_TRUE(has_part(refusal(state), "qp_state is " + std::to_string(number)));
  }

  const QpAttributes now = initial_attributes(kCap);
  EXPECT_TRUE(
      has_part(refusal(check_modify(IBV_QPT_RAW_PACKET, now, good_values(), 0, two_ports())), "type 8"));
}

TEST(QpModify, CurrentStateMustBeTheActualOne) {
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state actual : {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE})
      for (uint32_t believed = 0; believed < 10; ++believed) {
        Call call(type, actual, IBV_QPS_RTS);
        call.mask |= IBV_QP_CUR_STATE;
        std::memcpy(&call.wanted.cur_qp_state, &believed, sizeof believed);
        const std::string sentence = refusal(call);
        EXPECT_EQ(believed == actual && legal(type, actual, IBV_QPS_RTS), sentence.empty()) << sentence;
        EXPECT_TRUE(believed == actual || has_part(sentence, "cur_qp_state")) << sentence;
      }
}

TEST(QpModify, WaitsForTheSendQueueToDrain) {
  QpAttributes now = in_state(IBV_QPT_RC, IBV_QPS_RTS);
  ibv_qp_attr wanted = good_values();
  wanted.qp_state = IBV_QPS_SQD;
  apply_modify(IBV_QPT_RC, now, wanted, IBV_QP_STATE);
  EXPECT_EQ(1, now.attr.sq_draining);
  const auto check = [&](ibv_qp_state to, int more) {
    wanted.qp_state = to;
    return refusal(check_modify(IBV_QPT_RC, now, wanted, IBV_QP_STATE | more, two_ports()));
  };
  EXPECT_TRUE(has_part(check(IBV_QPS_RTS, 0), "IBV_EVENT_SQ_DRAINED"));
  EXPECT_TRUE(has_part(check(IBV_QPS_SQD, IBV_QP_TIMEOUT), "sq_draining"));
  EXPECT_EQ("", check(IBV_QPS_SQD, 0));
  EXPECT_EQ("", check(IBV_QPS_ERR, 0));
  EXPECT_EQ("", check(IBV_QPS_RESET, 0));

  now.attr.sq_draining = 0;
  EXPECT_EQ("", check(IBV_QPS_SQD, IBV_QP_TIMEOUT));
  EXPECT_EQ("", check(IBV_QPS_RTS, 0));
}

// One field of a call that passes otherwise, with values that pass and values that don't.
template <typename Field, typename Value>
void expect_range(Call call, Field field, std::vector<Value> good, std::vector<Value> bad,
                  std::string_view part) {
  for (const bool valid : {true, false})
    for (const Value value : valid ? good : bad) {
      std::memcpy(&field(call.wanted), &value, sizeof value);  // also numbers that the enum doesn't have
      const std::string sentence = refusal(call);
      EXPECT_EQ(valid, sentence.empty()) << part << " " << +value << ": " << sentence;
      EXPECT_TRUE(valid || has_part(sentence, part)) << sentence;
    }
}
#define FIELD(name) \
  [](auto& attr) -> auto& { return attr.name; }
using Bytes = std::vector<uint8_t>;
using Words = std::vector<uint32_t>;

TEST(QpModify, ChecksRanges) {
  const Call init(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT);
  const Call rtr(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR);
  const Call rts(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS);
  expect_range(init, FIELD(port_num), Bytes{1, 2}, {0, 3, 255}, "port_num is");
  expect_range(init, FIELD(pkey_index), std::vector<uint16_t>{0, 1}, {2, 65535}, "pkey_index is");
  expect_range(init, FIELD(qp_access_flags), Words{0, 0xff, IBV_ACCESS_RELAXED_ORDERING, 1u << 29},
               {1u << 8, 1u << 19, 1u << 30, 1u << 31}, "qp_access_flags has unknown bits");
  expect_range(rtr, FIELD(path_mtu), Words{1, 3, 5}, {0, 6, 1024}, "path_mtu is");
  expect_range(rtr, FIELD(dest_qp_num), Words{0, 0xffffff}, {0x1000000, 0xffffffff}, "24 bits");
  expect_range(rtr, FIELD(rq_psn), Words{0, 0xffffff, 0xffffffff}, {}, "rq_psn");
  expect_range(rtr, FIELD(min_rnr_timer), Bytes{0, 31}, {32, 255}, "min_rnr_timer is");
  expect_range(rtr, FIELD(max_dest_rd_atomic), Bytes{0, kMaxQpRdAtom}, {kMaxQpRdAtom + 1, 255},
               "max_qp_rd_atom");
  expect_range(rts, FIELD(max_rd_atomic), Bytes{0, kMaxQpInitRdAtom}, {kMaxQpInitRdAtom + 1, 255},
               "max_qp_init_rd_atom");
  expect_range(rts, FIELD(timeout), Bytes{0, 31}, {32, 255}, "timeout is");
  expect_range(rts, FIELD(retry_cnt), Bytes{0, 7}, {8, 255}, "retry_cnt is");
  expect_range(rts, FIELD(rnr_retry), Bytes{0, 7}, {8, 255}, "rnr_retry is");
  expect_range(rts.toggled(IBV_QP_PATH_MIG_STATE), FIELD(path_mig_state), Words{0, 1}, {2, 3, 99},
               "path_mig_state is");
}

TEST(QpModify, ChecksPaths) {
  const Call rtr(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR);
  expect_range(rtr, FIELD(ah_attr.is_global), Bytes{1}, {0}, "set it to 1, ah_attr.grh.dgid");
  expect_range(rtr, FIELD(ah_attr.port_num), Bytes{0, 1}, {2, 3}, "set ah_attr.port_num to 1");
  expect_range(rtr, FIELD(ah_attr.grh.sgid_index), Bytes{0, 3}, {1, 63}, "no GID there");
  expect_range(rtr, FIELD(ah_attr.grh.sgid_index), Bytes{}, {64, 255}, "ends at 63");
  const Call alternate = rtr.toggled(IBV_QP_ALT_PATH);
  expect_range(alternate, FIELD(alt_port_num), Bytes{2}, {0, 3}, "alt_port_num is");
  expect_range(alternate, FIELD(alt_ah_attr.port_num), Bytes{0, 2}, {1}, "set alt_ah_attr.port_num to 2");
  expect_range(alternate, FIELD(alt_ah_attr.is_global), Bytes{1}, {0}, "alt_ah_attr.is_global");
  expect_range(alternate, FIELD(alt_ah_attr.grh.sgid_index), Bytes{1}, {0, 64}, "alt_ah_attr.grh.sgid_index");
  expect_range(alternate, FIELD(alt_pkey_index), std::vector<uint16_t>{1}, {2}, "alt_pkey_index is");
  expect_range(alternate, FIELD(alt_timeout), Bytes{31}, {32}, "alt_timeout is");

  std::vector<PortFacts> ports = two_ports();
  ports[0].active_mtu = IBV_MTU_512;
  const QpAttributes now = in_state(rtr.type, rtr.from);
  EXPECT_EQ(
      "UC queue pair, INIT to RTR: path_mtu is 1024 bytes, but port 1 carries 512: use IBV_MTU_512 or less, "
      "at both ends",
      refusal(check_modify(rtr.type, now, rtr.wanted, rtr.mask, ports)));

  ports = two_ports();
  ports[0].grh_required = false;  // an InfiniBand port: LIDs will do
  Call local = rtr;
  local.wanted.ah_attr.is_global = 0;
  EXPECT_EQ("", refusal(check_modify(local.type, now, local.wanted, local.mask, ports)));
}

TEST(QpModify, AnotherPortInSqdNeedsAPathOfThatPort) {
  Call call(IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD);
  call.wanted.port_num = 2;
  call.mask |= IBV_QP_PORT;
  EXPECT_TRUE(has_part(refusal(call), "add IBV_QP_AV"));
  call.mask |= IBV_QP_AV;
  EXPECT_TRUE(has_part(refusal(call), "set ah_attr.port_num to 2"));
  call.wanted.ah_attr = vector_of_port(2);
  EXPECT_EQ("", refusal(call));

  QpAttributes now = in_state(call.type, call.from);
  now.attr.path_mtu = IBV_MTU_4096;
  EXPECT_TRUE(has_part(refusal(check_modify(call.type, now, call.wanted, call.mask, two_ports())),
                       "path_mtu is 4096 bytes, but port 2 carries 1024: stay at port 1"));

  call.mask &= ~IBV_QP_PORT;  // the path alone names the port as well
  EXPECT_EQ("", refusal(call));
  apply_modify(call.type, now, call.wanted, call.mask);
  EXPECT_EQ(2, now.attr.port_num);
  call.wanted.ah_attr.port_num = 3;
  EXPECT_TRUE(has_part(refusal(call), "ah_attr.port_num is 3, but ports are 1 to 2"));
}

// Every byte ibv_query_qp writes.
std::string shown(const QpAttributes& attributes) {
  ibv_qp_attr out{};
  show_attributes(attributes, out);
  return {reinterpret_cast<const char*>(&out), sizeof out};
}

TEST(QpApply, SetsWhatTheMaskNamesAndNothingElse) {
  const QpAttributes rts = in_state(IBV_QPT_RC, IBV_QPS_RTS);
  const ibv_qp_attr& attr = rts.attr;
  EXPECT_EQ(IBV_QPS_RTS, attr.qp_state);
  EXPECT_EQ(IBV_QPS_RTS, attr.cur_qp_state);
  EXPECT_EQ(0x123456u, attr.rq_psn);
  EXPECT_EQ(0x654321u, attr.sq_psn);
  EXPECT_EQ(0xabcdefu, attr.dest_qp_num);
  EXPECT_EQ(IBV_MTU_1024, attr.path_mtu);
  EXPECT_EQ(unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}, attr.qp_access_flags);
  EXPECT_EQ(3, attr.ah_attr.grh.sgid_index);
  EXPECT_EQ((std::vector<int>{16, 17, 12, 1, 14, 7, 6, 1}),
            (std::vector<int>{attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.min_rnr_timer, attr.port_num,
                              attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.pkey_index}));
  EXPECT_EQ(kCap.max_send_wr, attr.cap.max_send_wr);
  EXPECT_EQ(0u, attr.qkey);
  EXPECT_EQ(0, attr.alt_port_num + attr.alt_timeout);
  EXPECT_EQ(IBV_MIG_MIGRATED, attr.path_mig_state);

  QpAttributes after = rts;
  apply_modify(IBV_QPT_RC, after, good_values(), IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE);
  EXPECT_EQ(2, after.attr.alt_port_num);
  EXPECT_EQ(2, after.attr.alt_ah_attr.port_num);
  EXPECT_EQ(15, after.attr.alt_timeout);
  EXPECT_EQ(IBV_MIG_REARM, after.attr.path_mig_state);
  EXPECT_EQ(0x11111111u, in_state(IBV_QPT_UD, IBV_QPS_INIT).attr.qkey);

  Call call(IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR);
  call.wanted.ah_attr.port_num = 0;  // a path without a port gets the queue pair's
  after = in_state(call.type, call.from);
  apply_modify(call.type, after, call.wanted, call.mask);
  EXPECT_EQ(1, after.attr.ah_attr.port_num);
}

TEST(QpApply, ResetBringsBackAllButTheSizes) {
  for (const ibv_qp_type type : kTypes)
    for (const ibv_qp_state from : kQpStates) {
      QpAttributes attributes = in_state(type, from);
      apply_modify(type, attributes, Call(type, from, IBV_QPS_RESET).wanted, IBV_QP_STATE);
      EXPECT_EQ(shown(initial_attributes(kCap)), shown(attributes));
      EXPECT_EQ(kCap.max_inline_data, attributes.attr.cap.max_inline_data);
    }
}

TEST(QpApply, TellsOfDrainingOnlyWhenAskedThatTime) {
  QpAttributes now = in_state(IBV_QPT_UD, IBV_QPS_RTS);
  const Call drain(IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD);
  const Call resume(IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS);
  apply_modify(drain.type, now, drain.wanted, drain.mask | IBV_QP_EN_SQD_ASYNC_NOTIFY);
  EXPECT_EQ(1, now.attr.en_sqd_async_notify);
  EXPECT_EQ(1, now.attr.sq_draining);
  apply_modify(resume.type, now, resume.wanted, resume.mask);
  EXPECT_EQ(0, now.attr.sq_draining);
  apply_modify(drain.type, now, drain.wanted, drain.mask);
  EXPECT_EQ(0, now.attr.en_sqd_async_notify);
}

TEST(QpQuery, LeavesTheFieldThatOldProgramsDontHave) {
  ibv_qp_attr out{};
  out.rate_limit = 0x5a5a5a5a;
  show_attributes(in_state(IBV_QPT_RC, IBV_QPS_ERR), out);
  EXPECT_EQ(0x5a5a5a5au, out.rate_limit);
  EXPECT_EQ(IBV_QPS_ERR, out.qp_state);
  EXPECT_EQ(IBV_QPS_ERR, out.cur_qp_state);
}

TEST(QpTimers, AreTheStandards) {
  for (uint8_t code = 1; code <= 4; ++code) EXPECT_EQ(code * std::chrono::microseconds(10), rnr_timer(code));
  for (uint8_t code = 5; code < 32; ++code)
    EXPECT_EQ(2 * rnr_timer(static_cast<uint8_t>(code - 2)), rnr_timer(code)) << int{code};
  EXPECT_EQ(std::chrono::microseconds(491'520), rnr_timer(31));
  EXPECT_EQ(std::chrono::microseconds(655'360), rnr_timer(0));
  EXPECT_EQ(rnr_timer(1), rnr_timer(0xe1));

  EXPECT_EQ(base::Duration::zero(), ack_timeout(0));
  EXPECT_EQ(base::Duration(8192), ack_timeout(1));
  EXPECT_EQ(base::Duration(67'108'864), ack_timeout(14));
  EXPECT_EQ(base::Duration(8'796'093'022'208), ack_timeout(31));
}

}  // namespace
}  // namespace verbena::verbs
