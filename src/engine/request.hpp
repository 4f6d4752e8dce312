// A work request on the wire, and what its requester needs of the process that posted it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/memory_accessor.hpp"
#include "engine/responder_actions.hpp"

namespace verbena::engine {

struct Request {
  enum class Kind : uint8_t { kSend, kWrite, kRead, kCompareSwap, kFetchAdd, kAtomicWrite };
  Kind kind = Kind::kSend;
  bool has_imm = false;
  bool invalidates = false;
  bool solicited = false;
  bool fenced = false;  // waits until earlier READs and atomics have ended
  uint32_t imm = 0;     // or the key to invalidate; host order
  uint32_t key = 0;
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  uint32_t srq = 0;  // XRC: the peer's shared receive queue, which READs and atomics name, too

  // Has an answer of its own. An ATOMIC WRITE's is empty.
  [[nodiscard]] bool fetches() const { return kind >= Kind::kRead; }
  [[nodiscard]] bool returns_word() const { return kind == Kind::kCompareSwap || kind == Kind::kFetchAdd; }
  [[nodiscard]] uint64_t answer_bytes() const { return kind == Kind::kAtomicWrite ? 0 : length; }
  [[nodiscard]] bool consumes_receive() const { return kind == Kind::kSend || has_imm; }
};

enum class RequestStatus : uint8_t {
  kSuccess,
  kLocalProtection,  // our own memory isn't accessible
  kRemoteAccess,
  kRemoteInvalid,
  kRemoteOperational,
  kRetryExceeded,
  kRnrRetryExceeded,
  kBadResponse,
  kLocalLength,  // UD: longer than the MTU
};

// The process behind a requester. Requests are known by their number: 0, 1, 2, … in the order of post().
class RequesterHost {
 public:
  virtual ~RequesterHost() = default;
  // Bytes of a request's own memory. False: not accessible.
  [[nodiscard]] virtual bool gather(uint32_t number, uint64_t offset, std::span<std::byte> into) = 0;
  [[nodiscard]] virtual bool scatter(uint32_t number, uint64_t offset, std::span<const std::byte> from,
                                     Tail tail) = 0;
  // The same for payloads of `each` bytes, as many as there are but not more than `most`; none is the last.
  // How many; 0: it isn't so simple, and scatter() tells.
  [[nodiscard]] virtual size_t scatter_more(uint32_t number, uint64_t offset, size_t each, size_t most,
                                            MorePayloads& payloads) {
    (void)number, (void)offset, (void)each, (void)most, (void)payloads;
    return 0;
  }
  // Where those bytes of a request's own memory lie, fit to be read in this turn of work. Null: it isn't so
  // simple, and gather() tells.
  [[nodiscard]] virtual const std::byte* in_place(uint32_t number, uint64_t offset, size_t length) {
    (void)number, (void)offset, (void)length;
    return nullptr;
  }
  // Once for each request, in order. After the first that isn't kSuccess nothing more is sent or ended.
  virtual void ended(uint32_t number, RequestStatus status) = 0;
  // All retries are used up: is there another path, on which they count anew?
  [[nodiscard]] virtual bool other_path() { return false; }
};

}  // namespace verbena::engine
