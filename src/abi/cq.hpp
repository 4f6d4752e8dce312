// How a completion queue is made; for both its plain and its extended form.
#pragma once

#include "abi/objects.hpp"

namespace verbena::abi {

struct CqWish {
  uint32_t cqe = 0;
  void* cq_context = nullptr;
  ibv_comp_channel* channel = nullptr;
  uint32_t vector = 0;
  bool stamps = false;
  bool ignores_overrun = false;
  std::shared_ptr<verbs::ProtectionDomain> domain;  // of the parent domain; null: none
  std::shared_ptr<ParentDomain> parent;
};

// EINVAL: no such size or vector; ENOMEM.
[[nodiscard]] base::Result<Cq*> create_cq(ibv_context* context, const CqWish& wish);

}  // namespace verbena::abi
