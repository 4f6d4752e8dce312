// Address handles, and how an answer finds its way back.
#include <fmt/format.h>

#include <cstring>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "verbs/address_handle.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

base::Result<ibv_ah*> create(ibv_pd* pd, const ibv_ah_attr& attributes) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  const auto& domain = Pd::from(pd).domain;
  auto vector = client::resolve_address(*context.open, attributes);
  if (!vector) return std::unexpected(vector.error());
  vector->domain = domain->handle();
  auto made = std::make_unique<verbs::AddressHandle>();
  if (context.address_handles.fetch_add(1) >= verbs::kMaxAh) {
    --context.address_handles;
    return base::fail(ENOMEM,
                      fmt::format("{} address handles are there already; destroy some, is one made for "
                                  "each message?",
                                  verbs::kMaxAh));
  }
  if (!domain->hold()) {
    --context.address_handles;
    return base::fail(EINVAL, "the protection domain was deallocated");
  }
  made->ibv.context = pd->context;
  made->ibv.pd = pd;
  made->vector = *vector;
  hold_context(context);
  return &made.release()->ibv;
}

base::Result<void> destroy(ibv_ah* ah) {
  Context& context = Context::from(ah->context);
  if (auto ok = context.usable(); !ok) return ok;
  Pd::from(ah->pd).domain->release();
  delete &verbs::AddressHandle::from(ah);
  --context.address_handles;
  release_context(context);
  return {};
}

// The 40 bytes hold an IPv6 header, or 20 that mean nothing and then an IPv4 header (RoCEv2, A17.4.5.2).
struct Sender {
  ibv_gid from{};
  ibv_gid to{};
  uint8_t traffic_class = 0;
  uint32_t flow_label = 0;
};

ibv_gid mapped(const uint8_t* ipv4) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, ipv4, 4);
  return gid;
}

Sender sender_of(const ibv_grh& grh) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&grh);
  if (const uint32_t first = be32toh(grh.version_tclass_flow); first >> 28 == 6)
    return {grh.sgid, grh.dgid, static_cast<uint8_t>(first >> 20), first & 0xfffff};
  const uint8_t* ipv4 = bytes + 20;
  return {mapped(ipv4 + 12), mapped(ipv4 + 16), ipv4[1], 0};
}

base::Result<void> describe(ibv_context* context, uint8_t port, const ibv_wc& completion, const ibv_grh* grh,
                            ibv_ah_attr& attributes) {
  attributes = {};
  attributes.dlid = completion.slid;
  attributes.sl = completion.sl;
  attributes.src_path_bits = completion.dlid_path_bits;
  attributes.port_num = port;
  if ((completion.wc_flags & IBV_WC_GRH) == 0) return {};
  if (grh == nullptr)
    return base::fail(EINVAL, "the completion says that there is a GRH (IBV_WC_GRH), but none was given");
  const auto record = Context::from(context).port(port);
  if (!record) return std::unexpected(record.error());
  const Sender sender = sender_of(*grh);
  for (unsigned index = 0; index < arena::kMaxGids; ++index) {
    const auto& gid = record->gids[index];
    if (gid.used == 0 || std::memcmp(gid.raw.data(), sender.to.raw, sizeof sender.to.raw) != 0) continue;
    attributes.is_global = 1;
    attributes.grh = {.dgid = sender.from,
                      .flow_label = sender.flow_label,
                      .sgid_index = static_cast<uint8_t>(index),
                      .hop_limit = 0xff,
                      .traffic_class = sender.traffic_class};
    return {};
  }
  return base::fail(EINVAL, fmt::format("the GRH's destination is no GID of port {}", port));
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_ah* vb_ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) noexcept {
  return abi::or_null(abi::guarded([&] { return abi::create(pd, *attributes); }));
}
VERBENA_SAME_PROTOTYPE(ibv_create_ah);

VERBENA_ENTRY int vb_ibv_destroy_ah(ibv_ah* ah) noexcept {
  return abi::errno_value(abi::guarded([&] { return abi::destroy(ah); }));
}
VERBENA_SAME_PROTOTYPE(ibv_destroy_ah);

VERBENA_ENTRY int vb_ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* completion, ibv_grh* grh,
                                         ibv_ah_attr* attributes) noexcept {
  return abi::minus_one(
      abi::guarded([&] { return abi::describe(context, port, *completion, grh, *attributes); }));
}
VERBENA_SAME_PROTOTYPE(ibv_init_ah_from_wc);

VERBENA_ENTRY ibv_ah* vb_ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh,
                                               uint8_t port) noexcept {
  return abi::or_null(abi::guarded([&]() -> base::Result<ibv_ah*> {
    ibv_ah_attr attributes;
    if (auto ok = abi::describe(pd->context, port, *completion, grh, attributes); !ok)
      return std::unexpected(ok.error());
    return abi::create(pd, attributes);
  }));
}
VERBENA_SAME_PROTOTYPE(ibv_create_ah_from_wc);
