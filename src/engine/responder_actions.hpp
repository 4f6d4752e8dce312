// The responder's actions (DESIGN 2): what a request does to the process it is addressed to. Written once, in
// verbs/, over that process's arena; driven by the local path for a peer and by the wire path for ourselves.
#pragma once

#include <cstdint>
#include <span>

#include "base/numbers.hpp"
#include "engine/memory_accessor.hpp"
#include "engine/more_payloads.hpp"

namespace verbena::engine {

// How an action ended. From kBadKey on the request is at fault: the responder's queue pair fails with it, and
// the requester is told by a NAK or what stands for one.
enum class Verdict : uint8_t {
  kDone,
  kSilence,    // nobody who would answer: no such queue pair, not ready, not connected to us, gone
  kNotReady,   // no receive is posted: RNR
  kNoRoom,     // the owner hasn't taken earlier messages out of its ring: try again
  kAsk,        // only the owner's own process can do it: ask it
  kFaultHere,  // the requester's own memory isn't accessible
  kBadKey,
  kBadBounds,
  kNoAccess,        // the region doesn't allow it
  kWrongDomain,     // the region is in another protection domain than the queue pair
  kUnmapped,        // registered, but the memory isn't there any longer
  kNotEnabled,      // the queue pair doesn't allow this operation
  kMisaligned,      // an atomic operation's address
  kBadSequence,     // a packet that can't follow the one before it, or has a length that none may have
  kTooLong,         // the message is longer than the receive
  kBadReceive,      // the receive's own memory is at fault
  kCorrupt,         // what the owner's tables say can't be
  kWrongQueuePair,  // the window is open to another queue pair
  kNotWindow,       // the key to bind or invalidate isn't one of a window of the right type
  kBound,           // the window is bound, and must be invalidated first
  kNoSharedQueue,   // XRC: the request names no shared receive queue of the connection's domain
};
inline constexpr Verdict kLastVerdict = Verdict::kNoSharedQueue;

// What the requester's completion says of it (IBA 9.7.5.2.8: NAK codes).
enum class Nak : uint8_t { kNone, kRemoteAccess, kInvalidRequest, kOperational };

[[nodiscard]] constexpr Nak nak_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBadKey:
    case Verdict::kBadBounds:
    case Verdict::kNoAccess:
    case Verdict::kWrongDomain:
    case Verdict::kUnmapped:
    case Verdict::kWrongQueuePair:
    case Verdict::kNotWindow:
      return Nak::kRemoteAccess;
    case Verdict::kNotEnabled:
    case Verdict::kMisaligned:
    case Verdict::kBadSequence:
    case Verdict::kTooLong:
    case Verdict::kNoSharedQueue:
      return Nak::kInvalidRequest;
    case Verdict::kBadReceive:
    case Verdict::kCorrupt:
      return Nak::kOperational;
    default:
      return Nak::kNone;
  }
}

enum class RemoteUse : uint8_t { kRead, kWrite, kAtomic };

struct RemoteRange {
  uint32_t key = 0;
  uint64_t address = 0;
  uint64_t length = 0;
};

// kWrite: an ATOMIC WRITE, 8 bytes that nobody sees in part; it needs the right to write.
enum class AtomicKind : uint32_t { kCompareSwap = 1, kFetchAdd = 2, kWrite = 3 };
struct AtomicRequest {
  AtomicKind kind{};
  uint32_t key = 0;
  uint64_t address = 0;
  uint64_t first = 0;   // compare, or what to add or write
  uint64_t second = 0;  // swap
};

// What the receiver's completion will say.
struct Arrival {
  enum class Kind : uint8_t { kSend, kWriteImm } kind = Kind::kSend;
  uint64_t length = 0;
  bool has_imm = false;
  bool solicited = false;
  uint32_t imm = 0;          // network byte order; or the key to invalidate, in host order
  base::Qpn source;          // of a datagram
  bool invalidates = false;  // a window of the receiver's
};

// Of one queue pair, called by one requester in the order of its requests. A long message comes in pieces:
// begin_receive, place as often as needed, finish_receive; a short one in one deliver.
class ResponderActions {
 public:
  virtual ~ResponderActions() = default;

  // XRC only: whose receives, memory and domain the actions that follow are about. Called before each message
  // and whenever the engine turns to another one's queue: a READ may be answered in the middle of a message
  // for another queue, which goes on afterwards. So a receive that was begun belongs to its queue. If it
  // isn't kDone, no action follows but fail(), which then consumes no receive.
  [[nodiscard]] virtual Verdict aim(uint32_t srq) {
    (void)srq;
    return Verdict::kNoSharedQueue;
  }

  // Key, bounds, access, domain of a whole range, before its first byte moves. An empty range isn't looked at
  // (IBA 9.7.4.1.5: no R_Key check for zero-length requests).
  [[nodiscard]] virtual Verdict check(const RemoteRange& range, RemoteUse use) = 0;
  // Bytes of a range; checks it anew, since the owner may deregister between two pieces.
  [[nodiscard]] virtual Verdict write(const RemoteRange& range, std::span<const iovec> from, Tail tail) = 0;
  [[nodiscard]] virtual Verdict read(const RemoteRange& range, std::span<const iovec> into, Tail tail) = 0;
  // The same for payloads of `each` bytes, as many as there are and the range has room for. How many; 0: it
  // isn't so simple, and write() tells.
  [[nodiscard]] virtual size_t write_more(const RemoteRange& range, size_t each, Tail tail,
                                          MorePayloads& payloads) {
    (void)range, (void)each, (void)tail, (void)payloads;
    return 0;
  }
  // Where a range lies, fit to be read in this turn of work. Null: it isn't so simple, and read() tells.
  [[nodiscard]] virtual const std::byte* in_place(const RemoteRange& range) {
    (void)range;
    return nullptr;
  }
  // kAsk: allowed, but only the owner's own process can run it.
  [[nodiscard]] virtual Verdict atomic(const AtomicRequest& request, uint64_t& before) = 0;

  // Is there a receive for this message? Nothing is consumed yet.
  [[nodiscard]] virtual Verdict begin_receive(const Arrival& arrival) = 0;
  [[nodiscard]] virtual Verdict place(uint64_t offset, std::span<const iovec> from, Tail tail) = 0;
  // As write_more(), but where there is no room for one more in the receive place() tells, too.
  [[nodiscard]] virtual size_t place_more(uint64_t offset, size_t each, MorePayloads& payloads) {
    (void)offset, (void)each, (void)payloads;
    return 0;
  }
  // Consumes the receive and completes it.
  [[nodiscard]] virtual Verdict finish_receive(const Arrival& arrival) = 0;
  [[nodiscard]] virtual Verdict deliver(const Arrival& arrival, std::span<const iovec> from) = 0;

  // Unreliable connections: the message at hand ends here, unfinished. Its receive is for another one.
  virtual void abandon_receive() {}

  // Receives that are posted and not consumed; UINT32_MAX: not told. XRC never asks.
  [[nodiscard]] virtual uint32_t credits() = 0;

  // The responder's side of a failed request: its queue pair goes to ERR, with the completion or the event
  // that belongs to it. XRC: a receive is consumed of the queue aimed at. kNoRoom: call again.
  [[nodiscard]] virtual Verdict fail(Verdict why, bool consumes_receive) = 0;
};

// What a datagram does: less, and to a queue pair that isn't connected. Whoever implements it knows the
// packet's addresses, and so its GRH.
class DatagramActions {
 public:
  virtual ~DatagramActions() = default;
  // Places the 40 bytes of the GRH and then these into a receive, consumes and completes it; arrival.length
  // is without the GRH. kNotReady and kTooLong (with the GRH): the datagram is lost, and nothing consumed.
  [[nodiscard]] virtual Verdict deliver(const Arrival& arrival, std::span<const iovec> from) = 0;
  // As in ResponderActions: the receive's own memory is at fault.
  [[nodiscard]] virtual Verdict fail(Verdict why) = 0;
};

}  // namespace verbena::engine
