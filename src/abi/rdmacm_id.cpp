// Ids: creating, destroying, moving them to another channel.
#include <fmt/format.h>

#include "abi/rdmacm_multicast.hpp"
#include "abi/rdmacm_objects.hpp"
#include "base/random.hpp"

namespace verbena::abi {
namespace {

base::Result<void> create(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                          rdma_port_space space) {
  const bool datagrams = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB;
  const auto made = make_id(channel, context, space, datagrams ? IBV_QPT_UD : IBV_QPT_RC);
  if (!made) return std::unexpected(made.error());
  *id = &(*made)->rdma;
  return {};
}

// With the id out of the tie's reach: no event of it is handed out any more.
void wait_for_acknowledgements(CmId& id) {
  std::unique_lock lock(id.mutex);
  id.acknowledged.wait(lock, [&] { return id.events_acknowledged == id.events_handed_out; });
}

base::Result<EventChannel*> channel_for(rdma_event_channel* given) {
  if (given == nullptr) return make_channel();
  auto& channel = EventChannel::from(given);
  if (!channel.tie->current())
    return base::fail(EIO, "the event channel was created before fork(): a child has to create its own");
  return &channel;
}

}  // namespace

CmId::CmId() {
  first_psn = static_cast<uint32_t>(base::random_u64()) & 0xffffff;
  qkey = RDMA_UDP_QKEY;
}
CmId::~CmId() = default;

base::Result<void> CmId::usable() const {
  if (tie->current()) return {};
  return base::fail(EIO, "the RDMA CM id was created before fork(): a child has to create its own");
}

void CmId::leave(ipc::CmEventKind kind, int status, uint64_t context) {
  tie->leave({.event = kind, .id = number, .status = status, .context = context});
}

base::Result<ipc::CmPortSpace> port_space(rdma_port_space space) {
  switch (space) {
    case RDMA_PS_TCP:
      return ipc::CmPortSpace::kTcp;
    case RDMA_PS_UDP:
      return ipc::CmPortSpace::kUdp;
    case RDMA_PS_IB:
      return ipc::CmPortSpace::kIb;
    case RDMA_PS_IPOIB:
      return ipc::CmPortSpace::kIpoib;
  }
  return base::fail(EINVAL, fmt::format("there is no port space {:#x}: RDMA_PS_TCP, UDP, IB and IPOIB are",
                                        static_cast<unsigned>(space)));
}

base::Result<CmId*> make_id(rdma_event_channel* channel, void* context, rdma_port_space space,
                            ibv_qp_type type) {
  const auto known_space = port_space(space);
  if (!known_space) return std::unexpected(known_space.error());
  if (auto opened = open_cm_devices(); !opened) return std::unexpected(opened.error());
  auto own = channel_for(channel);
  if (!own) return std::unexpected(own.error());
  auto made = std::make_unique<CmId>();
  made->tie = (*own)->tie;
  made->synchronous = channel == nullptr;
  made->rdma.channel = &(*own)->rdma;
  made->rdma.context = context;
  made->rdma.ps = space;
  made->rdma.qp_type = type;
  const auto number = made->tie->create((*own)->channel, *known_space, made.get());
  if (!number) {
    if (channel == nullptr) free_channel(*own);
    return std::unexpected(number.error());
  }
  made->number = *number;
  return made.release();
}

base::Result<void> destroy_id(CmId& id) {
  if (auto ok = id.usable(); !ok) return ok;
  leave_all_groups(id);
  id.tie->destroy(id.number);
  drop_kept_event(id);
  wait_for_acknowledgements(id);
  if (id.synchronous) free_channel(&EventChannel::from(id.rdma.channel));
  delete &id;
  return {};
}

base::Result<void> migrate(CmId& id, rdma_event_channel* channel) {
  if (auto ok = id.usable(); !ok) return ok;
  const auto to = channel_for(channel);
  if (!to) return std::unexpected(to.error());
  const auto from = id.rdma.channel;
  if (auto moved = id.tie->migrate(id.number, (*to)->channel); !moved) {
    if (channel == nullptr) free_channel(*to);
    return moved;
  }
  id.rdma.channel = &(*to)->rdma;
  if (id.synchronous) {
    drop_kept_event(id);
    free_channel(&EventChannel::from(from));
  }
  id.synchronous = channel == nullptr;
  return {};
}

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                    rdma_port_space ps) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::create(channel, id, context, ps); }));
}
VERBENA_SAME_PROTOTYPE(rdma_create_id);

VERBENA_ENTRY int vb_rdma_destroy_id(rdma_cm_id* id) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::destroy_id(abi::CmId::from(id)); }));
}
VERBENA_SAME_PROTOTYPE(rdma_destroy_id);

VERBENA_ENTRY int vb_rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::migrate(abi::CmId::from(id), channel); }));
}
VERBENA_SAME_PROTOTYPE(rdma_migrate_id);
