// What ibv_wr_start to ibv_wr_complete collect: plain work requests, which then go the way of ibv_post_send.
// So an operation has one meaning however it was posted (P4).
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/lock.hpp"

namespace verbena::abi {

// Nothing is allocated once it has held as much as the program ever posts together.
class RequestBuilder {
 public:
  RequestBuilder(uint32_t most_pieces, uint32_t most_inline_bytes)
      : most_pieces_(most_pieces), most_inline_bytes_(most_inline_bytes) {}

  // From ibv_wr_start to complete or abort.
  base::Lock lock;

  void begin() {
    requests_.clear();
    pieces_.clear();
    inline_.clear();
    error_ = 0;
  }
  // The first thing that was wrong counts; nothing is posted then.
  void refuse(int error) {
    if (error_ == 0) error_ = error;
  }
  [[nodiscard]] int error() const { return error_; }

  // The next request, without data so far.
  ibv_send_wr& add(uint64_t wr_id, ibv_wr_opcode opcode, unsigned flags) {
    ibv_send_wr& made = requests_.emplace_back().wr;
    made = {};
    made.wr_id = wr_id;
    made.opcode = opcode;
    made.send_flags = flags & ~static_cast<unsigned>(IBV_SEND_INLINE);  // a data setter says that
    return made;
  }
  // The one that a setter is about; null: there is none yet.
  [[nodiscard]] ibv_send_wr* last() { return requests_.empty() ? nullptr : &requests_.back().wr; }

  void set_pieces(const ibv_sge* list, size_t count) {
    if (requests_.empty() || count > most_pieces_) return refuse(EINVAL);
    requests_.back().data = pieces_.size();
    requests_.back().wr.num_sge = static_cast<int>(count);
    requests_.back().wr.send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);  // the last setter counts
    pieces_.insert(pieces_.end(), list, list + count);
  }
  // Copied now: the program may reuse its buffers at once.
  void set_inline(const ibv_data_buf* list, size_t count) {
    if (requests_.empty()) return refuse(EINVAL);
    size_t length = 0;
    for (size_t i = 0; i < count; ++i) {
      if (list[i].length > most_inline_bytes_ - length) return refuse(EINVAL);
      length += list[i].length;
    }
    Request& request = requests_.back();
    request.data = inline_.size();
    request.inline_bytes = {.addr = 0, .length = static_cast<uint32_t>(length), .lkey = 0};
    request.wr.num_sge = 1;
    request.wr.send_flags |= IBV_SEND_INLINE;
    for (size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(list[i].addr);
      inline_.insert(inline_.end(), from, from + list[i].length);
    }
  }

  // All of them, linked. Null: none.
  [[nodiscard]] ibv_send_wr* linked() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      request.wr.next = i + 1 < requests_.size() ? &requests_[i + 1].wr : nullptr;
      if ((request.wr.send_flags & IBV_SEND_INLINE) != 0) {
        request.inline_bytes.addr = reinterpret_cast<uint64_t>(inline_.data() + request.data);
        request.wr.sg_list = &request.inline_bytes;
      } else {
        request.wr.sg_list = pieces_.data() + request.data;
      }
    }
    return requests_.empty() ? nullptr : &requests_.front().wr;
  }

 private:
  struct Request {
    ibv_send_wr wr;
    size_t data = 0;  // where its pieces begin, or its inline bytes
    ibv_sge inline_bytes{};
  };
  uint32_t most_pieces_;
  uint32_t most_inline_bytes_;
  int error_ = 0;
  std::vector<Request> requests_;
  std::vector<ibv_sge> pieces_;
  std::vector<std::byte> inline_;
};

}  // namespace verbena::abi
