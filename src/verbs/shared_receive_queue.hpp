// A shared receive queue: posted receives that many queue pairs take from, peers in other processes among
// those who claim them (arena/shared_receives.hpp, ADR 0013).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <bitset>
#include <memory>
#include <mutex>
#include <vector>

#include "arena/delivery_ring.hpp"
#include "arena/shared_receives.hpp"
#include "base/lock.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/event_queue.hpp"
#include "verbs/protection_domain.hpp"
#include "verbs/receive_queue.hpp"

namespace verbena::verbs {

class CompletionQueue;
class Process;

// Its lock is the innermost but for the event queue's: queue pairs take from it with a CQ's lock held.
class SharedReceiveQueue {
 public:
  struct Config {
    std::shared_ptr<ProtectionDomain> domain;
    uint32_t max_wr = 1;
    uint32_t max_sge = 1;
    EventQueue* events = nullptr;
    void* element = nullptr;  // what events name: the program's ibv_srq
    // XRC: where its receives complete, and the domain whose target queue pairs take them.
    std::shared_ptr<CompletionQueue> cq = nullptr;
    uint32_t xrcd = 0;
  };
  // EINVAL: sizes that the device doesn't have; ENOMEM.
  [[nodiscard]] static base::Result<std::shared_ptr<SharedReceiveQueue>> create(Process& process,
                                                                                const Config& config);
  ~SharedReceiveQueue();
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  // The program's side; any thread.
  [[nodiscard]] int post(ibv_recv_wr* requests, ibv_recv_wr** bad);
  // EINVAL: more than the device has, or fewer than wait; ENOMEM. All that `mask` says, or nothing.
  [[nodiscard]] base::Result<void> modify(const ibv_srq_attr& wanted, int mask);
  [[nodiscard]] ibv_srq_attr query();
  [[nodiscard]] uint32_t number() const { return base::Qpn::make(slot_, index_).value; }
  [[nodiscard]] uint16_t index() const { return index_; }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] uint32_t life() const { return entry_.life.get(); }
  // XRC: nothing comes any more. Before it is destroyed.
  void close();
  // XRC: the ring through which the keeper delivers. ENOMEM: no room.
  [[nodiscard]] base::Result<void> admit_keeper(base::Slot slot, uint32_t epoch);
  // XRC: the process in that slot delivers here, and may wait for receives.
  void add_sender(base::Slot slot);
  // XRC: a peer's record, with the lock of its CQ held. True: `completion` was written.
  bool on_record(const arena::RingConsumer::Taken& taken, base::Slot from, ibv_wc& completion);

  // Its queue pairs: it can't be destroyed before them.
  void join(base::Qpn queue_pair);
  void leave(base::Qpn queue_pair);
  [[nodiscard]] size_t users();

  // The receive that a message of the process in slot `by` for that queue pair says it took. False: it lies.
  [[nodiscard]] bool find_claimed(uint16_t entry, base::Slot by, base::Qpn queue_pair, ReceiveFront& out);
  // It is completed, and its entry free.
  void consume(uint16_t entry);
  // A queue pair left for ERR or RESET, and peers can see that: what was claimed for it goes back.
  void take_back_from(base::Qpn queue_pair);
  // A process died, and what it had delivered is taken.
  void take_back_from(base::Slot slot);
  // What was given back, or couldn't be taken back at once, goes back into the queue, and who waits for a
  // receive is told. Without any lock.
  void refresh();

 private:
  struct Kept {
    uint64_t wr_id = 0;
    uint32_t number = 0;
    uint16_t next = 0;
    bool waits = false;  // posted, not completed
  };
  SharedReceiveQueue(Process& process, const Config& config, uint16_t index);
  // All below with the lock held.
  [[nodiscard]] base::Result<void> grow(uint32_t entries);
  [[nodiscard]] int post_one(const ibv_recv_wr& request);
  void publish(uint64_t wr_id);
  void put_back(uint16_t entry);
  [[nodiscard]] bool still_accessed(uint16_t entry, base::Slot by) const;
  template <typename Wanted>
  bool take_back_if(Wanted wanted);
  void free_entry(uint16_t entry);
  [[nodiscard]] uint32_t available() const;
  void check_limit();
  // Without it.
  void take_back_rest();
  void tell_waiting();

  Process& process_;
  Config config_;
  uint16_t index_;
  base::Slot slot_;
  arena::SrqEntry& entry_;
  arena::SharedReceives shared_;
  arena::SrqClaims* claims_ = nullptr;

  base::Lock lock_;  // all below
  uint32_t max_wr_ = 0;
  uint32_t limit_ = 0;
  uint32_t outstanding_ = 0;  // posted, not completed
  uint16_t reserve_ = 0;      // the entry that is posted next
  std::vector<Kept> kept_;    // by entry
  std::vector<uint16_t> free_;
  std::vector<base::Qpn> users_;
  std::bitset<256> senders_;             // XRC: slots of those who deliver by the local path
  std::atomic<bool> held_back_ = false;  // something is claimed for who can't use it any more
};

}  // namespace verbena::verbs
