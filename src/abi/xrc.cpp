// XRC domains, and target queue pairs, which live in the keeper: here are handles of them.
#include "abi/xrc.hpp"
#include "abi/qp.hpp"

#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"

namespace verbena::abi {
namespace {

base::Result<ibv_xrcd*> open_domain(ibv_context* ibv, const ibv_xrcd_init_attr& attr) {
  Context& context = Context::from(ibv);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  constexpr uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (attr.comp_mask != kNeeded)
    return base::fail(EINVAL,
                      fmt::format("ibv_open_xrcd: comp_mask is 0x{:x}, but it needs "
                                  "IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS, and knows no other",
                                  attr.comp_mask));
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto link = (*data)->xrc();
  if (!link) return std::unexpected(link.error());
  const auto domain = (*link)->open_domain(attr.fd, attr.oflags);
  if (!domain) return std::unexpected(domain.error());
  auto made = std::make_unique<Xrcd>();
  made->ibv.context = ibv;
  made->link = std::move(*link);
  made->data = std::move(*data);
  made->id = domain->id;
  made->keeper = domain->keeper;
  hold_context(context);
  return &made.release()->ibv;
}

base::Result<void> close_domain(ibv_xrcd* ibv) {
  Context& context = Context::from(ibv->context);
  Xrcd& domain = Xrcd::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  if (const uint32_t users = domain.users.load(); users != 0)
    return base::fail(EBUSY,
                      fmt::format("{} shared receive queues and queue pairs are in the XRC domain: destroy "
                                  "them first",
                                  users));
  domain.link->close_domain(domain.id);
  delete &domain;
  release_context(context);
  return {};
}

// A handle of a target queue pair of the keeper's.
Qp* make_handle(Context& context, Xrcd& domain, const client::XrcLink::Target& target, void* qp_context) {
  auto made = std::make_unique<Qp>();
  made->data = domain.data;
  made->xrcd = &domain;
  ibv_qp& ibv = made->ibv;
  ibv.context = &context.verbs.context;
  ibv.qp_context = qp_context;
  ibv.qp_num = target.qpn;
  ibv.handle = target.qpn & 0xffff;
  ibv.state = target.state;
  ibv.qp_type = IBV_QPT_XRC_RECV;
  pthread_mutex_init(&ibv.mutex, nullptr);
  pthread_cond_init(&ibv.cond, nullptr);
  domain.link->listen(target.qpn, context.open->events(), &ibv);
  ++domain.users;
  hold_context(context);
  return made.release();
}

base::Result<ibv_qp*> open_target(ibv_context* ibv, const ibv_qp_open_attr& attr) {
  Context& context = Context::from(ibv);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if ((attr.comp_mask & kNeeded) != kNeeded ||
      (attr.comp_mask & ~(kNeeded | IBV_QP_OPEN_ATTR_CONTEXT)) != 0 || attr.qp_type != IBV_QPT_XRC_RECV ||
      attr.xrcd == nullptr || attr.xrcd->context != ibv)
    return base::fail(EINVAL,
                      "ibv_open_qp needs the number of a queue pair, an XRC domain of the same context, and "
                      "IBV_QPT_XRC_RECV as the type, with their bits in comp_mask");
  Xrcd& domain = Xrcd::from(attr.xrcd);
  const auto target = domain.link->open_target(domain.id, attr.qp_num);
  if (!target) return std::unexpected(target.error());
  void* qp_context = (attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr.qp_context : nullptr;
  return &make_handle(context, domain, *target, qp_context)->ibv;
}

}  // namespace

base::Result<Qp*> create_target(ibv_context* ibv, const ibv_qp_init_attr_ex& attr) {
  Context& context = Context::from(ibv);
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr || attr.xrcd->context != ibv)
    return base::fail(EINVAL,
                      "an XRC_RECV queue pair needs an XRC domain of the same context: set xrcd and add "
                      "IBV_QP_INIT_ATTR_XRCD to comp_mask");
  Xrcd& domain = Xrcd::from(attr.xrcd);
  const auto target = domain.link->create_target(domain.id, context.device->ibv.name);
  if (!target) return std::unexpected(target.error());
  return make_handle(context, domain, *target, attr.qp_context);
}

base::Result<void> destroy_target(ibv_qp* ibv) {
  Context& context = Context::from(ibv->context);
  Qp& qp = Qp::from(ibv);
  Xrcd& domain = *qp.xrcd;
  domain.link->unlisten(ibv);
  end_events(qp);
  domain.link->release_target(ibv->qp_num);
  delete &qp;
  --domain.users;
  release_context(context);
  return {};
}

base::Result<void> modify_target(ibv_qp* ibv, const ibv_qp_attr& attr, int mask) {
  ibv_qp_attr after{};
  after.qp_state = ibv->state;
  auto done = Qp::from(ibv).xrcd->link->modify(ibv->qp_num, attr, mask, after);
  ibv->state = after.qp_state;
  return done;
}

base::Result<void> query_target(ibv_qp* ibv, ibv_qp_attr& attr, ibv_qp_init_attr& init) {
  if (auto done = Qp::from(ibv).xrcd->link->query(ibv->qp_num, attr); !done) return done;
  attr.cap = {};  // it has no queues
  ibv->state = attr.qp_state;
  init = {.qp_context = ibv->qp_context,
          .send_cq = nullptr,
          .recv_cq = nullptr,
          .srq = nullptr,
          .cap = {},
          .qp_type = ibv->qp_type,
          .sq_sig_all = 0};
  return {};
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept {
  return or_null(guarded([&] { return open_domain(context, *attr); }));
}

int close_xrcd(ibv_xrcd* xrcd) noexcept {
  return errno_value(guarded([&] { return close_domain(xrcd); }));
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept {
  return or_null(guarded([&] { return open_target(context, *attr); }));
}

}  // namespace verbena::abi
