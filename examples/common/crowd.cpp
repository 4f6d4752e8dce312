#include "common/crowd.hpp"

#include "common/trace.hpp"

namespace examples {

void Crowd::serve(std::function<void()> work) {
  ++started_;
  if (clients_ == 1) return work();
  std::thread thread([this, work = std::move(work)] { work_in_thread(work); });
  if (clients_ == 0)
    thread.detach();
  else
    threads_.push_back(std::move(thread));
}

void Crowd::work_in_thread(const std::function<void()>& work) try {
  work();
} catch (const std::exception& failure) {
  // One client's trouble isn't the other clients'.
  say(name_ + ": " + failure.what());
  ++failed_;
}

void Crowd::finish() {
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  if (failed_ > 0) throw Failure(fmt::format("{} of {} clients failed", failed_.load(), started_));
}

}  // namespace examples
