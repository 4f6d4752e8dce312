// The requester's side of the local path: takes a queue pair's requests to a process of this host.
#pragma once

#include <memory>

#include "local/neighbour.hpp"
#include "verbs/process.hpp"
#include "verbs/request_memory.hpp"
#include "verbs/responder.hpp"
#include "verbs/send_path.hpp"
#include "verbs/xrc_responder.hpp"

namespace verbena::local {

class Exchange;

class LocalPath final : public verbs::SendPath {
 public:
  struct Connection {
    std::shared_ptr<Neighbour> peer;
    base::Qpn target;
    base::Qpn own;
    uint32_t incarnation = 0;
    uint64_t own_gid[2] = {};
    uint32_t domain = 0;            // of our queue pair: guards our own memory
    ibv_qp_type type = IBV_QPT_RC;  // or UC, XRC_SEND
  };
  LocalPath(verbs::Process& process, std::shared_ptr<Exchange> exchange, Connection connection);
  ~LocalPath() override;

  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                           uint64_t budget) override;
  void begin(uint32_t sq_psn) override;
  [[nodiscard]] uint8_t rnr_timer_code() const override;
  [[nodiscard]] bool peer_gone() const override { return connection_.peer->gone(); }
  [[nodiscard]] bool ask_for_receive() override;
  void tell_posted() override;

  // There is but one way between two processes: migration changes what the program sees.
  [[nodiscard]] verbs::PathMigration* migration() override { return &migration_; }
  void load_alternate(const verbs::Alternate&) override { migration_.disarm(); }
  void rearm() override;
  void migrate() override;
  void hear(verbs::MigrationWord word) override;

 private:
  using Slice = verbs::RequestSlice;
  [[nodiscard]] engine::Verdict slice(const verbs::SendRequest& request, uint64_t offset, uint64_t length,
                                      uint32_t access, Slice& out) const;
  // Has the request the right to its own memory?
  [[nodiscard]] bool may_use_own(const verbs::SendRequest& request) const;
  [[nodiscard]] engine::Verdict send(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                     uint64_t budget);
  [[nodiscard]] engine::Verdict write(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                      uint64_t budget);
  [[nodiscard]] engine::Verdict read(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                     uint64_t budget);
  [[nodiscard]] engine::Verdict atomic(const verbs::SendRequest& request, verbs::SendProgress& progress);
  [[nodiscard]] engine::Verdict load_value(const verbs::SendRequest& request, uint64_t& value);
  [[nodiscard]] verbs::SendOutcome end_unanswered(engine::Verdict verdict, const verbs::SendRequest& request,
                                                  verbs::SendProgress& progress);
  [[nodiscard]] engine::Verdict store_result(const verbs::SendRequest& request, uint64_t before);
  void tell(verbs::MigrationWord word);
  // Moves the next pieces of a long transfer by `step`.
  template <typename Step>
  [[nodiscard]] engine::Verdict in_pieces(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                          uint64_t budget, uint32_t access, Step step);

  verbs::Process& process_;
  std::shared_ptr<Exchange> exchange_;
  Connection connection_;
  [[nodiscard]] engine::Verdict run(const verbs::SendRequest& request, verbs::SendProgress& progress,
                                    uint64_t budget);
  [[nodiscard]] engine::Verdict run_at_owner(const engine::AtomicRequest& wanted,
                                             verbs::SendProgress& progress, uint64_t& before);

  std::unique_ptr<verbs::Responder> plain_;
  std::unique_ptr<verbs::XrcResponder> xrc_;  // instead, where each request names a shared queue
  engine::ResponderActions* responder_ = nullptr;
  verbs::PathMigration migration_;
  uint32_t cookie_ = 0;         // of the atomic operation that its owner was asked to run
  base::Instant full_since_{};  // UC: when the peer's ring had no room and hasn't had since
};

// Where nobody is: every request meets silence, which an unreliable connection takes for success.
class SilentPath final : public verbs::SendPath {
 public:
  explicit SilentPath(ibv_qp_type type) : answered_(type != IBV_QPT_UC) {}
  [[nodiscard]] verbs::SendOutcome advance(const verbs::SendRequest&, verbs::SendProgress&,
                                           uint64_t) override {
    if (!answered_) return {verbs::SendOutcome::Kind::kDone};
    return {verbs::SendOutcome::Kind::kSilent, IBV_WC_SUCCESS, engine::Verdict::kSilence};
  }
  void begin(uint32_t) override {}
  [[nodiscard]] uint8_t rnr_timer_code() const override { return 0; }
  [[nodiscard]] bool peer_gone() const override { return false; }
  [[nodiscard]] bool ask_for_receive() override { return true; }
  void tell_posted() override {}

 private:
  bool answered_;  // were somebody there, they would answer
};

}  // namespace verbena::local
