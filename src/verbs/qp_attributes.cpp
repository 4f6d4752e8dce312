#include "verbs/qp_attributes.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

constexpr uint32_t kMask24 = 0xffffff;

// Bits 20 to 29 are optional by definition: a device that doesn't know one ignores it.
constexpr unsigned kOptionalAccess = 0x3ff00000;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | kOptionalAccess;

// An enum that a C program filled may hold any number, and reading such a one as an enum is undefined.
template <typename Enum>
uint32_t number_in(const Enum& field) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t number = 0;
  std::memcpy(&number, &field, sizeof number);
  return number;
}

unsigned mtu_bytes(uint32_t code) { return 128u << code; }

// The port a queue pair has after the call. Where both may be given, an address vector alone names it as
// well: a vector is of one port, and programs that re-route in SQD set only that.
uint8_t port_after(const AttributeMasks& masks, const ibv_qp_attr& now, const ibv_qp_attr& wanted, int mask) {
  if (mask & IBV_QP_PORT) return wanted.port_num;
  const bool vector_moves = (masks.allowed() & IBV_QP_PORT) && (mask & IBV_QP_AV);
  return vector_moves && wanted.ah_attr.port_num != 0 ? wanted.ah_attr.port_num : now.port_num;
}

// One call under check: each step assumes that the ones before it passed.
class ModifyCall {
 public:
  ModifyCall(ibv_qp_type type, const QpAttributes& now, const ibv_qp_attr& wanted, int mask,
             std::span<const PortFacts> ports)
      : type_(type),
        now_(now.attr),
        alternate_loaded_(now.alternate_loaded),
        wanted_(wanted),
        mask_(mask),
        ports_(ports),
        to_(now.attr.qp_state) {}

  [[nodiscard]] base::Result<void> check() {
    using Step = base::Result<void> (ModifyCall::*)();
    for (const Step step :
         {&ModifyCall::check_states, &ModifyCall::check_mask, &ModifyCall::check_draining,
          &ModifyCall::check_limits, &ModifyCall::check_access, &ModifyCall::check_port,
          &ModifyCall::check_mtu, &ModifyCall::check_path, &ModifyCall::check_alternate_path})
      if (auto result = (this->*step)(); !result) return result;
    return {};
  }

 private:
  [[nodiscard]] bool has(int bit) const { return (mask_ & bit) != 0; }
  [[nodiscard]] ibv_qp_state from() const { return now_.qp_state; }

  [[nodiscard]] base::Result<void> refuse(std::string_view why) const {
    const std::string step =
        from() == to_
            ? fmt::format("{} queue pair in {}", type_name(type_), state_name(from()))
            : fmt::format("{} queue pair, {} to {}", type_name(type_), state_name(from()), state_name(to_));
    return base::fail(EINVAL, fmt::format("{}: {}", step, why));
  }

  base::Result<void> check_states() {
    if (has(IBV_QP_STATE)) {
      const uint32_t state = number_in(wanted_.qp_state);
      if (state > IBV_QPS_ERR)
        return refuse(fmt::format(
            "qp_state is {}, which is no state: use one from IBV_QPS_RESET to IBV_QPS_ERR", state));
      to_ = static_cast<ibv_qp_state>(state);
    }
    if (has(IBV_QP_CUR_STATE)) {
      const uint32_t believed = number_in(wanted_.cur_qp_state);
      if (believed < IBV_QPS_RTR || believed > IBV_QPS_SQE)
        return refuse(fmt::format(
            "cur_qp_state is {}, but only RTR (2), RTS (3), SQD (4) and SQE (5) can be given: take "
            "IBV_QP_CUR_STATE out of attr_mask",
            believed));
      if (believed != from())
        return refuse(fmt::format("cur_qp_state says {}, but the state is {}: ask ibv_query_qp for it",
                                  state_name(static_cast<ibv_qp_state>(believed)), state_name(from())));
    }
    const auto masks = find_transition(type_, from(), to_);
    if (!masks) return refuse_transition();
    masks_ = *masks;
    return {};
  }

  [[nodiscard]] base::Result<void> refuse_transition() const {
    const std::string next = states_after(type_, from());
    if (next.empty())
      return refuse(fmt::format("ibv_modify_qp knows RC, UC, UD and XRC, not type {}", number_in(type_)));
    if (from() != to_ && to_ == IBV_QPS_SQE)
      return refuse(
          fmt::format("only the device enters SQE, when a send failed; set qp_state to one of {}", next));
    if (from() == to_)
      return refuse(fmt::format("nothing can be changed in this state: set qp_state to one of {}", next));
    return refuse(fmt::format("there is no such change of state: set qp_state to one of {}", next));
  }

  base::Result<void> check_mask() {
    int known = 0;
    std::string missing;
    for (const AttributeName& name : attribute_names()) {
      known |= name.bit;
      if ((masks_.required & name.bit) && !has(name.bit))
        missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", name.flag, name.field);
      if (has(name.bit) && !((masks_.allowed() | IBV_QP_STATE) & name.bit)) return refuse_attribute(name);
    }
    if (mask_ & ~known)
      return refuse(fmt::format("attr_mask has bits {:#x} that are no attribute: take them out",
                                static_cast<unsigned>(mask_ & ~known)));
    if (!missing.empty())
      return refuse(fmt::format("missing {}: set the fields and add the bits to attr_mask", missing));
    return {};
  }

  [[nodiscard]] base::Result<void> refuse_attribute(const AttributeName& name) const {
    if (name.bit == IBV_QP_CAP)
      return refuse("IBV_QP_CAP is refused, as queues can't be resized: give ibv_create_qp the sizes needed");
    if (name.bit == IBV_QP_RATE_LIMIT)
      return refuse("IBV_QP_RATE_LIMIT is refused, as packets aren't paced: take it out of attr_mask");
    const std::string elsewhere = transitions_taking(type_, name.bit);
    if (elsewhere.empty())
      return refuse(fmt::format("{} queue pairs have no {}: take {} out of attr_mask", type_name(type_),
                                name.field, name.flag));
    return refuse(fmt::format("{} ({}) can't be set here: take it out of attr_mask; it is taken on {}",
                              name.flag, name.field, elsewhere));
  }

  // IBA 10.3.1: what SQD lets change is used by the sends in flight until they are done.
  base::Result<void> check_draining() {
    if (from() != IBV_QPS_SQD || now_.sq_draining == 0) return {};
    if (to_ == IBV_QPS_RTS || (to_ == IBV_QPS_SQD && (mask_ & ~IBV_QP_STATE)))
      return refuse(
          "the send queue is still draining: wait for IBV_EVENT_SQ_DRAINED, or until ibv_query_qp shows "
          "sq_draining 0");
    return {};
  }

  base::Result<void> check_limits() {
    struct Limit {
      int bit;
      std::string_view field;
      uint32_t value;
      uint32_t largest;
      std::string_view why;
    };
    const Limit limits[] = {
        {IBV_QP_TIMEOUT, "timeout", wanted_.timeout, 31, ""},
        {IBV_QP_RETRY_CNT, "retry_cnt", wanted_.retry_cnt, 7, ""},
        {IBV_QP_RNR_RETRY, "rnr_retry", wanted_.rnr_retry, 7, " (7 retries for ever)"},
        {IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", wanted_.min_rnr_timer, 31, ""},
        {IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", wanted_.max_rd_atomic, kMaxQpInitRdAtom,
         " (max_qp_init_rd_atom of ibv_query_device)"},
        {IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", wanted_.max_dest_rd_atomic, kMaxQpRdAtom,
         " (max_qp_rd_atom of ibv_query_device)"},
        {IBV_QP_DEST_QPN, "dest_qp_num", wanted_.dest_qp_num, kMask24, " (queue pair numbers have 24 bits)"},
        {IBV_QP_ALT_PATH, "alt_timeout", wanted_.alt_timeout, 31, ""},
        {IBV_QP_PATH_MIG_STATE, "path_mig_state", number_in(wanted_.path_mig_state), IBV_MIG_REARM,
         " (IBV_MIG_REARM; the device alone arms a path)"},
    };
    for (const Limit& limit : limits)
      if (has(limit.bit) && limit.value > limit.largest)
        return refuse(
            fmt::format("{} is {}, the largest is {}{}", limit.field, limit.value, limit.largest, limit.why));
    return {};
  }

  base::Result<void> check_access() {
    const unsigned unknown = has(IBV_QP_ACCESS_FLAGS) ? wanted_.qp_access_flags & ~kKnownAccess : 0;
    if (unknown != 0)
      return refuse(
          fmt::format("qp_access_flags has unknown bits {:#x}: use those of ibv_access_flags", unknown));
    return {};
  }

  [[nodiscard]] base::Result<void> check_port_number(std::string_view field, unsigned number) const {
    if (number == 0 || number > ports_.size())
      return refuse(fmt::format("{} is {}, but ports are 1 to {}", field, number, ports_.size()));
    return {};
  }

  [[nodiscard]] base::Result<void> check_pkey(std::string_view field, unsigned index, unsigned port) const {
    const unsigned length = ports_[port - 1].pkey_table_length;
    if (index >= length)
      return refuse(
          fmt::format("{} is {}, but the partition key table of port {} has {} entries: use 0 to {}", field,
                      index, port, length, length - 1));
    return {};
  }

  base::Result<void> check_port() {
    port_ = port_after(masks_, now_, wanted_, mask_);
    moves_ = port_ != now_.port_num;
    if (!moves_ && !has(IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_AV | IBV_QP_PATH_MTU)) return {};
    if (auto valid = check_port_number(has(IBV_QP_PORT) ? "port_num" : "ah_attr.port_num", port_); !valid)
      return valid;
    if (moves_ && from() == IBV_QPS_SQD && !has(IBV_QP_AV))
      return refuse(
          fmt::format("port_num moves from {} to {}, but ah_attr's source GID is of the old port: set "
                      "ah_attr and add IBV_QP_AV",
                      now_.port_num, port_));
    if (has(IBV_QP_PKEY_INDEX)) return check_pkey("pkey_index", wanted_.pkey_index, port_);
    if (moves_) return check_pkey("pkey_index", now_.pkey_index, port_);
    return {};
  }

  base::Result<void> check_mtu() {
    const bool rerouted = moves_ && from() == IBV_QPS_SQD;  // path_mtu stays, and must fit the new port
    if (!has(IBV_QP_PATH_MTU) && !rerouted) return {};
    const uint32_t mtu = number_in(has(IBV_QP_PATH_MTU) ? wanted_.path_mtu : now_.path_mtu);
    if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
      return refuse(fmt::format(
          "path_mtu is {}, which is no MTU: use one from IBV_MTU_256 (1) to IBV_MTU_4096 (5)", mtu));
    const uint32_t active = ports_[port_ - 1].active_mtu;
    if (mtu <= active) return {};
    if (rerouted)
      return refuse(fmt::format("path_mtu is {} bytes, but port {} carries {}: stay at port {}",
                                mtu_bytes(mtu), port_, mtu_bytes(active), now_.port_num));
    return refuse(
        fmt::format("path_mtu is {0} bytes, but port {1} carries {2}: use IBV_MTU_{2} or less, at both ends",
                    mtu_bytes(mtu), port_, mtu_bytes(active)));
  }

  base::Result<void> check_path() {
    return has(IBV_QP_AV) ? check_vector("ah_attr", wanted_.ah_attr, "the queue pair's port", port_)
                          : base::Result<void>{};
  }

  base::Result<void> check_alternate_path() {
    const bool rearms =
        has(IBV_QP_PATH_MIG_STATE) && number_in(wanted_.path_mig_state) == uint32_t{IBV_MIG_REARM};
    if (rearms && !has(IBV_QP_ALT_PATH) && !alternate_loaded_)
      return refuse(
          "path_mig_state is IBV_MIG_REARM, but there is no alternate path, or it was used: set alt_ah_attr, "
          "alt_port_num, alt_pkey_index and alt_timeout and add IBV_QP_ALT_PATH");
    if (!has(IBV_QP_ALT_PATH)) return {};
    if (now_.path_mig_state == IBV_MIG_ARMED && !rearms)
      return refuse(
          "the alternate path is armed and can't change under the connection: set path_mig_state to "
          "IBV_MIG_REARM in the same call");
    if (auto valid = check_port_number("alt_port_num", wanted_.alt_port_num); !valid) return valid;
    if (auto valid = check_pkey("alt_pkey_index", wanted_.alt_pkey_index, wanted_.alt_port_num); !valid)
      return valid;
    return check_vector("alt_ah_attr", wanted_.alt_ah_attr, "alt_port_num", wanted_.alt_port_num);
  }

  [[nodiscard]] base::Result<void> check_vector(std::string_view field, const ibv_ah_attr& vector,
                                                std::string_view port_field, unsigned port) const {
    if (vector.port_num != 0 && vector.port_num != port)
      return refuse(fmt::format("{0}.port_num is {1}, but {2} is {3}: set {0}.port_num to {3}", field,
                                vector.port_num, port_field, port));
    const PortFacts& facts = ports_[port - 1];
    if (!vector.is_global) {
      if (!facts.grh_required) return {};
      return refuse(
          fmt::format("{0}.is_global is 0, but port {1} reaches peers by GID only: set it to 1, "
                      "{0}.grh.dgid to the peer's GID and {0}.grh.sgid_index to the index of ours",
                      field, port));
    }
    const unsigned index = vector.grh.sgid_index;
    if (index >= facts.gids.size())
      return refuse(fmt::format("{}.grh.sgid_index is {}, but the GID table of port {} ends at {}", field,
                                index, port, facts.gids.size() - 1));
    if (!facts.gids.test(index))
      return refuse(
          fmt::format("{}.grh.sgid_index is {}, but port {} has no GID there: use one that "
                      "ibv_devinfo -v shows",
                      field, index, port));
    return {};
  }

  ibv_qp_type type_;
  const ibv_qp_attr& now_;
  bool alternate_loaded_;
  const ibv_qp_attr& wanted_;
  int mask_;
  std::span<const PortFacts> ports_;

  ibv_qp_state to_;
  AttributeMasks masks_{};
  uint8_t port_ = 0;    // the one after the call
  bool moves_ = false;  // to another port than before
};

void apply_alternate_path(QpAttributes& attributes, const ibv_qp_attr& wanted) {
  ibv_qp_attr& attr = attributes.attr;
  attr.alt_ah_attr = wanted.alt_ah_attr;
  attr.alt_ah_attr.port_num = wanted.alt_port_num;
  attr.alt_port_num = wanted.alt_port_num;
  attr.alt_pkey_index = wanted.alt_pkey_index;
  attr.alt_timeout = wanted.alt_timeout;
  attributes.alternate_loaded = true;
}

}  // namespace

QpAttributes initial_attributes(const ibv_qp_cap& cap) {
  QpAttributes attributes;
  attributes.attr.cap = cap;
  attributes.attr.path_mtu = IBV_MTU_256;  // 0 is no MTU, and programs print what they find
  return attributes;
}

base::Result<void> check_modify(ibv_qp_type type, const QpAttributes& now, const ibv_qp_attr& wanted,
                                int mask, std::span<const PortFacts> ports) {
  return ModifyCall(type, now, wanted, mask, ports).check();
}

void apply_modify(ibv_qp_type type, QpAttributes& attributes, const ibv_qp_attr& wanted, int mask) {
  ibv_qp_attr& attr = attributes.attr;
  const ibv_qp_state from = attr.qp_state;
  const ibv_qp_state to = mask & IBV_QP_STATE ? wanted.qp_state : from;
  const auto masks = find_transition(type, from, to);
  CHECK(masks);
  if (to == IBV_QPS_RESET) {
    attributes = initial_attributes(attr.cap);
    return;
  }

  attr.port_num = port_after(*masks, attr, wanted, mask);
  if (mask & IBV_QP_AV) {
    attr.ah_attr = wanted.ah_attr;
    attr.ah_attr.port_num = attr.port_num;
  }
  if (mask & IBV_QP_ALT_PATH) apply_alternate_path(attributes, wanted);
  if (mask & IBV_QP_ACCESS_FLAGS) attr.qp_access_flags = wanted.qp_access_flags;
  if (mask & IBV_QP_PKEY_INDEX) attr.pkey_index = wanted.pkey_index;
  if (mask & IBV_QP_QKEY) attr.qkey = wanted.qkey;
  if (mask & IBV_QP_PATH_MTU) attr.path_mtu = wanted.path_mtu;
  if (mask & IBV_QP_TIMEOUT) attr.timeout = wanted.timeout;
  if (mask & IBV_QP_RETRY_CNT) attr.retry_cnt = wanted.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) attr.rnr_retry = wanted.rnr_retry;
  // As elsewhere, a PSN is cut to its 24 bits, not refused: programs pass random words.
  if (mask & IBV_QP_RQ_PSN) attr.rq_psn = wanted.rq_psn & kMask24;
  if (mask & IBV_QP_SQ_PSN) attr.sq_psn = wanted.sq_psn & kMask24;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attr.max_rd_atomic = wanted.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) attr.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
  if (mask & IBV_QP_MIN_RNR_TIMER) attr.min_rnr_timer = wanted.min_rnr_timer;
  if (mask & IBV_QP_PATH_MIG_STATE) attr.path_mig_state = wanted.path_mig_state;
  if (mask & IBV_QP_DEST_QPN) attr.dest_qp_num = wanted.dest_qp_num;

  if (to == from) return;
  enter_state(attributes, to);
  // The wish to be told is for this one draining: without the bit there is none, whatever an earlier call
  // said.
  if (to == IBV_QPS_SQD)
    attr.en_sqd_async_notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && wanted.en_sqd_async_notify ? 1 : 0;
}

void take_alternate_path(QpAttributes& attributes) {
  ibv_qp_attr& attr = attributes.attr;
  std::swap(attr.ah_attr, attr.alt_ah_attr);
  std::swap(attr.port_num, attr.alt_port_num);
  std::swap(attr.pkey_index, attr.alt_pkey_index);
  std::swap(attr.timeout, attr.alt_timeout);
  attr.path_mig_state = IBV_MIG_MIGRATED;
  attributes.alternate_loaded = false;
}

void enter_state(QpAttributes& attributes, ibv_qp_state state) {
  attributes.attr.qp_state = state;
  attributes.attr.cur_qp_state = state;
  attributes.attr.sq_draining = state == IBV_QPS_SQD ? 1 : 0;
}

void show_attributes(const QpAttributes& attributes, ibv_qp_attr& out) {
  std::memcpy(&out, &attributes.attr, offsetof(ibv_qp_attr, rate_limit));
}

}  // namespace verbena::verbs
