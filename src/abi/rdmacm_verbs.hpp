// The verbs that RDMA CM calls on a program's behalf. Weak ones aren't there in every build of the core.
#pragma once

#include <infiniband/verbs.h>

#include "abi/abi.hpp"

VERBENA_ENTRY int vb_ibv_query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
VERBENA_ENTRY ibv_pd* vb_ibv_alloc_pd(ibv_context* context) noexcept;
VERBENA_ENTRY ibv_comp_channel* vb_ibv_create_comp_channel(ibv_context* context) noexcept;
VERBENA_ENTRY int vb_ibv_destroy_comp_channel(ibv_comp_channel* channel) noexcept;
VERBENA_ENTRY ibv_cq* vb_ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                       ibv_comp_channel* channel, int comp_vector) noexcept;
VERBENA_ENTRY int vb_ibv_destroy_cq(ibv_cq* cq) noexcept;
VERBENA_ENTRY ibv_qp* vb_ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) noexcept;
VERBENA_ENTRY int vb_ibv_destroy_qp(ibv_qp* qp) noexcept;
VERBENA_ENTRY int vb_ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept;
VERBENA_ENTRY ibv_srq* vb_ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) noexcept;
VERBENA_ENTRY int vb_ibv_destroy_srq(ibv_srq* srq) noexcept;
VERBENA_ENTRY __attribute__((weak)) int vb_ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid,
                                                            uint16_t lid) noexcept;
VERBENA_ENTRY __attribute__((weak)) int vb_ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid,
                                                            uint16_t lid) noexcept;
