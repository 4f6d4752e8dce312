// A queue pair: its life from RESET to ERR, its two queues, and what arrives for it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "base/numbers.hpp"
#include "base/result.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/event_queue.hpp"
#include "verbs/protection_domain.hpp"
#include "verbs/qp_attributes.hpp"
#include "verbs/receive_queue.hpp"
#include "verbs/send_queue.hpp"
#include "verbs/shared_receive_queue.hpp"

namespace verbena::verbs {

class Process;

// Where a connection leads, decided when the queue pair goes to RTR.
struct PathPlan {
  std::unique_ptr<SendPath> path;
  bool peer_known = false;  // else nobody has that address: silence
  base::Slot peer_slot;
  uint32_t peer_epoch = 0;
  uint64_t own_gid[2] = {};
  bool pipelined = false;  // the path takes many requests before the first has ended
};

// Whose path is wanted.
struct PathWish {
  ibv_qp_type type = IBV_QPT_RC;
  base::Qpn own;
  uint32_t incarnation = 0;
  uint32_t domain = 0;
  const ibv_qp_attr& attributes;
};

class PathMaker {
 public:
  virtual ~PathMaker() = default;
  [[nodiscard]] virtual base::Result<PathPlan> plan(const PathWish& wish) = 0;
  // What ibv_modify_qp is checked against; port 1 is the first.
  [[nodiscard]] virtual std::vector<PortFacts> ports() = 0;
  // Where an alternate path leads.
  [[nodiscard]] virtual base::Result<AddressVector> resolve(const ibv_ah_attr&) {
    return base::fail(EOPNOTSUPP, "this device's connections have one path only");
  }
};

// A queue pair of these has no receives of its own: what arrives goes to shared receive queues.
[[nodiscard]] inline bool is_xrc(ibv_qp_type type) {
  return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

class QueuePair : public std::enable_shared_from_this<QueuePair> {
 public:
  struct Config {
    std::shared_ptr<ProtectionDomain> domain;
    std::shared_ptr<CompletionQueue> send_cq;
    std::shared_ptr<CompletionQueue> recv_cq;
    ibv_qp_type type = IBV_QPT_RC;  // or UC, UD, XRC_SEND; in the keeper XRC_RECV
    ibv_qp_cap caps{};              // as asked for
    bool signal_all = false;
    std::shared_ptr<PathMaker> paths;
    EventQueue* events = nullptr;
    void* element = nullptr;  // what events name: the program's ibv_qp; null: the number
    std::shared_ptr<SharedReceiveQueue> srq = nullptr;  // null: it has receives of its own
    uint32_t xrcd = 0;                                  // XRC_RECV: its domain
    QueueAllocator* allocator = nullptr;                // the program's; outlives the queue pair
  };
  // EINVAL: caps that the device doesn't have; ENOMEM.
  [[nodiscard]] static base::Result<std::shared_ptr<QueuePair>> create(Process& process, Config config);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // The program's side; any thread.
  [[nodiscard]] base::Result<void> modify(const ibv_qp_attr& wanted, int mask);
  void query(ibv_qp_attr& attributes);
  // `all`: none is posted if one is refused.
  [[nodiscard]] int post_send(ibv_send_wr* requests, ibv_send_wr** bad, bool all = false);
  // ibv_bind_mw: a window of type 1. `key` is its next one.
  [[nodiscard]] int bind_window(ibv_mw& window, const ibv_mw_bind& bind, uint32_t key);
  [[nodiscard]] int post_recv(ibv_recv_wr* requests, ibv_recv_wr** bad);
  // No completion of it comes any more, and none that waits is kept.
  void destroy();

  [[nodiscard]] base::Qpn number() const { return number_; }
  [[nodiscard]] ibv_qp_type type() const { return config_.type; }
  [[nodiscard]] const ibv_qp_cap& caps() const { return caps_; }
  [[nodiscard]] bool signal_all() const { return config_.signal_all; }
  [[nodiscard]] ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] const Config& config() const { return config_; }
  [[nodiscard]] uint32_t incarnation() const { return incarnation_.load(std::memory_order_relaxed); }
  [[nodiscard]] SendQueue& send_queue() { return *send_; }
  [[nodiscard]] Process& process() { return process_; }

  // A peer's record for it, with the lock of its receive CQ held. True: `completion` was written. `failed`:
  // fail_as_responder() is due once that lock is given back.
  bool on_record(const arena::RingConsumer::Taken& taken, base::Slot from, ibv_wc& completion, bool& failed);
  [[nodiscard]] bool receives_at(const CompletionQueue& queue, base::Slot peer) const {
    return config_.recv_cq.get() == &queue && peer_slot_.load(std::memory_order_relaxed) == peer.value;
  }
  // A completion that waited was taken by the program, with the lock of its CQ held.
  void on_polled(const ibv_wc& completion) {
    if ((completion.opcode & IBV_WC_RECV) == 0)
      send_->polled();
    else if (completion.status == IBV_WC_WR_FLUSH_ERR)
      flushed_.fetch_sub(1, std::memory_order_relaxed);
  }
  // The peer may have asked to be told when it can go on.
  void tell_waiting();
  void fail_as_responder();
  void fail_as_requester(uint32_t life);  // the incarnation whose request failed
  // fail_as_requester() will follow. Who sees the completion and asks for the state finds ERR all the same.
  void expect_failure(uint32_t life) { expected_failure_.store(uint64_t{life} + 1); }
  void fail_for_overrun();
  void on_drained();
  // Its device's port lost its link: an armed connection on it migrates.
  void on_port_down(unsigned port);
  // The peer said so by letter, in that life of ours.
  void on_migration_word(MigrationWord word, uint32_t life);
  // Receives that use the key can't be trusted by peers any longer: they look at each.
  void withdraw_promise(uint32_t key);

 private:
  QueuePair(Process& process, Config config, base::Qpn number);
  [[nodiscard]] int send_slack() const {
    return static_cast<int>(send_->limits().requests) - static_cast<int>(config_.caps.max_send_wr);
  }
  void publish(ibv_qp_state state);
  void announce(ibv_qp_state state);
  void enter_error();                // with modify_mutex_ held
  void enter_send_error();           // the same, for a failed request
  void conclude_expected_failure();  // with modify_mutex_ held
  void enter_reset();
  void flush_receives_locked();  // with the receive CQ's lock held
  [[nodiscard]] base::Result<void> connect(const ibv_qp_attr& attributes);
  void raise(ibv_event_type type);
  void change_migration(int mask, const ibv_qp_attr& wanted);  // with modify_mutex_ held
  void follow_migration();                                     // the same
  [[nodiscard]] RetryRules rules() const;
  void describe_datagram(const arena::RingConsumer::Taken& taken, ibv_wc& completion) const;
  bool fail_receive(const ReceiveFront& front, ibv_wc& completion, ibv_wc_status status, engine::Verdict why,
                    bool& failed);
  bool on_failure(const arena::Record& record, const ReceiveFront* front, ibv_wc& completion, bool& failed);
  // The receive that a record is for. False: there is none.
  [[nodiscard]] bool find_receive(const arena::Record& record, base::Slot from, ReceiveFront& front);
  void pop_receive(const ReceiveFront& front);
  bool note_failure(engine::Verdict why, bool completed);
  [[nodiscard]] bool may_fail() const { return state() != IBV_QPS_ERR && state() != IBV_QPS_RESET; }

  Process& process_;
  Config config_;
  base::Qpn number_;
  ibv_qp_cap caps_{};
  arena::QpEntry& entry_;
  std::shared_ptr<SendQueue> send_;
  std::unique_ptr<ReceiveQueue> receive_;  // null: they are shared, or it is XRC's

  std::mutex modify_mutex_;  // transitions, and all below
  QpAttributes attributes_;
  std::atomic<ibv_qp_state> state_ = IBV_QPS_RESET;
  std::atomic<uint32_t> incarnation_ = 1;
  uint32_t version_ = 0;
  PathPlan plan_;
  uint32_t migrations_ = 0;  // of the path, as far as attributes_ know
  ibv_gid peer_gid_{};       // when connected: by it peers know each other, whatever paths they take since
  InboundRing ring_;
  std::atomic<uint8_t> peer_slot_ = 0;  // 0: nobody
  bool destroyed_ = false;
  std::atomic<bool> tells_drained_ = false;  // en_sqd_async_notify

  std::atomic<uint64_t> expected_failure_ = 0;  // an incarnation, plus one; 0: none
  std::atomic<uint32_t> flushed_ = 0;           // receives whose flush the program hasn't polled

  // With the receive CQ's lock held.
  std::atomic<bool> failing_ = false;  // a record failed it, in this life
  bool established_ = false;
  engine::Verdict failure_ = engine::Verdict::kDone;
  bool failure_completed_ = false;  // a receive's completion tells of it, so no event does
};

}  // namespace verbena::verbs
