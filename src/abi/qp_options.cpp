// Queue pairs' lesser calls: enhanced connection establishment, order of data, rate limits.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

// ECE lets two adapters agree on their makers' options. We have none: whatever is wished for is accepted
// without, which ibv_query_ece then tells.
base::Result<void> set_ece(ibv_qp* ibv, const ibv_ece* ece) {
  Qp& qp = Qp::from(ibv);
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (ece == nullptr || ece->comp_mask != 0) return base::fail(EINVAL, "no ECE, or one of unknown fields");
  if ((qp.queue_pair ? qp.queue_pair->state() : ibv->state) != IBV_QPS_RESET)
    return base::fail(EINVAL, fmt::format("QP 0x{:06x}: ibv_set_ece comes before the queue pair leaves RESET",
                                          ibv->qp_num));
  qp.ece = {
      .vendor_id = ece->vendor_id == verbs::kVendorId ? verbs::kVendorId : 0, .options = 0, .comp_mask = 0};
  return {};
}

base::Result<void> query_ece(ibv_qp* ibv, ibv_ece* ece) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (ece == nullptr) return base::fail(EINVAL, "ibv_query_ece needs a place for the answer");
  *ece = Qp::from(ibv).ece;
  return {};
}

base::Result<void> limit_rate(ibv_qp* ibv, const ibv_qp_rate_limit_attr& attr) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (attr.comp_mask != 0) return base::fail(EINVAL, "a rate limit knows no comp_mask");
  const auto& queue_pair = Qp::from(ibv).queue_pair;
  const ibv_qp_state now = queue_pair ? queue_pair->state() : ibv->state;
  if (now != IBV_QPS_RTR && now != IBV_QPS_RTS)
    return base::fail(EINVAL, fmt::format("QP 0x{:06x}: a rate limit is set in RTR or RTS", ibv->qp_num));
  return {};
}

}  // namespace

// Accepted, and of no effect: ibv_query_device_ex tells that there is no pacing (qp_rate_limit_max is 0).
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept {
  return errno_value(guarded([&] { return limit_rate(qp, *attr); }));
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_ibv_set_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::set_ece(qp, ece); }));
}
VERBENA_SAME_PROTOTYPE(ibv_set_ece);

VERBENA_ENTRY int vb_ibv_query_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::query_ece(qp, ece); }));
}
VERBENA_SAME_PROTOTYPE(ibv_query_ece);

// Only the last eight bytes are promised to come last (DESIGN 2.3): that isn't what this call asks for.
VERBENA_ENTRY int vb_ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) noexcept { return 0; }
VERBENA_SAME_PROTOTYPE(ibv_query_qp_data_in_order);
