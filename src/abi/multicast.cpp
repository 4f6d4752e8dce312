// Multicast groups of datagram queue pairs.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/objects.hpp"

namespace verbena::abi {
namespace {

bool is_group(const ibv_gid& gid) {
  const bool ipv4 = gid.global.subnet_prefix == 0 && gid.raw[8] == 0 && gid.raw[9] == 0 &&
                    gid.raw[10] == 0xff && gid.raw[11] == 0xff;
  return ipv4 ? (gid.raw[12] & 0xf0) == 0xe0 : gid.raw[0] == 0xff;
}

base::Result<Qp*> datagram_qp(ibv_qp* ibv, const ibv_gid& group) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return std::unexpected(ok.error());
  if (ibv->qp_type != IBV_QPT_UD)
    return base::fail(EINVAL,
                      fmt::format("QP 0x{:06x} takes no multicast: only UD queue pairs do", ibv->qp_num));
  if (!is_group(group))
    return base::fail(EINVAL,
                      "that GID is no multicast group: use ::ffff:224.0.0.0 to ::ffff:239.255.255.255, or "
                      "ff00::/8");
  return &Qp::from(ibv);
}

base::Result<void> attach(ibv_qp* ibv, const ibv_gid& group) {
  const auto qp = datagram_qp(ibv, group);
  if (!qp) return std::unexpected(qp.error());
  return client::attach_multicast(*(*qp)->data, *Context::from(ibv->context).open,
                                  (*qp)->queue_pair->number(), group);
}

base::Result<void> detach(ibv_qp* ibv, const ibv_gid& group) {
  const auto qp = datagram_qp(ibv, group);
  if (!qp) return std::unexpected(qp.error());
  return client::detach_multicast(*(*qp)->data, (*qp)->queue_pair->number(), group);
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::attach(qp, *gid); }));
}
VERBENA_SAME_PROTOTYPE(ibv_attach_mcast);

VERBENA_ENTRY int vb_ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::detach(qp, *gid); }));
}
VERBENA_SAME_PROTOTYPE(ibv_detach_mcast);
