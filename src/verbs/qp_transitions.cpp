#include "verbs/qp_transitions.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::verbs {
namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  AttributeMasks masks;
};

// What the states from RTR on let a program change about an established connection.
constexpr int kConnection = IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kUcAddress = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRcRequester = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kRcResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

// RESET and ERR as targets are not in the tables: every state leads there, with no attribute at all.
// RTR to RTR is missing on purpose: the responder runs, and nothing may change under it. So is SQE as a
// target: only the device enters it. IBV_QP_CAP and IBV_QP_RATE_LIMIT appear nowhere: we neither resize nor
// pace.
constexpr Transition kRc[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {.required = kUcAddress | kRcResponder,
      .optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {.required = kRcRequester | IBV_QP_SQ_PSN,
      .optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {.optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_PKEY_INDEX | kRcRequester | kRcResponder | kConnection}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
};

constexpr Transition kUc[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {.required = kUcAddress, .optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_RTR, IBV_QPS_RTS, {.required = IBV_QP_SQ_PSN, .optional = IBV_QP_CUR_STATE | kConnection}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {.optional = IBV_QP_AV | IBV_QP_PKEY_INDEX | kConnection}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS}},
};

constexpr Transition kUd[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY}},
    {IBV_QPS_INIT, IBV_QPS_RTR, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_RTR, IBV_QPS_RTS, {.required = IBV_QP_SQ_PSN, .optional = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD, IBV_QPS_SQD, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
    {IBV_QPS_SQE, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

// XRC (IBA annex A14): the initiator has no receiving side, the target no sending one.
constexpr Transition kXrcSend[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {.required = kUcAddress, .optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {.required = kRcRequester | IBV_QP_SQ_PSN, .optional = IBV_QP_CUR_STATE | kConnection}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {.optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_PKEY_INDEX | kRcRequester | kConnection}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection}},
};

constexpr Transition kXrcRecv[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, {.required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {.optional = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS}},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {.required = kUcAddress | kRcResponder,
      .optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {.required = IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
      .optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
    {IBV_QPS_RTS, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
    {IBV_QPS_RTS, IBV_QPS_SQD, {.optional = IBV_QP_EN_SQD_ASYNC_NOTIFY}},
    {IBV_QPS_SQD,
     IBV_QPS_SQD,
     {.optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_TIMEOUT | kRcResponder | kConnection}},
    {IBV_QPS_SQD, IBV_QPS_RTS, {.optional = IBV_QP_CUR_STATE | kConnection | IBV_QP_MIN_RNR_TIMER}},
};

constexpr AttributeName kAttributeNames[] = {
    {IBV_QP_STATE, "IBV_QP_STATE", "qp_state"},
    {IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE", "cur_qp_state"},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY", "en_sqd_async_notify"},
    {IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS", "qp_access_flags"},
    {IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX", "pkey_index"},
    {IBV_QP_PORT, "IBV_QP_PORT", "port_num"},
    {IBV_QP_QKEY, "IBV_QP_QKEY", "qkey"},
    {IBV_QP_AV, "IBV_QP_AV", "ah_attr"},
    {IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU", "path_mtu"},
    {IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT", "timeout"},
    {IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT", "retry_cnt"},
    {IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY", "rnr_retry"},
    {IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN", "rq_psn"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC", "max_rd_atomic"},
    {IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH", "alt_ah_attr, alt_port_num, alt_pkey_index and alt_timeout"},
    {IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER", "min_rnr_timer"},
    {IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN", "sq_psn"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC", "max_dest_rd_atomic"},
    {IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE", "path_mig_state"},
    {IBV_QP_CAP, "IBV_QP_CAP", "cap"},
    {IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN", "dest_qp_num"},
    {IBV_QP_RATE_LIMIT, "IBV_QP_RATE_LIMIT", "rate_limit"},
};

std::span<const Transition> table_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return kRc;
    case IBV_QPT_UC:
      return kUc;
    case IBV_QPT_UD:
      return kUd;
    case IBV_QPT_XRC_SEND:
      return kXrcSend;
    case IBV_QPT_XRC_RECV:
      return kXrcRecv;
    default:
      return {};
  }
}

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

}  // namespace

std::optional<AttributeMasks> find_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) {
  const auto table = table_of(type);
  if (table.empty()) return std::nullopt;
  // IBA 10.3.1: from any state. Newer kernels refuse RESET to ERR, which the standard allows and which does
  // no harm: programs that tear down a half-built connection get one error less.
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return AttributeMasks{};
  const auto found =
      std::ranges::find_if(table, [&](const Transition& row) { return row.from == from && row.to == to; });
  if (found == table.end()) return std::nullopt;
  return found->masks;
}

std::span<const AttributeName> attribute_names() { return kAttributeNames; }

std::string transitions_taking(ibv_qp_type type, int bit) {
  std::string list;
  for (const Transition& row : table_of(type))
    if (row.masks.allowed() & bit)
      append(list, fmt::format("{} to {}", state_name(row.from), state_name(row.to)));
  return list;
}

std::string states_after(ibv_qp_type type, ibv_qp_state from) {
  std::string list;
  for (const ibv_qp_state to : kQpStates)
    if (to != from && find_transition(type, from, to)) append(list, state_name(to));
  return list;
}

std::string_view state_name(ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      return "RESET";
    case IBV_QPS_INIT:
      return "INIT";
    case IBV_QPS_RTR:
      return "RTR";
    case IBV_QPS_RTS:
      return "RTS";
    case IBV_QPS_SQD:
      return "SQD";
    case IBV_QPS_SQE:
      return "SQE";
    case IBV_QPS_ERR:
      return "ERR";
    default:
      return "UNKNOWN";
  }
}

std::string_view type_name(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_RAW_PACKET:
      return "RAW_PACKET";
    case IBV_QPT_XRC_SEND:
      return "XRC_SEND";
    case IBV_QPT_XRC_RECV:
      return "XRC_RECV";
    default:
      return "unknown";
  }
}

}  // namespace verbena::verbs
