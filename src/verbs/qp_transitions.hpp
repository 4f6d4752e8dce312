// Which state changes ibv_modify_qp may make and which attributes each takes: the table of QP state
// transition properties (IBA 10.3.1 and 11.2.4.2) as data, for RC, UC and UD.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace verbena::verbs {

// The states a program may name; IBV_QPS_UNKNOWN is none.
inline constexpr std::array kQpStates{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                      IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

// Bits of ibv_qp_attr_mask. IBV_QP_STATE is in neither: every call may carry it.
struct AttributeMasks {
  int required = 0;
  int optional = 0;

  [[nodiscard]] constexpr int allowed() const { return required | optional; }
};

// What a call that moves a queue pair of that type from one state to another, or leaves it where it is,
// takes. Nothing: ibv_modify_qp can't make that change.
[[nodiscard]] std::optional<AttributeMasks> find_transition(ibv_qp_type type, ibv_qp_state from,
                                                            ibv_qp_state to);

// One attribute as a program writes it: the bit's name and the field or fields the bit stands for.
struct AttributeName {
  int bit;
  std::string_view flag;
  std::string_view field;
};
// All bits there are; what is not in here is no attribute of this ABI.
[[nodiscard]] std::span<const AttributeName> attribute_names();

// For sentences: "RESET to INIT, INIT to INIT", the changes on which that type takes the attribute; "" if
// none.
[[nodiscard]] std::string transitions_taking(ibv_qp_type type, int bit);
// "RESET, INIT, ERR": where ibv_modify_qp may lead from a state; the state itself is left out.
[[nodiscard]] std::string states_after(ibv_qp_type type, ibv_qp_state from);

[[nodiscard]] std::string_view state_name(ibv_qp_state state);
[[nodiscard]] std::string_view type_name(ibv_qp_type type);

// What ibv_modify_qp looks at of a mask: programs that treat XRC queue pairs as RC ones name attributes of
// the side that they don't have, and the kernel overlooks those.
[[nodiscard]] constexpr int heeded_mask(ibv_qp_type type, int mask) {
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  return mask;
}

}  // namespace verbena::verbs
