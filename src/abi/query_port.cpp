// ibv_query_port in its two sizes, and the port's speed.
#include <algorithm>
#include <cstring>

#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "arena/link_rate.hpp"
#include "client/data_path.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

constexpr size_t kOldPortAttrSize = 48;  // before port_cap_flags2 was added
static_assert(offsetof(ibv_port_attr, port_cap_flags2) == kOldPortAttrSize);

// IBA PortInfo: PortPhysicalState.
constexpr uint8_t kPhysicalDisabled = 3;
constexpr uint8_t kPhysicalLinkUp = 5;

uint32_t speed_mbps(const arena::PortRecord& port) {
  return port.speed_mbps ? port.speed_mbps : arena::kUnknownSpeedMbps;
}

ibv_port_attr attributes(const arena::PortRecord& port) {
  const bool active = port.state == arena::PortState::kActive;
  const arena::LinkRate link = arena::link_rate(port.speed_mbps);
  ibv_port_attr attr{};
  attr.state = active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = verbs::kMaxMtu;
  attr.active_mtu = static_cast<ibv_mtu>(std::clamp<int>(port.active_mtu, IBV_MTU_256, IBV_MTU_4096));
  attr.gid_tbl_len = verbs::kGidTableLength;
  attr.port_cap_flags = verbs::kPortCapFlags;
  attr.max_msg_sz = verbs::kMaxMessageBytes;
  attr.pkey_tbl_len = verbs::kMaxPkeys;
  attr.bad_pkey_cntr = static_cast<uint32_t>(client::DataPath::counted("drop_bad_pkey"));  // this process's
  attr.max_vl_num = verbs::kMaxVlNum;
  attr.active_width = link.width;
  attr.active_speed = link.speed;
  attr.phys_state = active ? kPhysicalLinkUp : kPhysicalDisabled;
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  attr.flags = IBV_QPF_GRH_REQUIRED;
  return attr;
}

}  // namespace

int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t attr_size) noexcept {
  const auto port = guarded([&] { return Context::from(context).port(port_num); });
  if (!port) return explained(port.error());
  const ibv_port_attr full = attributes(*port);
  std::memset(static_cast<void*>(attr), 0, attr_size);
  std::memcpy(static_cast<void*>(attr), &full, std::min(attr_size, sizeof full));
  return 0;
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_ibv_query_port(ibv_context* context, uint8_t port_num,
                                    _compat_ibv_port_attr* attr) noexcept {
  return abi::query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(attr), abi::kOldPortAttrSize);
}
VERBENA_SAME_PROTOTYPE(ibv_query_port);

// Newer than our header: the effective speed in units of 100 Mb/s.
VERBENA_ENTRY int vb_ibv_query_port_speed(ibv_context* context, uint32_t port_num,
                                          uint64_t* port_speed) noexcept {
  const auto port = abi::guarded([&] { return abi::Context::from(context).port(port_num); });
  if (!port) return abi::explained(port.error());
  *port_speed = abi::speed_mbps(*port) / 100;
  return 0;
}
