// One end of a reliable connection as a program holds it: device, domain, completion queues, queue pair and
// buffers, through the public C API only. Arguments and results are plain bytes, so that an end in another
// process can be driven in the same way (stage.hpp).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>

#include "memory.hpp"

namespace verbena::rc {

using Wait = std::chrono::milliseconds;
// Told to use the network though the peer is on this host: some things are only possible without it.
[[nodiscard]] inline bool over_wire() {
  const char* path = std::getenv("VERBENA_PATH");
  return path != nullptr && std::string_view(path) == "wire";
}

inline constexpr Wait kSoon{10'000};  // for what must come: a loaded machine under a sanitizer is slow
inline constexpr Wait kMoment{40};    // for what must not come
inline constexpr Wait kNow{0};

inline constexpr int kAllRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | kAllRemote;

struct EndpointSpec {
  ibv_qp_cap caps{
      .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 32, .max_recv_sge = 32, .max_inline_data = 256};
  int send_cqe = 256;
  int recv_cqe = 256;
  bool channel = false;  // one for both queues
  bool signal_all = false;
  bool one_queue = false;  // sends and receives complete into the same one
};

// What a connection is told by ibv_modify_qp. The defaults work; tests spoil one field.
struct Link {
  ibv_gid peer{};
  uint32_t peer_qpn = 0;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  unsigned access = kAllRemote;
  uint8_t timeout = 18;  // 1.07 s
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint8_t max_rd_atomic = 16;
  uint8_t max_dest_rd_atomic = 16;
};

struct Address {
  ibv_gid gid{};
  uint32_t qpn = 0;
};

struct Buffer {
  uint32_t id = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint32_t error = 0;  // errno of the registration
  uint64_t address = 0;
  uint64_t length = 0;

  [[nodiscard]] ibv_sge piece(uint64_t offset, uint64_t size) const {
    return {address + offset, static_cast<uint32_t>(size), lkey};
  }
  [[nodiscard]] ibv_sge all() const { return piece(0, length); }
};

struct BufferSpec {
  uint64_t length = 4096;
  int access = kAllAccess;
  Backing backing = Backing::kPrivate;
  bool other_domain = false;  // registered in a protection domain that isn't the queue pair's
};

struct Pieces {
  uint32_t count = 0;
  std::array<ibv_sge, 32> list{};

  Pieces() = default;
  Pieces(std::initializer_list<ibv_sge> pieces) {
    for (const auto& piece : pieces) add(piece);
  }
  void add(const ibv_sge& piece) { list.at(count++) = piece; }
};

struct SendOrder {
  uint64_t wr_id = 1;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t imm = 0;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  Pieces pieces{};
};
struct ReceiveOrder {
  uint64_t wr_id = 0;
  Pieces pieces{};
};
// Posted as one list.
template <typename Order>
struct Orders {
  uint32_t count = 0;
  std::array<Order, 8> list{};

  Orders() = default;
  Orders(std::initializer_list<Order> orders) {
    for (const auto& order : orders) list.at(count++) = order;
  }
};
struct Posted {
  int error = 0;
  int bad = -1;  // place in the list that bad_wr pointed to; -1: it was left alone
};

enum class Answerer : uint8_t { kPoller, kOtherThread };
enum class Queue : uint8_t { kSend, kReceive };

struct Completions {
  int count = 0;
  int error = 0;  // what a poll that failed returned
  std::array<ibv_wc, 64> list{};
};

struct Event {
  bool came = false;
  ibv_event_type type{};
  bool own = false;  // about this end's queue pair, or one of its completion queues
};

struct ChannelEvent {
  bool came = false;
  Queue queue{};
  int error = 0;
};

// A memory window.
struct Window {
  uint32_t id = 0;
  uint32_t rkey = 0;
  int error = 0;  // errno of the allocation or the bind
};
// Type 1 by ibv_bind_mw, type 2 by IBV_WR_BIND_MW.
struct BindOrder {
  uint64_t wr_id = 9;
  uint32_t window = 0;
  uint32_t buffer = 0;  // 0: no region
  uint64_t address = 0;
  uint64_t length = 0;
  unsigned access = kAllRemote;
  unsigned flags = IBV_SEND_SIGNALED;
  uint32_t rkey = 0;        // 0: the window's next one
  bool other_verb = false;  // the one for the other type
};

struct Closed {
  int error = 0;                // the first one
  std::array<char, 32> what{};  // the verb that gave it
};

class Endpoint {
 public:
  explicit Endpoint(const EndpointSpec& spec);  // throws std::runtime_error with what went wrong
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Destroys everything in order.
  Closed close();

  Address address();
  ibv_qp_cap caps();
  int to_init(const Link& link);
  int to_rtr(const Link& link);
  int to_rts(const Link& link);
  int to_state(ibv_qp_state state);  // without any attribute
  int set_min_rnr_timer(uint8_t code);
  ibv_qp_attr query();
  int destroy_qp();

  Buffer add_buffer(const BufferSpec& spec);
  // Registers another end's memory of this process here as well.
  Buffer share(const Buffer& other);
  int deregister(uint32_t id);
  int unmap(uint32_t id, uint64_t offset, uint64_t length);
  void fill(uint32_t id, uint64_t offset, uint64_t length, uint64_t seed);
  // Where the bytes first differ from fill()'s; -1: nowhere.
  int64_t mismatch(uint32_t id, uint64_t offset, uint64_t length, uint64_t seed);
  uint64_t word(uint32_t id, uint64_t offset);
  void set_word(uint32_t id, uint64_t offset, uint64_t value);

  Posted post_sends(const Orders<SendOrder>& orders);
  Posted post_receives(const Orders<ReceiveOrder>& orders);
  // Empty SENDs, one after the other, with pauses that differ; how many were done.
  uint64_t blast(uint64_t count);
  // Receives messages of that length and answers each with one like it: the thread that polls, or another
  // one. For ends with one completion queue. How many it answered.
  uint64_t answer(uint64_t count, const Buffer& buffer, uint64_t length, Answerer answerer);
  // Polls until `count` came or the time is over; never more than 64.
  Completions poll(Queue queue, int count, Wait wait);

  // Taken and acknowledged.
  Event next_event(Wait wait);
  int arm(Queue queue, bool solicited_only);
  ChannelEvent next_channel_event(Wait wait);

  // Windows (windows.cpp).
  Window add_window(ibv_mw_type type, bool other_domain);
  Window bind(const BindOrder& order);  // the key that it will have
  int remove_window(uint32_t id);

  // For tests in this process that go on with the verbs themselves.
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_qp* qp() const { return qp_; }
  [[nodiscard]] ibv_cq* cq(Queue queue) const { return queue == Queue::kSend ? send_cq_ : recv_cq_; }
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_; }

 private:
  struct Registered {
    Memory memory;
    ibv_mr* mr = nullptr;
  };

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_pd* other_pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* recv_cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_qp_cap caps_{};
  std::map<uint32_t, Registered> buffers_;
  uint32_t last_buffer_ = 0;
  std::map<uint32_t, ibv_mw*> windows_;
  uint32_t last_window_ = 0;
};

// verbena0, or the test ends with a sentence.
ibv_context* open_device();

}  // namespace verbena::rc
