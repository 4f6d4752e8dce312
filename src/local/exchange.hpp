// The letters between this process and its neighbours: atomic operations that only a memory's owner can run,
// their answers, and news of posted receives.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "arena/inbox.hpp"
#include "engine/responder_actions.hpp"
#include "local/neighbour.hpp"
#include "verbs/process.hpp"

namespace verbena::local {

// Any thread may call. Letters are read by whoever polls, or by the helper thread.
class Exchange final : public verbs::Postman {
 public:
  Exchange(verbs::Process& process, std::shared_ptr<Self> self);

  [[nodiscard]] Self& self() { return *self_; }
  void meet(const std::shared_ptr<Neighbour>& neighbour);
  [[nodiscard]] std::shared_ptr<Neighbour> neighbour(base::Slot slot);
  [[nodiscard]] std::vector<std::shared_ptr<Neighbour>> neighbours();
  void part(const Neighbour& neighbour);

  // Asks `peer` to run an atomic operation; the cookie for its answer, 0: no room for more now.
  [[nodiscard]] uint32_t ask(Neighbour& peer, base::Qpn own, base::Qpn target, uint32_t incarnation,
                             const engine::AtomicRequest& request);
  // The same for any question; the cookie in `letter` is ours to choose.
  [[nodiscard]] uint32_t ask(Neighbour& peer, base::Qpn own, arena::Letter letter);
  // kAsk: not there yet. Otherwise the cookie is used up.
  [[nodiscard]] engine::Verdict answer(uint32_t cookie, uint64_t& before);
  [[nodiscard]] engine::Verdict answer(uint32_t cookie, arena::Letter& letter);
  void forget(uint32_t cookie, Neighbour& peer);

  // Who meets a process that isn't known yet; null where it can't be.
  using Introducer = std::function<std::shared_ptr<Neighbour>(base::Slot)>;
  void set_introducer(Introducer introducer) { introducer_ = std::move(introducer); }
  [[nodiscard]] std::shared_ptr<Neighbour> introduce(base::Slot slot) {
    return introducer_ ? introducer_(slot) : nullptr;
  }
  void tell_posted(uint32_t srq, const std::bitset<256>& slots) override;
  void wake_resting_helper() override { self_->wake_resting_helper(); }

  [[nodiscard]] bool has_letters() const override {
    const auto& letters = process_.arena().rings_head().letters;
    return (letters[0].get() | letters[1].get() | letters[2].get() | letters[3].get()) != 0;
  }
  bool read_letters() override;

 private:
  struct Question {
    base::Qpn own;
    std::shared_ptr<Neighbour> peer;
    bool answered = false;
    engine::Verdict verdict = engine::Verdict::kAsk;
    arena::Letter letter;
  };
  void on_letter(base::Slot from, const arena::Letter& letter);
  void on_atomic(base::Slot from, const arena::Letter& letter);
  void on_answer(base::Slot from, const arena::Letter& letter);
  [[nodiscard]] engine::Verdict run(base::Slot from, const arena::Letter& letter, uint64_t& before);
  // Who may do that, in that protection domain.
  [[nodiscard]] engine::Verdict run(const arena::Letter& letter, uint32_t domain, uint64_t& before);
  void on_open_lane(base::Slot from, const arena::Letter& letter);
  void on_shared_posted();
  void on_migration(base::Slot from, const arena::Letter& letter);
  void resume_sends(uint32_t qpn);

  verbs::Process& process_;
  std::shared_ptr<Self> self_;
  Introducer introducer_;
  std::mutex reading_;  // one reader at a time; whoever finds it taken goes on
  std::array<arena::InboxReader, 256> inboxes_;
  std::mutex mutex_;  // all below
  std::array<std::shared_ptr<Neighbour>, 256> neighbours_;
  std::map<uint32_t, Question> questions_;
  uint32_t last_cookie_ = 0;
};

}  // namespace verbena::local
