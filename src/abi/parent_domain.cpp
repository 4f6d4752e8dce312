// Thread domains and parent domains: a protection domain with the program's own allocator for queues.
#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/process_state.hpp"

namespace verbena::abi {
namespace {

constexpr uint32_t kKnownMask =
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

base::Result<ibv_td*> make_thread_domain(ibv_context* context, const ibv_td_init_attr& attr) {
  if (auto ok = Context::from(context).usable(); !ok) return std::unexpected(ok.error());
  if (attr.comp_mask != 0) return base::fail(EINVAL, "a thread domain knows no comp_mask");
  auto* made = new Td;
  made->ibv.context = context;
  hold_context(Context::from(context));
  return &made->ibv;
}

base::Result<void> free_thread_domain(ibv_td* td) {
  Context& context = Context::from(td->context);
  {
    const std::lock_guard lock(state().mutex);
    if (Td::from(td).users != 0)
      return base::fail(EBUSY, "parent domains still use this thread domain: deallocate them first");
  }
  delete &Td::from(td);
  release_context(context);
  return {};
}

base::Result<void> check(ibv_context* context, const ibv_parent_domain_init_attr& attr) {
  if ((attr.comp_mask & ~kKnownMask) != 0)
    return base::fail(EOPNOTSUPP, "the parent domain's comp_mask has bits without a meaning here");
  if (attr.pd == nullptr || Pd::from(attr.pd).parent != nullptr)
    return base::fail(EINVAL, "a parent domain stands for a domain from ibv_alloc_pd");
  if (attr.pd->context != context || (attr.td != nullptr && attr.td->context != context))
    return base::fail(EINVAL, "a parent domain, what it stands for and its thread domain are of one context");
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0 &&
      (attr.alloc == nullptr || attr.free == nullptr))
    return base::fail(EINVAL, "a parent domain with allocators needs both alloc and free");
  return {};
}

base::Result<ibv_pd*> make_parent_domain(ibv_context* context, const ibv_parent_domain_init_attr& attr) {
  Context& ours = Context::from(context);
  if (auto ok = ours.usable(); !ok) return std::unexpected(ok.error());
  if (auto ok = check(context, attr); !ok) return std::unexpected(ok.error());
  Pd& guarded = Pd::from(attr.pd);
  auto made = std::make_unique<Pd>();
  made->parent = std::make_shared<ParentDomain>();
  // Its keys and queue pairs are those of the domain it stands for: the handle is the same.
  made->domain =
      std::make_shared<verbs::ProtectionDomain>(guarded.domain->device(), guarded.domain->handle());
  made->ibv.context = context;
  made->ibv.handle = guarded.domain->handle();
  ParentDomain& parent = *made->parent;
  parent.ibv = &made->ibv;
  parent.guarded = &guarded;
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    parent.alloc = attr.alloc;
    parent.free = attr.free;
  }
  if ((attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) parent.context = attr.pd_context;
  if (!guarded.domain->hold()) return base::fail(EINVAL, "the protection domain was deallocated");
  const std::lock_guard lock(state().mutex);
  if (attr.td != nullptr) {
    parent.thread = &Td::from(attr.td);
    ++parent.thread->users;
  }
  ++ours.references;
  return &made.release()->ibv;
}

}  // namespace

base::Result<void*> ParentDomain::allocate(size_t size, size_t alignment, verbs::QueueUse use) {
  if (alloc == nullptr) return nullptr;
  void* given = alloc(ibv, context, size, alignment, static_cast<uint64_t>(use));
  if (given == IBV_ALLOCATOR_USE_DEFAULT) return nullptr;
  if (given == nullptr)
    return base::fail(ENOMEM, "the program's own allocator, given with its parent domain, has no memory");
  return given;
}

void ParentDomain::release(void* memory, verbs::QueueUse use) {
  free(ibv, context, memory, static_cast<uint64_t>(use));
}

base::Result<void> free_parent_domain(ibv_pd* pd) {
  Pd& ours = Pd::from(pd);
  if (auto closed = ours.domain->close(); !closed) return closed;
  {
    const std::lock_guard lock(state().mutex);
    if (ours.parent->thread != nullptr) --ours.parent->thread->users;
  }
  ours.parent->guarded->domain->release();
  Context& context = Context::from(pd->context);
  delete &ours;
  release_context(context);
  return {};
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept {
  return or_null(guarded([&] { return make_thread_domain(context, *attr); }));
}

int dealloc_td(ibv_td* td) noexcept {
  return errno_value(guarded([&] { return free_thread_domain(td); }));
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept {
  return or_null(guarded([&] { return make_parent_domain(context, *attr); }));
}

}  // namespace verbena::abi
