// ibv_query_device, its extended form, and the clock.
#include <endian.h>

#include <algorithm>
#include <cstring>

#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "base/time.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {

ibv_device_attr attributes_of(const arena::DeviceRecord& record) {
  ibv_device_attr attr{};
  static_assert(sizeof VERBENA_VERSION <= sizeof attr.fw_ver);
  std::memcpy(attr.fw_ver, VERBENA_VERSION, sizeof VERBENA_VERSION);
  attr.node_guid = htobe64(record.node_guid);
  attr.sys_image_guid = htobe64(arena::system_image_guid(record));
  attr.max_mr_size = verbs::kMaxMrSize;
  attr.page_size_cap = verbs::kPageSizeCap;
  attr.vendor_id = verbs::kVendorId;
  attr.vendor_part_id = verbs::kVendorPartId;
  attr.hw_ver = verbs::kHardwareVersion;
  attr.max_qp = verbs::kMaxQp;
  attr.max_qp_wr = verbs::kMaxQpWr;
  attr.device_cap_flags = verbs::kDeviceCapFlags;
  attr.max_sge = verbs::kMaxSge;
  attr.max_sge_rd = verbs::kMaxSgeRd;
  attr.max_cq = verbs::kMaxCq;
  attr.max_cqe = verbs::kMaxCqe;
  attr.max_mr = verbs::kMaxMr;
  attr.max_pd = verbs::kMaxPd;
  attr.max_qp_rd_atom = verbs::kMaxQpRdAtom;
  attr.max_res_rd_atom = verbs::kMaxResRdAtom;
  attr.max_qp_init_rd_atom = verbs::kMaxQpInitRdAtom;
  attr.atomic_cap = verbs::kAtomicCap;
  attr.max_mw = verbs::kMaxMw;
  attr.max_mcast_grp = verbs::kMaxMcastGrp;
  attr.max_mcast_qp_attach = verbs::kMaxMcastQpAttach;
  attr.max_total_mcast_qp_attach = verbs::kMaxTotalMcastQpAttach;
  attr.max_ah = verbs::kMaxAh;
  attr.max_srq = verbs::kMaxSrq;
  attr.max_srq_wr = verbs::kMaxSrqWr;
  attr.max_srq_sge = verbs::kMaxSrqSge;
  attr.max_pkeys = verbs::kMaxPkeys;
  attr.local_ca_ack_delay = verbs::kLocalCaAckDelay;
  attr.phys_port_cnt = record.port_count;
  return attr;
}

base::Result<ibv_device_attr> Context::attributes() const {
  if (open->stale()) return as_opened;
  const auto now = record();
  if (!now) return std::unexpected(now.error());
  return attributes_of(*now);
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size) noexcept {
  if ((input && input->comp_mask) || attr_size < sizeof attr->orig_attr) return EINVAL;
  const auto basic = guarded([&] { return Context::from(context).attributes(); });
  if (!basic) return explained(basic.error());

  ibv_device_attr_ex full{};
  full.orig_attr = *basic;
  full.completion_timestamp_mask = verbs::kCompletionTimestampMask;
  full.hca_core_clock = verbs::kCoreClockKhz;
  full.device_cap_flags_ex = verbs::kDeviceCapFlagsEx;
  full.odp_caps = {
      .general_caps = verbs::kOdpGeneral,
      .per_transport_caps = {
          .rc_odp_caps = verbs::kOdpRc, .uc_odp_caps = verbs::kOdpUc, .ud_odp_caps = verbs::kOdpUd}};
  full.xrc_odp_caps = verbs::kOdpRc;
  full.max_dm_size = verbs::kMaxDmBytes;
  full.cq_mod_caps = {.max_cq_count = UINT16_MAX, .max_cq_period = UINT16_MAX};
  full.phys_port_cnt_ex = basic->phys_port_cnt;
  // A newer caller finds zeros, "not supported", in what this build doesn't know.
  std::memset(static_cast<void*>(attr), 0, attr_size);
  std::memcpy(static_cast<void*>(attr), &full, std::min(attr_size, sizeof full));
  return 0;
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) noexcept {
  const auto usable = guarded([&] { return Context::from(context).usable(); });
  if (!usable) return explained(usable.error());
  // The mask tells back which of the wanted values were filled in.
  values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
  if (values->comp_mask) {
    const int64_t ns = base::now().ns;
    values->raw_clock = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  }
  return 0;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_ibv_query_device(ibv_context* context, ibv_device_attr* attr) noexcept {
  const auto found = abi::guarded([&] { return abi::Context::from(context).attributes(); });
  if (!found) return abi::explained(found.error());
  *attr = *found;
  return 0;
}
VERBENA_SAME_PROTOTYPE(ibv_query_device);
