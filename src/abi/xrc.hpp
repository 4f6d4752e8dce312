// Handles of XRC target queue pairs, for the calls that take any queue pair.
#pragma once

#include "abi/objects.hpp"

namespace verbena::abi {

// EINVAL: no domain of that context.
[[nodiscard]] base::Result<Qp*> create_target(ibv_context* context, const ibv_qp_init_attr_ex& attr);
[[nodiscard]] base::Result<void> destroy_target(ibv_qp* qp);
[[nodiscard]] base::Result<void> modify_target(ibv_qp* qp, const ibv_qp_attr& attr, int mask);
[[nodiscard]] base::Result<void> query_target(ibv_qp* qp, ibv_qp_attr& attr, ibv_qp_init_attr& init);

}  // namespace verbena::abi
