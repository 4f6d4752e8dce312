// A send queue over a path that answers as a test says, with time as the test says.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <string>
#include <thread>

#include "responder_script.hpp"
#include "verbs/send_queue.hpp"

namespace verbena::verbs {

using base::Instant;
using engine::Verdict;
using Kind = SendOutcome::Kind;

inline constexpr Instant kStart{1'000'000'000};
inline constexpr base::Duration kTimeout = base::milliseconds(100);
inline constexpr uint8_t kRnrCode = 20;  // 10.24 ms
inline constexpr base::Duration kRnr = rnr_timer(kRnrCode);

// Answers as a test says, "done" when that is used up; keeps what it was asked.
struct ScriptedPath final : SendPath {
  [[nodiscard]] SendOutcome advance(const SendRequest& request, SendProgress& progress,
                                    uint64_t budget) override {
    tried.push_back(request.wr_id);
    budgets.push_back(budget);
    if (request.inline_data != nullptr)
      inline_seen.assign(reinterpret_cast<const char*>(request.inline_data), request.length);
    if (request.inline_data == nullptr && request.piece_count > 0) first_piece = request.pieces[0];
    if (blocks) {
      inside = true;
      while (blocks) std::this_thread::yield();
    }
    if (!answers.empty()) {
      const SendOutcome answer = answers.front();
      answers.pop_front();
      if (answer.kind == Kind::kMore) progress.done += budget;
      return answer;
    }
    if (always.kind != Kind::kDone) return always;
    progress.done = request.length;
    return {};
  }
  void begin(uint32_t) override {}
  [[nodiscard]] uint8_t rnr_timer_code() const override { return kRnrCode; }
  [[nodiscard]] bool peer_gone() const override { return gone; }
  [[nodiscard]] bool ask_for_receive() override {
    ++asked;
    return !receive_there;
  }
  bool receive_there = false;
  void tell_posted() override {}

  std::deque<SendOutcome> answers;
  SendOutcome always;
  std::vector<uint64_t> tried;
  std::vector<uint64_t> budgets;
  std::string inline_seen;
  ibv_sge first_piece{};
  bool gone = false;
  unsigned asked = 0;
  std::atomic<bool> blocks = false;
  std::atomic<bool> inside = false;
};

inline ibv_send_wr send(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
  return {.wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = flags};
}

class SendQueueTest : public testing::Test {
 protected:
  SendQueueTest() {
    queue_->set_path(&path_);
    queue_->set_rules({.timeout = kTimeout, .retries = 2, .rnr_retries = 2, .fetches = 1});
    queue_->set_state(SendState::kRuns);
  }
  ~SendQueueTest() override {
    queue_->close();
    qp_->destroy();
  }
  [[nodiscard]] std::shared_ptr<SendQueue> make_queue(QueuePair& owner, const SendLimits& limits,
                                                      bool signal_all = false) {
    auto storage = QueueMemory::make(nullptr, SendQueue::storage_size(limits), QueueUse::kSendQueue);
    return std::make_shared<SendQueue>(owner, cq_, list_, limits, signal_all, std::move(*storage));
  }
  [[nodiscard]] int post(ibv_send_wr request) { return queue_->post(&request, nullptr); }
  // In the queue, and not tried yet: a test then says what time it is.
  void wait_in_queue(std::initializer_list<uint64_t> numbers) {
    queue_->set_state(SendState::kHolds);
    for (const uint64_t wr_id : numbers) EXPECT_EQ(0, post(send(wr_id)));
    queue_->set_state(SendState::kRuns);
    EXPECT_TRUE(path_.tried.empty());
  }
  // Until nothing is left to do at this time.
  void finish(Instant now = kStart) {
    for (Instant due = now; due <= now;) due = queue_->go_on(now);
  }
  // "7" a success, "7!12" status 12.
  [[nodiscard]] std::string completions() {
    std::string text;
    for (const ibv_wc& completion : poll_all(*cq_)) {
      text += (text.empty() ? "" : " ") + std::to_string(completion.wr_id);
      if (completion.status != IBV_WC_SUCCESS) text += "!" + std::to_string(completion.status);
      EXPECT_EQ(qp_->number().value, completion.qp_num);
      queue_->polled();  // the queue pair has another send queue, which is told
    }
    return text;
  }

  OwnerProcess owner_;
  std::shared_ptr<CompletionQueue> cq_ = owner_.make_cq(1000);
  std::shared_ptr<QueuePair> qp_ = owner_.make_qp(cq_, {});
  WorkList list_;
  ScriptedPath path_;
  std::shared_ptr<SendQueue> queue_ = make_queue(*qp_, {.requests = 16, .pieces = 2, .inline_bytes = 64});
};

inline constexpr SendOutcome kSilent{Kind::kSilent, IBV_WC_SUCCESS, Verdict::kSilence};
inline constexpr SendOutcome kNotReady{Kind::kNotReady, IBV_WC_SUCCESS, Verdict::kNotReady};
inline constexpr SendOutcome kMore{Kind::kMore};
inline constexpr SendOutcome kRefused{Kind::kFailed, IBV_WC_REM_ACCESS_ERR, Verdict::kBadKey};

}  // namespace verbena::verbs
