// ibv_qp_ex: requests that are built call by call, between ibv_wr_start and ibv_wr_complete or ibv_wr_abort.
#include <fmt/format.h>

#include "abi/abi.hpp"
#include "abi/entries.hpp"
#include "abi/qp.hpp"
#include "abi/refusals.hpp"
#include "abi/request_builder.hpp"

namespace verbena::abi {
namespace {

constexpr uint64_t kDatagramOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint64_t kUnreliableOperations = kDatagramOperations | IBV_QP_EX_WITH_RDMA_WRITE |
                                           IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV |
                                           IBV_QP_EX_WITH_BIND_MW;
constexpr uint64_t kReliableOperations =
    kUnreliableOperations | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;

// Windows of type 2 and what goes with them are RC's and UC's: see check_opcode in verbs/post_send.cpp.
constexpr uint64_t kXrcOperations =
    kReliableOperations & ~uint64_t{IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE |
                                    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW};

uint64_t operations_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UD:
      return kDatagramOperations;
    case IBV_QPT_UC:
      return kUnreliableOperations;
    case IBV_QPT_RC:
      return kReliableOperations;
    case IBV_QPT_XRC_SEND:
      return kXrcOperations;
    default:
      return 0;
  }
}

RequestBuilder& builder(ibv_qp_ex* qp) { return *Qp::from(qp).builder; }

// No exception crosses into C: a batch that there is no memory for is refused when it is completed.
template <typename Step>
void step(ibv_qp_ex* qp, Step&& step) noexcept {
  try {
    step(builder(qp));
  } catch (const std::bad_alloc&) {
    builder(qp).refuse(ENOMEM);
  }
}

template <typename Rest>
void add(ibv_qp_ex* qp, ibv_wr_opcode opcode, Rest&& rest) noexcept {
  step(qp, [&](RequestBuilder& to) { rest(to.add(qp->wr_id, opcode, qp->wr_flags)); });
}

void add_remote(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address,
                __be32 imm = 0) noexcept {
  add(qp, opcode, [&](ibv_send_wr& wr) {
    wr.wr.rdma.rkey = rkey;
    wr.wr.rdma.remote_addr = address;
    wr.imm_data = imm;
  });
}

void add_atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, uint64_t compare_add,
                uint64_t swap) noexcept {
  add(qp, opcode, [&](ibv_send_wr& wr) {
    wr.wr.atomic = {.remote_addr = address, .compare_add = compare_add, .swap = swap, .rkey = rkey};
  });
}

void add_invalidating(ibv_qp_ex* qp, ibv_wr_opcode opcode, uint32_t key) noexcept {
  add(qp, opcode, [&](ibv_send_wr& wr) { wr.invalidate_rkey = key; });
}

// Setters are about the request before them.
template <typename Change>
void change_last(ibv_qp_ex* qp, Change&& change) noexcept {
  if (ibv_send_wr* last = builder(qp).last())
    change(*last);
  else
    builder(qp).refuse(EINVAL);
}

void fill_operations_of(ibv_qp_ex& ex) {
  ex.wr_send = [](ibv_qp_ex* qp) { add(qp, IBV_WR_SEND, [](ibv_send_wr&) {}); };
  ex.wr_send_imm = [](ibv_qp_ex* qp, __be32 imm) { add_remote(qp, IBV_WR_SEND_WITH_IMM, 0, 0, imm); };
  ex.wr_send_inv = [](ibv_qp_ex* qp, uint32_t key) { add_invalidating(qp, IBV_WR_SEND_WITH_INV, key); };
  ex.wr_local_inv = [](ibv_qp_ex* qp, uint32_t key) { add_invalidating(qp, IBV_WR_LOCAL_INV, key); };
  ex.wr_rdma_read = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    add_remote(qp, IBV_WR_RDMA_READ, rkey, address);
  };
  ex.wr_rdma_write = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    add_remote(qp, IBV_WR_RDMA_WRITE, rkey, address);
  };
  ex.wr_rdma_write_imm = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 imm) {
    add_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
  };
  ex.wr_atomic_cmp_swp = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
    add_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
  };
  ex.wr_atomic_fetch_add = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t value) {
    add_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, value, 0);
  };
  ex.wr_atomic_write = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, const void* value) {
    add_remote(qp, IBV_WR_ATOMIC_WRITE, rkey, address);
    const ibv_data_buf eight{.addr = const_cast<void*>(value), .length = sizeof(uint64_t)};
    step(qp, [&](RequestBuilder& to) { to.set_inline(&eight, 1); });
  };
  ex.wr_bind_mw = [](ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
    add(qp, IBV_WR_BIND_MW, [&](ibv_send_wr& wr) {
      wr.bind_mw.mw = mw;
      wr.bind_mw.rkey = rkey;
      wr.bind_mw.bind_info = *info;
    });
  };
  ex.wr_send_tso = [](ibv_qp_ex* qp, void*, uint16_t, uint16_t) { builder(qp).refuse(EOPNOTSUPP); };
}

void fill_setters_of(ibv_qp_ex& ex) {
  ex.wr_set_ud_addr = [](ibv_qp_ex* qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
    change_last(qp, [&](ibv_send_wr& wr) { wr.wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}; });
  };
  ex.wr_set_xrc_srqn = [](ibv_qp_ex* qp, uint32_t srqn) {
    change_last(qp, [&](ibv_send_wr& wr) { wr.qp_type.xrc.remote_srqn = srqn; });
  };
  ex.wr_set_sge = [](ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
    const ibv_sge one{.addr = address, .length = length, .lkey = lkey};
    step(qp, [&](RequestBuilder& to) { to.set_pieces(&one, 1); });
  };
  ex.wr_set_sge_list = [](ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
    step(qp, [&](RequestBuilder& to) { to.set_pieces(list, count); });
  };
  ex.wr_set_inline_data = [](ibv_qp_ex* qp, void* address, size_t length) {
    const ibv_data_buf one{.addr = address, .length = length};
    step(qp, [&](RequestBuilder& to) { to.set_inline(&one, 1); });
  };
  ex.wr_set_inline_data_list = [](ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
    step(qp, [&](RequestBuilder& to) { to.set_inline(list, count); });
  };
}

void start(ibv_qp_ex* qp) {
  builder(qp).lock.lock();
  builder(qp).begin();
}

int complete(ibv_qp_ex* qp) {
  Qp& ours = Qp::from(qp);
  RequestBuilder& built = *ours.builder;
  int error = built.error();
  if (error != 0) {
    base::explain(
        fmt::format("ibv_wr_complete of QP 0x{:06x}: a call since ibv_wr_start was refused (too many "
                    "pieces or inline bytes, a setter without a request, or an operation that isn't "
                    "there), so nothing is posted",
                    ours.ibv.qp_num));
  } else if (!ours.data->usable()) {
    error = refused_as_stale(ours.ibv.context);
  } else if (ibv_send_wr* requests = built.linked(); requests != nullptr) {
    error = ours.queue_pair->post_send(requests, nullptr, /*all=*/true);
  }
  built.lock.unlock();
  return error;
}

void abort_all(ibv_qp_ex* qp) { builder(qp).lock.unlock(); }

}  // namespace

base::Result<void> check_operations(ibv_qp_type type, uint64_t operations) {
  if (const uint64_t unknown = operations & ~operations_of(type); unknown != 0)
    return base::fail(EOPNOTSUPP,
                      fmt::format("send_ops_flags 0x{:x} are operations that a queue pair of this type "
                                  "doesn't have",
                                  unknown));
  return {};
}

void fill_builder_functions(ibv_qp_ex& ex) {
  fill_operations_of(ex);
  fill_setters_of(ex);
  ex.wr_start = start;
  ex.wr_complete = complete;
  ex.wr_abort = abort_all;
}

Qp::Qp() = default;
Qp::~Qp() = default;

}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY ibv_qp_ex* vb_ibv_qp_to_qp_ex(ibv_qp* qp) noexcept {
  abi::Qp& ours = abi::Qp::from(qp);
  return ours.builder != nullptr ? &ours.ex : nullptr;
}
VERBENA_SAME_PROTOTYPE(ibv_qp_to_qp_ex);
