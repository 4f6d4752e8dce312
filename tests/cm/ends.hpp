// What the tests of RDMA CM share: ids and channels that clean up, events as values, a connected pair.
#pragma once

#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace verbena::cm_test {

using Wait = std::chrono::milliseconds;
inline constexpr Wait kLong{20'000};
inline constexpr Wait kMoment{100};

// Throws std::runtime_error with errno's text where a call that must succeed fails.
void must(int result, const char* what);

struct Address {
  sockaddr_storage storage{};
  explicit Address(const char* text, uint16_t port = 0);
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

struct ChannelDeleter {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
using Channel = std::unique_ptr<rdma_event_channel, ChannelDeleter>;
[[nodiscard]] Channel make_channel();

// Destroys the queue pair, too.
struct IdDeleter {
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
};
using Id = std::unique_ptr<rdma_cm_id, IdDeleter>;
[[nodiscard]] Id make_id(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP);

// An event that was taken and acknowledged. `came` false: none within the time.
struct Event {
  bool came = false;
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  rdma_conn_param conn{};
  std::string data;  // private data, up to the first zero byte: networks pad it
};
[[nodiscard]] Event next(rdma_event_channel* channel, Wait wait = kLong);
// The next event is this one.
[[nodiscard]] testing::AssertionResult next_is(rdma_event_channel* channel, rdma_cm_event_type type,
                                               int status = 0);
[[nodiscard]] bool readable(int fd, Wait wait);

[[nodiscard]] ibv_qp_init_attr queue_pair_attributes();
void give_queue_pair(rdma_cm_id* id);
[[nodiscard]] ibv_qp_state state_of(ibv_qp* qp);
// They point to the private data, which must outlive them.
[[nodiscard]] rdma_conn_param parameters(const std::string& private_data);
[[nodiscard]] rdma_conn_param parameters(std::string&& private_data) = delete;
[[nodiscard]] rdma_conn_param parameters();

// One byte string each way between two ends that are connected.
void exchange(rdma_cm_id* a, rdma_cm_id* b);

// Two ends in this process, each with a channel and a queue pair, connected by the calls' asynchronous forms.
struct Pair {
  Channel passive_channel = make_channel();
  Channel active_channel = make_channel();
  Id listener;
  Id active;
  Id passive;
  explicit Pair(const char* address = "127.0.0.1");
  // Up to the request: what the program does with it is the test's.
  struct Unanswered {};
  Pair(Unanswered, const char* address = "127.0.0.1", const std::string& private_data = {});
  Event request;
};

}  // namespace verbena::cm_test
