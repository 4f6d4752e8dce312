// The public C structs inside blocks of ours. Programs hold pointers to the public part only.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "arena/segment.hpp"
#include "base/lock.hpp"
#include "client/data_path.hpp"
#include "client/devices.hpp"
#include "verbs/protection_domain.hpp"
#include "verbs/queue_memory.hpp"

namespace verbena::abi {

// A device that a list or a context refers to; the last reference frees it. References are counted under
// state().mutex.
struct Device {
  ibv_device ibv{};
  // mlx5dv and efadv read their driver's pointer right behind any ibv_device they are handed; it must say
  // "not ours".
  std::byte read_by_vendor_libraries[512]{};
  uint64_t node_guid = 0;  // host byte order
  int index = 0;
  int references = 0;

  static Device& from(ibv_device* device) { return *reinterpret_cast<Device*>(device); }
};
static_assert(offsetof(Device, ibv) == 0);
static_assert(offsetof(Device, read_by_vendor_libraries) == 664);

// An open device. Domains keep it alive: a program that closes the device first then still frees them safely.
struct Context {
  verbs_context verbs{};
  Device* device = nullptr;
  std::unique_ptr<client::OpenDevice> open;
  int references = 1;  // the program's, and one for each object; counted under state().mutex
  std::atomic<int> address_handles = 0;
  ibv_device_attr
      as_opened{};  // the device doesn't change: a child of fork() may ask, though it can't use it

  static Context& from(ibv_context* context) {
    return *reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(context) -
                                       offsetof(verbs_context, context));
  }
  // Fails with EIO in the child of a fork().
  [[nodiscard]] base::Result<void> usable() const;
  [[nodiscard]] base::Result<arena::DeviceRecord> record() const;
  [[nodiscard]] base::Result<ibv_device_attr> attributes() const;
  // EINVAL: no such port.
  [[nodiscard]] base::Result<arena::PortRecord> port(uint32_t number) const;
};
static_assert(offsetof(Context, verbs) == 0);
static_assert(sizeof(verbs_context) == 648);

struct Td {
  ibv_td ibv{};
  int users = 0;  // parent domains; under state().mutex

  static Td& from(ibv_td* td) { return *reinterpret_cast<Td*>(td); }
};
static_assert(offsetof(Td, ibv) == 0);

struct ParentDomain;

// One per ibv_alloc_pd, ibv_import_pd or ibv_alloc_parent_domain; imports of one domain share it.
struct Pd {
  ibv_pd ibv{};
  // A parent domain's has the handle of the one it stands for, and counts its own objects.
  std::shared_ptr<verbs::ProtectionDomain> domain;
  std::shared_ptr<ParentDomain> parent;  // null: none

  static Pd& from(ibv_pd* pd) { return *reinterpret_cast<Pd*>(pd); }
};
static_assert(offsetof(Pd, ibv) == 0);

// What a parent domain adds: the program's allocator and its thread domain.
struct ParentDomain final : verbs::QueueAllocator {
  ibv_pd* ibv = nullptr;  // itself
  Pd* guarded = nullptr;  // the protection domain that it stands for
  Td* thread = nullptr;
  decltype(ibv_parent_domain_init_attr::alloc) alloc = nullptr;
  decltype(ibv_parent_domain_init_attr::free) free = nullptr;
  void* context = nullptr;

  [[nodiscard]] base::Result<void*> allocate(size_t size, size_t alignment, verbs::QueueUse use) override;
  void release(void* memory, verbs::QueueUse use) override;
};

// Each object below holds what it needs: the context's reference, its domain, its completion queues.
struct Dm;
struct Mr {
  ibv_mr ibv{};
  Dm* dm = nullptr;  // the device memory that it is of
  std::shared_ptr<verbs::ProtectionDomain> domain;
  std::shared_ptr<client::DataPath> data;

  static Mr& from(ibv_mr* mr) { return *reinterpret_cast<Mr*>(mr); }
};
static_assert(offsetof(Mr, ibv) == 0);

// Device memory: shared memory of this process's, which a child of fork() shares.
struct Dm {
  ibv_dm ibv{};
  std::shared_ptr<arena::Segment> segment;
  uint64_t length = 0;
  bool imported = false;              // by its handle: the same memory, counted once
  std::atomic<uint32_t> regions = 0;  // registered in it

  static Dm& from(ibv_dm* dm) { return *reinterpret_cast<Dm*>(dm); }
};
static_assert(offsetof(Dm, ibv) == 0);

struct Mw {
  ibv_mw ibv{};
  std::shared_ptr<verbs::ProtectionDomain> domain;
  std::shared_ptr<client::DataPath> data;

  static Mw& from(ibv_mw* mw) { return *reinterpret_cast<Mw*>(mw); }
};
static_assert(offsetof(Mw, ibv) == 0);

struct Channel {
  ibv_comp_channel ibv{};
  std::unique_ptr<verbs::CompletionChannel> channel;

  static Channel& from(ibv_comp_channel* channel) { return *reinterpret_cast<Channel*>(channel); }
};
static_assert(offsetof(Channel, ibv) == 0);

struct Cq {
  union {
    ibv_cq_ex ex{};  // begins as an ibv_cq does; its functions are there for ibv_create_cq_ex's only
    ibv_cq ibv;
  };
  std::shared_ptr<verbs::CompletionQueue> queue;
  std::shared_ptr<client::DataPath> data;
  // Of an extended queue, from ibv_start_poll to ibv_end_poll.
  base::Lock polling;
  bool one_thread = false;  // IBV_CREATE_CQ_ATTR_SINGLE_THREADED: nobody takes the lock
  ibv_wc current{};
  uint64_t current_stamp_ns = 0;
  std::shared_ptr<verbs::ProtectionDomain> domain;  // the parent domain it was made with, held; else null
  std::shared_ptr<ParentDomain> parent;             // the same's allocator
  uint32_t events_handed_out = 0;                   // by ibv_get_cq_event; under the channel's lock
  uint32_t async_events_handed_out = 0;             // under ibv.mutex

  static Cq& from(ibv_cq* cq) { return *reinterpret_cast<Cq*>(cq); }
  static Cq& from(ibv_cq_ex* cq) { return *reinterpret_cast<Cq*>(cq); }
};
static_assert(offsetof(Cq, ibv) == 0 &&
              offsetof(ibv_cq, async_events_completed) == offsetof(ibv_cq_ex, async_events_completed));

struct Xrcd {
  ibv_xrcd ibv{};
  std::shared_ptr<client::XrcLink> link;
  std::shared_ptr<client::DataPath> data;
  uint32_t id = 0;
  base::Slot keeper;
  std::atomic<uint32_t> users = 0;  // shared receive queues and queue pairs made with it

  static Xrcd& from(ibv_xrcd* xrcd) { return *reinterpret_cast<Xrcd*>(xrcd); }
};
static_assert(offsetof(Xrcd, ibv) == 0);

class RequestBuilder;

struct Qp {
  union {
    ibv_qp_ex ex{};  // its functions are there for queue pairs made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS only
    ibv_qp ibv;
  };
  void* newer_operations[8]{};              // where newer headers than this build's have more functions: null
  std::unique_ptr<RequestBuilder> builder;  // of ibv_wr_start; null: no extended queue pair
  std::shared_ptr<ParentDomain> parent;     // whose allocator its queues use; null: none
  ibv_ece ece{};                            // what ibv_set_ece left
  std::shared_ptr<verbs::QueuePair> queue_pair;  // null: XRC_RECV, whose queue pair is the keeper's
  Xrcd* xrcd = nullptr;                          // XRC_RECV: its domain, which outlives it
  std::shared_ptr<client::DataPath> data;
  uint32_t async_events_handed_out = 0;  // under ibv.mutex

  Qp();
  ~Qp();
  static Qp& from(ibv_qp* qp) { return *reinterpret_cast<Qp*>(qp); }
  static Qp& from(ibv_qp_ex* qp) { return *reinterpret_cast<Qp*>(qp); }
};
static_assert(offsetof(Qp, ibv) == 0);

struct Srq {
  ibv_srq ibv{};
  std::shared_ptr<verbs::SharedReceiveQueue> queue;
  Xrcd* xrcd = nullptr;  // XRC: its domain, which outlives it
  std::shared_ptr<client::DataPath> data;
  uint32_t async_events_handed_out = 0;  // under ibv.mutex

  static Srq& from(ibv_srq* srq) { return *reinterpret_cast<Srq*>(srq); }
};
static_assert(offsetof(Srq, ibv) == 0);

// ibv_dealloc_pd of a parent domain. EBUSY while objects made with it exist.
[[nodiscard]] base::Result<void> free_parent_domain(ibv_pd* pd);

[[nodiscard]] ibv_device_attr attributes_of(const arena::DeviceRecord& record);

// Fills every operation slot: ours where there is one, else a refusal by that operation's own convention.
void fill_operations(verbs_context& verbs);

// Opens the device for a context that the program closes by ibv_close_device.
[[nodiscard]] base::Result<ibv_context*> open_context(Device& device);
// Drops a reference of the context, and the context with the last.
void release_context(Context& context);
// One more, for an object in it.
void hold_context(Context& context);

}  // namespace verbena::abi
