// Entry points that are also operation slots of a context, or called by other entries.
#pragma once

#include <infiniband/verbs.h>

#include "abi/abi.hpp"

VERBENA_ENTRY int vb_ibv_query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
VERBENA_ENTRY int vb_ibv_query_port(ibv_context* context, uint8_t port_num,
                                    _compat_ibv_port_attr* attr) noexcept;
VERBENA_ENTRY int vb_ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) noexcept;
VERBENA_ENTRY int vb_ibv_query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) noexcept;

namespace verbena::abi {

// Slots of verbs_context. Their last argument is the size of the caller's struct, which may be older or
// newer.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    size_t attr_size) noexcept;
int query_port(ibv_context* context, uint8_t port_num, ibv_port_attr* attr, size_t attr_size) noexcept;
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept;
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept;
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept;
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept;
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept;
int dealloc_td(ibv_td* td) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept;
int query_rt_values(ibv_context* context, ibv_values_ex* values) noexcept;
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept;
int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept;

// XRC.
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept;
int close_xrcd(ibv_xrcd* xrcd) noexcept;
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept;

// Slots of ibv_context_ops: the fast path.
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions) noexcept;
int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept;
int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) noexcept;
int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) noexcept;
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) noexcept;

// Memory windows.
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;

// Regions of other memory than the program's, and advice.
ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept;
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) noexcept;
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* ranges,
              uint32_t count) noexcept;
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) noexcept;
int free_dm(ibv_dm* dm) noexcept;

}  // namespace verbena::abi
