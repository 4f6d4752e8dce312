// The way a queue pair's requests go: to a process of this host (local/), or onto the wire.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/numbers.hpp"
#include "base/time.hpp"
#include "engine/responder_actions.hpp"
#include "verbs/address_handle.hpp"
#include "verbs/path_migration.hpp"

namespace verbena::verbs {

// A work request as it is executed; what it points to stays until it has ended.
struct SendRequest {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = 0;  // ibv_send_flags
  uint32_t imm = 0;    // network byte order; *_INV: the key, in host order; BIND_MW: the window's type
  uint64_t length = 0;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;  // BIND_MW: the window's length
  uint64_t swap = 0;         // BIND_MW: the region's key and, below it, the access flags
  const ibv_sge* pieces = nullptr;
  unsigned piece_count = 0;
  const std::byte* inline_data = nullptr;  // instead of pieces
  const Datagram* datagram = nullptr;      // UD: to whom
  uint32_t srq = 0;                        // XRC: number of the peer's shared receive queue
};

[[nodiscard]] inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// Results come back: a READ or atomic. Its own memory is written.
[[nodiscard]] inline bool is_fetch(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

// What the send queue does by itself, in its turn: nothing of it goes to a peer.
[[nodiscard]] inline bool stays_here(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

// How far the request at the queue's head has come.
struct SendProgress {
  uint64_t done = 0;
  bool checked = false;  // target and receive were looked at
  bool asked = false;    // an atomic operation's owner was
  bool failing = false;  // the responder must still be told of `why`
  engine::Verdict why = engine::Verdict::kDone;
  // Something of it has happened, or may have: a queue that is drained ends it.
  [[nodiscard]] bool begun() const { return done > 0 || asked; }
};

struct SendOutcome {
  enum class Kind : uint8_t {
    kDone,
    kMore,      // the piece that one call may copy is used up
    kNotReady,  // no receive: RNR
    kSilent,    // no answer: counts towards the transport's retries
    kTaken,     // on its way; the path tells its end by SendQueue::ended()
    kFull,      // the path has as many under way as it takes
    kFailed,    // `status` ends it
  };
  Kind kind = Kind::kDone;
  ibv_wc_status status = IBV_WC_SUCCESS;
  engine::Verdict why = engine::Verdict::kDone;
};

// Retries as ibv_modify_qp set them.
struct RetryRules {
  base::Duration timeout{};  // zero: wait for ever
  unsigned retries = 0;
  unsigned rnr_retries = 0;  // 7: for ever
  unsigned fetches = 0;      // max_rd_atomic: READs and atomics that may be under way
  uint32_t qkey = 0;         // UD
};

// A connection's other path.
struct Alternate {
  AddressVector vector;
  base::Duration timeout{};  // alt_timeout; zero: wait for ever
};

// What the ends of a connection tell each other about migration where no packet does.
enum class MigrationWord : uint32_t { kRearmed = 1, kArmed, kMigrated };

class SendQueue;

class SendPath {
 public:
  virtual ~SendPath() = default;
  // One requester at a time, requests in order. Copies at most `budget` bytes.
  [[nodiscard]] virtual SendOutcome advance(const SendRequest& request, SendProgress& progress,
                                            uint64_t budget) = 0;
  // The first request's PSN is known from RTS on.
  virtual void begin(uint32_t sq_psn) = 0;
  [[nodiscard]] virtual uint8_t rnr_timer_code() const = 0;
  // Nobody will ever answer.
  [[nodiscard]] virtual bool peer_gone() const = 0;
  // Before a wait: have ourselves called when a receive is posted, or a ring has room again. False: a receive
  // is there already.
  [[nodiscard]] virtual bool ask_for_receive() = 0;
  // A receive was posted, or a ring emptied: tells the peer if it waits.
  virtual void tell_posted() = 0;

  // For a path that has many requests under way (kTaken). All but the first with the queue's lock held.
  virtual void serve(const std::shared_ptr<SendQueue>&) {}
  virtual void set_rules(const RetryRules&) {}
  // The send queue has carried a request out by itself. All before it had ended.
  virtual void pass_over() {}
  // Requests were handed over: sends what may be sent now.
  virtual void push() {}
  // ERR or RESET: nothing of what was taken ends any more.
  virtual void stop() {}
  // SQE is over: what is posted from now on is sent.
  virtual void resume() {}

  // Path migration; with the queue pair's modify mutex held. Null: it has none.
  [[nodiscard]] virtual PathMigration* migration() { return nullptr; }
  virtual void load_alternate(const Alternate&) {}
  virtual void rearm() {}
  // To the other path, if it is armed.
  virtual void migrate() {}
  virtual void hear(MigrationWord) {}
};

}  // namespace verbena::verbs
