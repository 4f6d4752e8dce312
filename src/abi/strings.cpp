// The words for the ABI's numbers. Each table is in the order of its enum.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <iterator>

#include "abi/abi.hpp"

namespace {

template <size_t N>
const char* word(const char* const (&words)[N], long number, const char* unknown) {
  return number >= 0 && number < static_cast<long>(N) && words[number] ? words[number] : unknown;
}

constexpr const char* kNodeTypes[] = {
    nullptr,
    "InfiniBand channel adapter",
    "InfiniBand switch",
    "InfiniBand router",
    "iWARP NIC",
    "usNIC",
    "usNIC UDP",
    "unspecified",
};
static_assert(std::size(kNodeTypes) == IBV_NODE_UNSPECIFIED + 1);

constexpr const char* kPortStates[] = {
    "no state change (NOP)", "down", "init", "armed", "active", "active defer",
};
static_assert(std::size(kPortStates) == IBV_PORT_ACTIVE_DEFER + 1);

constexpr const char* kEventTypes[] = {
    "completion queue error",
    "queue pair fatal error",
    "invalid request on the local work queue",
    "local access violation on the work queue",
    "communication established",
    "send queue drained",
    "path migration succeeded",
    "path migration failed",
    "device fatal error",
    "port active",
    "port error",
    "LID change",
    "P_Key table change",
    "subnet manager change",
    "shared receive queue error",
    "shared receive queue limit reached",
    "last work request of the queue pair reached",
    "client reregistration",
    "GID table change",
    "work queue fatal error",
};
static_assert(std::size(kEventTypes) == IBV_EVENT_WQ_FATAL + 1);

constexpr const char* kCompletionStatuses[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "work request flushed error",
    "memory window bind error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "remote aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "tag matching error",
    "tag matching rendezvous incomplete",
};
static_assert(std::size(kCompletionStatuses) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr const char* kWorkRequestOpcodes[] = {
    "RDMA write",
    "RDMA write with immediate",
    "send",
    "send with immediate",
    "RDMA read",
    "atomic compare and swap",
    "atomic fetch and add",
    "local invalidate",
    "bind memory window",
    "send with invalidate",
    "TSO",
    "driver's own",
    nullptr,
    nullptr,
    "flush",
    "atomic write",
};
static_assert(std::size(kWorkRequestOpcodes) == IBV_WR_ATOMIC_WRITE + 1);

constexpr const char* kCmEvents[] = {
    "RDMA_CM_EVENT_ADDR_RESOLVED",  "RDMA_CM_EVENT_ADDR_ERROR",      "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",    "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",  "RDMA_CM_EVENT_UNREACHABLE",     "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",    "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
};
static_assert(std::size(kCmEvents) == RDMA_CM_EVENT_TIMEWAIT_EXIT + 1);

}  // namespace

VERBENA_ENTRY const char* vb_ibv_node_type_str(ibv_node_type type) noexcept {
  return word(kNodeTypes, type, "unknown");
}
VERBENA_SAME_PROTOTYPE(ibv_node_type_str);

VERBENA_ENTRY const char* vb_ibv_port_state_str(ibv_port_state port_state) noexcept {
  return word(kPortStates, port_state, "unknown");
}
VERBENA_SAME_PROTOTYPE(ibv_port_state_str);

VERBENA_ENTRY const char* vb_ibv_event_type_str(ibv_event_type event) noexcept {
  return word(kEventTypes, event, "unknown");
}
VERBENA_SAME_PROTOTYPE(ibv_event_type_str);

VERBENA_ENTRY const char* vb_ibv_wc_status_str(ibv_wc_status status) noexcept {
  return word(kCompletionStatuses, status, "unknown");
}
VERBENA_SAME_PROTOTYPE(ibv_wc_status_str);

// Newer than our header.
VERBENA_ENTRY const char* vb_ibv_wr_opcode_str(ibv_wr_opcode opcode) noexcept {
  return word(kWorkRequestOpcodes, opcode, "unknown");
}

VERBENA_ENTRY const char* vb_rdma_event_str(rdma_cm_event_type event) noexcept {
  return word(kCmEvents, event, "UNKNOWN EVENT");
}
VERBENA_SAME_PROTOTYPE(rdma_event_str);
