// How a queue pair is made; for both its plain and its extended form.
#pragma once

#include "abi/objects.hpp"

namespace verbena::abi {

// Writes the capabilities back into `attr`. EINVAL, EOPNOTSUPP, ENOMEM.
[[nodiscard]] base::Result<Qp*> create_qp(ibv_context* context, ibv_qp_init_attr_ex& attr);

// Of a queue pair that is being destroyed: no event of it comes any more, and those handed out are
// acknowledged.
void end_events(Qp& qp);

// The functions of ibv_qp_ex, for a queue pair of this type. EOPNOTSUPP: operations that it can't have.
[[nodiscard]] base::Result<void> check_operations(ibv_qp_type type, uint64_t operations);
void fill_builder_functions(ibv_qp_ex& ex);

}  // namespace verbena::abi
