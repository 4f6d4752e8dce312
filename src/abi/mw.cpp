// Memory windows.
#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::abi {
namespace {

base::Result<ibv_mw*> allocate(ibv_pd* pd, ibv_mw_type type) {
  Context& context = Context::from(pd->context);
  if (auto ok = context.usable(); !ok) return std::unexpected(ok.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  auto domain = Pd::from(pd).domain;
  if (!domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  const auto key = (*data)->process().windows().add(type, domain->handle());
  if (!key) {
    domain->release();
    return std::unexpected(key.error());
  }
  auto* mw = new Mw;
  mw->ibv = {.context = pd->context, .pd = pd, .rkey = *key, .handle = *key >> 8, .type = type};
  mw->domain = std::move(domain);
  mw->data = std::move(*data);
  hold_context(context);
  return &mw->ibv;
}

base::Result<void> deallocate(ibv_mw* ibv) {
  Context& context = Context::from(ibv->context);
  Mw& mw = Mw::from(ibv);
  if (auto ok = context.usable(); !ok) return ok;
  mw.data->process().windows().remove(ibv->rkey);
  mw.domain->release();
  delete &mw;
  release_context(context);
  return {};
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  return or_null(guarded([&] { return allocate(pd, type); }));
}

int dealloc_mw(ibv_mw* mw) noexcept {
  return errno_value(guarded([&] { return deallocate(mw); }));
}

// The key changes as soon as it is posted: the program may send it to a peer right behind (IBA 10.6.7.2.3).
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  const NoCancel no_cancel;
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  if (auto ok = Context::from(qp->context).usable(); !ok) return explained(ok.error());
  if (!Qp::from(qp).queue_pair) return EINVAL;  // an XRC target
  const int error = Qp::from(qp).queue_pair->bind_window(*mw, *bind, key);
  if (error == 0) mw->rkey = key;
  return error;
}

}  // namespace verbena::abi
