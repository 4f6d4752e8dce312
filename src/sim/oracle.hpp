// What went wrong in a run, if anything did: the first thing is kept, since the rest follows from it.
#pragma once

#include <string>
#include <utility>

namespace verbena::sim {

class Oracle {
 public:
  void wrong(std::string what) {
    if (what_.empty()) what_ = std::move(what);
  }
  [[nodiscard]] bool content() const { return what_.empty(); }
  [[nodiscard]] const std::string& what() const { return what_; }

 private:
  std::string what_;
};

}  // namespace verbena::sim
