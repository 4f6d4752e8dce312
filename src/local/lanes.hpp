// How XRC requests find the process whose shared receive queue they name, and the ring into it.
#pragma once

#include <functional>
#include <memory>

#include "local/exchange.hpp"
#include "verbs/xrc_responder.hpp"

namespace verbena::local {

// Of one connection. Its owner may be ourselves.
class Lanes final : public verbs::LaneFinder {
 public:
  enum class Role : uint8_t {
    kRequester,  // the local path's: owners are met as they are named, and make a ring when asked
    kKeeper,     // the wire's, in the keeper: owners have come and made their ring
  };
  // `own`: the queue pair that is resumed when an answer comes.
  Lanes(verbs::Process& process, std::shared_ptr<Exchange> exchange, Role role, base::Qpn own)
      : process_(process), exchange_(std::move(exchange)), role_(role), own_(own) {}
  ~Lanes() override;

  [[nodiscard]] engine::Verdict find(uint32_t srq, verbs::SharedTarget& out) override;
  [[nodiscard]] engine::Verdict run_atomic(const verbs::SharedTarget& lane,
                                           const engine::AtomicRequest& request, uint64_t& before) override;

 private:
  // What an owner was asked, once at a time.
  struct Question {
    uint32_t cookie = 0;  // 0: none
    uint32_t srq = 0;
    std::shared_ptr<Neighbour> owner;
    engine::AtomicRequest atomic;
  };
  [[nodiscard]] engine::Verdict answer(Question& question, arena::Letter& letter);
  void forget(Question& question);
  [[nodiscard]] engine::Verdict find_own(uint32_t srq, verbs::SharedTarget& out);
  [[nodiscard]] static engine::Verdict take_ring(Neighbour& owner, const arena::Letter& letter,
                                                 verbs::SharedTarget& out);

  verbs::Process& process_;
  std::shared_ptr<Exchange> exchange_;
  Role role_;
  base::Qpn own_;
  Question ring_;
  Question atomic_;
};

}  // namespace verbena::local
