// Options of ids, and enhanced connection establishment (ECE), of which our devices have none.
#include <fmt/format.h>

#include <cstring>

#include "abi/rdmacm_objects.hpp"

namespace verbena::abi {
namespace {

template <typename T>
base::Result<T> value_of(const void* value, size_t length, int option) {
  if (value == nullptr || length != sizeof(T))
    return base::fail(EINVAL,
                      fmt::format("RDMA CM's option {} has {} bytes, not {}", option, sizeof(T), length));
  T made;
  std::memcpy(&made, value, sizeof made);
  return made;
}

base::Result<void> set_flag(CmId& id, int option, const void* value, size_t length, bool CmId::*flag) {
  const auto wanted = value_of<int>(value, length, option);
  if (!wanted) return std::unexpected(wanted.error());
  if (id.step != CmStep::kIdle)
    return base::fail(EINVAL,
                      fmt::format("RDMA CM's option {} has to be set before the id is bound", option));
  id.*flag = *wanted != 0;
  return {};
}

base::Result<void> set_option(CmId& id, int level, int option, const void* value, size_t length) {
  if (auto ok = id.usable(); !ok) return ok;
  if (level != RDMA_OPTION_ID)
    return base::fail(ENOSYS, fmt::format("RDMA CM's options of level {} aren't there: paths come from the "
                                          "host's routing",
                                          level));
  switch (option) {
    case RDMA_OPTION_ID_TOS: {
      const auto wanted = value_of<uint8_t>(value, length, option);
      if (!wanted) return std::unexpected(wanted.error());
      id.traffic_class = *wanted;
      return {};
    }
    case RDMA_OPTION_ID_REUSEADDR:
      return set_flag(id, option, value, length, &CmId::reuse_address);
    case RDMA_OPTION_ID_AFONLY:
      return set_flag(id, option, value, length, &CmId::family_only);
    case RDMA_OPTION_ID_ACK_TIMEOUT: {
      const auto wanted = value_of<uint8_t>(value, length, option);
      if (!wanted) return std::unexpected(wanted.error());
      if (*wanted > 31)
        return base::fail(EINVAL, fmt::format("an ACK timeout is an exponent from 0 to 31, not {}", *wanted));
      id.ack_timeout = *wanted;
      return {};
    }
    default:
      return base::fail(ENOSYS, fmt::format("RDMA CM has no option {}", option));
  }
}

base::Result<void> set_ece(CmId& id, const ibv_ece* ece) {
  if (auto ok = id.usable(); !ok) return ok;
  if (ece == nullptr || ece->comp_mask != 0) return base::fail(EINVAL, "no ECE, or one of unknown fields");
  id.ece = *ece;
  return {};
}

base::Result<void> get_ece(CmId& id, ibv_ece* ece) {
  if (auto ok = id.usable(); !ok) return ok;
  if (ece == nullptr || ece->comp_mask != 0) return base::fail(EINVAL, "no ECE, or one of unknown fields");
  *ece = {};  // all options off: no peer offers us any
  return {};
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval,
                                     size_t optlen) noexcept {
  return abi::minus_one(
      abi::guarded([&] { return abi::set_option(abi::CmId::from(id), level, optname, optval, optlen); }));
}
VERBENA_SAME_PROTOTYPE(rdma_set_option);

VERBENA_ENTRY int vb_rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::set_ece(abi::CmId::from(id), ece); }));
}
VERBENA_SAME_PROTOTYPE(rdma_set_local_ece);

VERBENA_ENTRY int vb_rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::get_ece(abi::CmId::from(id), ece); }));
}
VERBENA_SAME_PROTOTYPE(rdma_get_remote_ece);
