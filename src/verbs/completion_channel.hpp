// A completion channel: a pipe whose reading end the program polls, and into which whoever completes writes
// the name of the queue; peers open the writing end themselves (one wake, not two).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::verbs {

class CompletionChannel {
 public:
  [[nodiscard]] static base::Result<std::unique_ptr<CompletionChannel>> create();

  // Readable while events wait; the program may set O_NONBLOCK on it. -1 once it closed it.
  [[nodiscard]] int fd() const { return reading_.get(); }
  [[nodiscard]] int writing_fd() const { return writing_.get(); }
  [[nodiscard]] uint64_t inode() const { return inode_; }

  // A name for a queue; what is written under a name that nobody has is ignored.
  [[nodiscard]] uint32_t join(void* queue);
  void leave(uint32_t token);
  void ring(uint32_t token) const { ring(writing_.get(), token); }
  static void ring(int fd, uint32_t token);

  // The queue of the next event. EAGAIN where the descriptor is O_NONBLOCK and nothing waits. `count` runs
  // with the channel's lock held, so that no event is handed out of a queue that has left.
  template <typename Count>
  [[nodiscard]] base::Result<void*> take(Count count) {
    for (;;) {
      const auto token = read_token();
      if (!token) return std::unexpected(token.error());
      const std::lock_guard lock(mutex_);
      if (const auto found = queues_.find(*token); found != queues_.end()) {
        count(found->second);
        return found->second;
      }
    }
  }

 private:
  CompletionChannel(base::UniqueFd reading, base::UniqueFd writing, uint64_t inode)
      : reading_(std::move(reading)), writing_(std::move(writing)), inode_(inode) {}
  [[nodiscard]] base::Result<uint32_t> read_token() const;

  base::GuardedFd reading_;
  base::GuardedFd writing_;
  uint64_t inode_;
  std::mutex mutex_;
  std::map<uint32_t, void*> queues_;
  uint32_t last_token_ = 0;
};

}  // namespace verbena::verbs
