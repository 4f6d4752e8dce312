// What the device promises: the one place for the numbers that ibv_query_device and ibv_query_port tell.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "arena/device_table.hpp"
#include "arena/process_segments.hpp"

namespace verbena::verbs {

// Identity: "VBN" where an adapter has its maker's OUI. The locally administered bit is set in it, so it is
// no maker's, and no maker's workarounds are taken for ours. Not 0: Debian's pyverbs suite takes that for a
// fault.
inline constexpr uint32_t kVendorId = 0x56424e;
// perftest knows by a list of part numbers which devices take inline data, and goes on without for all
// others. 1824 is on it with no workaround attached.
inline constexpr uint32_t kVendorPartId = 1824;
inline constexpr uint32_t kHardwareVersion = 1;

// Memory. We address what the process addresses, so its address space is the limit.
inline constexpr uint64_t kMaxMrSize = UINT64_MAX;
// Any page size from 4 KiB up: there is no translation table whose entries have a size.
inline constexpr uint64_t kPageSizeCap = ~uint64_t{4095};
inline constexpr int kMaxMw = 1 << 18;
// With the windows they fill a process's key table, whose first place stays empty.
inline constexpr int kMaxMr = static_cast<int>(arena::kMrEntries) - kMaxMw - 1;
inline constexpr int kMaxPd = 1 << 16;             // a domain is a few words; the limit only catches leaks
inline constexpr uint64_t kMaxDmBytes = 16 << 20;  // device memory of a process, in all

// On-demand paging: software always finds the pages that are there, so all of it is.
inline constexpr uint64_t kOdpGeneral = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
inline constexpr uint32_t kOdpUd = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
inline constexpr uint32_t kOdpUc = kOdpUd | IBV_ODP_SUPPORT_WRITE;
inline constexpr uint32_t kOdpRc = kOdpUc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

// Queues.
// 16 bits of a QP number are the process's own (DESIGN 2.2); 0 and 1 are special everywhere.
inline constexpr int kMaxQp = static_cast<int>(arena::kQpEntries) - 2;
inline constexpr int kMaxQpWr = 16384;  // per queue; a ring of that depth still fits a few MiB
inline constexpr int kMaxSge = 32;      // scatter elements of a send or receive
inline constexpr int kMaxSgeRd = 32;    // an RDMA READ scatters as freely
inline constexpr int kMaxCq = static_cast<int>(arena::kCqBells);  // one for each queue pair, and more
inline constexpr int kMaxCqe = 4'194'303;  // 2^22 less one, so that a count of entries fits with a spare slot
inline constexpr int kMaxSrq = 65536;      // SRQ numbers carry the slot as QP numbers do (DESIGN 2.2)
inline constexpr int kMaxSrqWr = 32767;    // twice a queue pair's depth, since many share one
inline constexpr int kMaxSrqSge = 32;      // as kMaxSge
inline constexpr int kMaxAh = 1 << 20;     // a handle is an address; the limit only catches leaks

// RDMA READs and atomics in flight, as target and as initiator, per queue pair and in all.
inline constexpr int kMaxQpRdAtom = 128;
inline constexpr int kMaxQpInitRdAtom = 128;
inline constexpr int kMaxResRdAtom = kMaxQp * kMaxQpRdAtom;
// Atomic with respect to other atomics through the device; also towards the CPU where memory is mapped.
inline constexpr ibv_atomic_cap kAtomicCap = IBV_ATOMIC_HCA;

// Multicast: groups are UDP groups joined by a slot's socket.
inline constexpr int kMaxMcastGrp = 8192;
inline constexpr int kMaxMcastQpAttach = 56;
inline constexpr int kMaxTotalMcastQpAttach = kMaxMcastGrp * kMaxMcastQpAttach;

// One partition key: RoCE has the default partition only.
inline constexpr uint16_t kMaxPkeys = 1;
inline constexpr uint16_t kDefaultPkey = 0xffff;
// 4.096 us * 2^15 = 134 ms: a peer's process may have to be scheduled before it answers.
inline constexpr uint8_t kLocalCaAckDelay = 15;

// What we do beyond the basics: RNR NAKs, port events, path migration, memory windows of type 1 and 2B, SEND
// with invalidate and LOCAL_INV, shared receive queues that grow, XRC.
inline constexpr unsigned kDeviceCapFlags =
    IBV_DEVICE_AUTO_PATH_MIG | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW |
    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_XRC;
// ATOMIC WRITE. Newer headers call it IBV_DEVICE_ATOMIC_WRITE; ours has no name for it.
inline constexpr uint64_t kDeviceCapFlagsEx = kDeviceCapFlags | uint64_t{1} << 40;

// Timestamps are CLOCK_MONOTONIC in nanoseconds: all 64 bits count, at 1 GHz.
inline constexpr uint64_t kCompletionTimestampMask = UINT64_MAX;
inline constexpr uint64_t kCoreClockKhz = 1'000'000;

// The port.
inline constexpr ibv_mtu kMaxMtu = IBV_MTU_4096;  // the largest there is
inline constexpr int kGidTableLength = arena::kMaxGids;
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;  // RC and UC; UD has the MTU
inline constexpr uint8_t kMaxVlNum = 1;                 // one virtual lane: Ethernet has none
// RoCE addresses by IP-based GIDs, and connection management is there.
inline constexpr uint32_t kPortCapFlags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;

}  // namespace verbena::verbs
