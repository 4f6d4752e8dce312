// What the export tables' stub kinds jump to. The callers pass arguments of any type; none is looked at.
#include <infiniband/verbs.h>

#include "abi/abi.hpp"

VERBENA_ENTRY int vb_stub_errno() noexcept { return EOPNOTSUPP; }

VERBENA_ENTRY void* vb_stub_null() noexcept {
  errno = EOPNOTSUPP;
  return nullptr;
}

// As wide as the widest integer that one of these calls returns.
VERBENA_ENTRY long vb_stub_minus1() noexcept {
  errno = EOPNOTSUPP;
  return -1;
}

VERBENA_ENTRY long vb_stub_zero() noexcept { return 0; }

VERBENA_ENTRY void vb_stub_void() noexcept {}

// Memory is never pinned for a device, so fork() needs no preparation.
VERBENA_ENTRY ibv_fork_status vb_ibv_is_fork_initialized() noexcept { return IBV_FORK_UNNEEDED; }
VERBENA_SAME_PROTOTYPE(ibv_is_fork_initialized);
