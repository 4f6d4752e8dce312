// The public C structs inside blocks of ours. Programs hold pointers to the public part only.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <memory>

#include "arena/segment.hpp"
#include "client/data_path.hpp"
#include "client/devices.hpp"
#include "verbs/protection_domain.hpp"

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

  static Context& from(ibv_context* context) {
    return *reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(context) -
                                       offsetof(verbs_context, context));
  }
  // Fails with EIO in the child of a fork().
  [[nodiscard]] base::Result<void> usable() const;
  [[nodiscard]] base::Result<arena::DeviceRecord> record() const;
  // EINVAL: no such port.
  [[nodiscard]] base::Result<arena::PortRecord> port(uint32_t number) const;
};
static_assert(offsetof(Context, verbs) == 0);
static_assert(sizeof(verbs_context) == 648);

// One per ibv_alloc_pd or ibv_import_pd; imports of one domain share it.
struct Pd {
  ibv_pd ibv{};
  std::shared_ptr<verbs::ProtectionDomain> domain;

  static Pd& from(ibv_pd* pd) { return *reinterpret_cast<Pd*>(pd); }
};
static_assert(offsetof(Pd, ibv) == 0);

// Each object below holds what it needs: the context's reference, its domain, its completion queues.
struct Dm;
struct Mr {
  ibv_mr ibv{};
  bool plain = true;  // of the program's own memory, so ibv_rereg_mr may change it
  Dm* dm = nullptr;   // the device memory that it is of
  std::shared_ptr<verbs::ProtectionDomain> domain;
  std::shared_ptr<client::DataPath> data;

  static Mr& from(ibv_mr* mr) { return *reinterpret_cast<Mr*>(mr); }
};
static_assert(offsetof(Mr, ibv) == 0);

// Device memory: shared memory of this process's, which a child of fork() shares.
struct Dm {
  ibv_dm ibv{};
  arena::Segment segment;
  uint64_t length = 0;
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
  ibv_cq ibv{};
  std::shared_ptr<verbs::CompletionQueue> queue;
  std::shared_ptr<client::DataPath> data;
  uint32_t events_handed_out = 0;        // by ibv_get_cq_event; under the channel's lock
  uint32_t async_events_handed_out = 0;  // under ibv.mutex

  static Cq& from(ibv_cq* cq) { return *reinterpret_cast<Cq*>(cq); }
};
static_assert(offsetof(Cq, ibv) == 0);

struct Qp {
  ibv_qp ibv{};
  std::shared_ptr<verbs::QueuePair> queue_pair;
  std::shared_ptr<client::DataPath> data;
  uint32_t async_events_handed_out = 0;  // under ibv.mutex

  static Qp& from(ibv_qp* qp) { return *reinterpret_cast<Qp*>(qp); }
};
static_assert(offsetof(Qp, ibv) == 0);

struct Srq {
  ibv_srq ibv{};
  std::shared_ptr<verbs::SharedReceiveQueue> queue;
  std::shared_ptr<client::DataPath> data;
  uint32_t async_events_handed_out = 0;  // under ibv.mutex

  static Srq& from(ibv_srq* srq) { return *reinterpret_cast<Srq*>(srq); }
};
static_assert(offsetof(Srq, ibv) == 0);

// Fills every operation slot: ours where there is one, else a refusal by that operation's own convention.
void fill_operations(verbs_context& verbs);

// Opens the device for a context that the program closes by ibv_close_device.
[[nodiscard]] base::Result<ibv_context*> open_context(Device& device);
// Drops a reference of the context, and the context with the last.
void release_context(Context& context);
// One more, for an object in it.
void hold_context(Context& context);

}  // namespace verbena::abi
