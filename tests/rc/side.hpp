// An end of a connection as tests hold it, wherever it lives.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stage.hpp"

namespace verbena::rc {

// A process with ends in it: this one, or a helper.
class Host : public std::enable_shared_from_this<Host> {
 public:
  static std::shared_ptr<Host> here();
  // `environment`: "NAME=value", added to ours.
  static std::shared_ptr<Host> helper(const std::vector<std::string>& environment = {});
  ~Host();  // kills the helper
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] Bytes invoke(const Bytes& call);
  [[nodiscard]] bool alive() const { return !dead_; }
  void stop() const;
  void go_on() const;
  void kill();
  // What the helper wrote to stderr until now.
  [[nodiscard]] std::string said() const;
  [[nodiscard]] Stage* stage() { return stage_.get(); }

 private:
  Host() = default;
  std::unique_ptr<Stage> stage_;  // here
  pid_t pid_ = -1;                // there
  int in_ = -1;
  int out_ = -1;
  int stderr_ = -1;
  bool dead_ = false;
  std::mutex mutex_;
};

// How long to wait for what must come. Not long any more once the test has failed: the rest is but noise.
[[nodiscard]] Wait soon();

class Side {
 public:
  explicit Side(std::shared_ptr<Host> host, const EndpointSpec& spec = {});
  ~Side();  // a failure if something can't be destroyed
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  [[nodiscard]] Host& host() { return *host_; }
  // In this process only.
  [[nodiscard]] Endpoint& endpoint() { return *host_->stage()->find(number_); }
  void close();

  [[nodiscard]] Address address() { return call<&Endpoint::address>(); }
  [[nodiscard]] ibv_qp_cap caps() { return call<&Endpoint::caps>(); }
  int to_init(const Link& link) { return call<&Endpoint::to_init>(link); }
  int to_rtr(const Link& link) { return call<&Endpoint::to_rtr>(link); }
  int to_rts(const Link& link) { return call<&Endpoint::to_rts>(link); }
  int to_state(ibv_qp_state state) { return call<&Endpoint::to_state>(state); }
  int set_min_rnr_timer(uint8_t code) { return call<&Endpoint::set_min_rnr_timer>(code); }
  [[nodiscard]] ibv_qp_attr query() { return call<&Endpoint::query>(); }
  [[nodiscard]] ibv_qp_state state() { return query().qp_state; }
  int destroy_qp() { return call<&Endpoint::destroy_qp>(); }

  Buffer add_buffer(const BufferSpec& spec) { return call<&Endpoint::add_buffer>(spec); }
  Buffer add_buffer(uint64_t length) { return add_buffer(BufferSpec{.length = length}); }
  Buffer share(const Buffer& other) { return call<&Endpoint::share>(other); }
  int deregister(const Buffer& buffer) { return call<&Endpoint::deregister>(buffer.id); }
  int unmap(const Buffer& buffer, uint64_t offset, uint64_t length) {
    return call<&Endpoint::unmap>(buffer.id, offset, length);
  }
  void fill(const Buffer& buffer, uint64_t seed) { fill(buffer, 0, buffer.length, seed); }
  void fill(const Buffer& buffer, uint64_t offset, uint64_t length, uint64_t seed) {
    call<&Endpoint::fill>(buffer.id, offset, length, seed);
  }
  int64_t mismatch(const Buffer& buffer, uint64_t offset, uint64_t length, uint64_t seed) {
    return call<&Endpoint::mismatch>(buffer.id, offset, length, seed);
  }
  uint64_t word(const Buffer& buffer, uint64_t offset = 0) {
    return call<&Endpoint::word>(buffer.id, offset);
  }
  void set_word(const Buffer& buffer, uint64_t offset, uint64_t value) {
    call<&Endpoint::set_word>(buffer.id, offset, value);
  }

  Posted post_sends(const Orders<SendOrder>& orders) { return call<&Endpoint::post_sends>(orders); }
  int post_send(const SendOrder& order) { return post_sends({order}).error; }
  uint64_t blast(uint64_t count) { return call<&Endpoint::blast>(count); }
  uint64_t answer(uint64_t count, const Buffer& buffer, uint64_t length, Answerer answerer) {
    return call<&Endpoint::answer>(count, buffer, length, answerer);
  }
  Posted post_receives(const Orders<ReceiveOrder>& orders) { return call<&Endpoint::post_receives>(orders); }
  int post_receive(uint64_t wr_id, const Pieces& pieces = {}) {
    return post_receives({ReceiveOrder{wr_id, pieces}}).error;
  }
  Completions poll(Queue queue, int count, Wait wait = soon()) {
    return call<&Endpoint::poll>(queue, count, wait);
  }
  // The next one; status kNone: none came.
  ibv_wc next(Queue queue, Wait wait = soon());
  Event next_event(Wait wait = soon()) { return call<&Endpoint::next_event>(wait); }
  int arm(Queue queue, bool solicited_only = false) { return call<&Endpoint::arm>(queue, solicited_only); }
  ChannelEvent next_channel_event(Wait wait = soon()) { return call<&Endpoint::next_channel_event>(wait); }

  Window add_window(ibv_mw_type type, bool other_domain = false) {
    return call<&Endpoint::add_window>(type, other_domain);
  }
  Window bind(const BindOrder& order) { return call<&Endpoint::bind>(order); }
  int remove_window(const Window& window) { return call<&Endpoint::remove_window>(window.id); }

 private:
  [[nodiscard]] Bytes invoke(Bytes call);  // the result's bytes; throws what the call threw

  template <auto Method, typename... A>
  typename Signature<decltype(Method)>::Result call(const A&... arguments) {
    Bytes bytes;
    append(bytes, number_in<Method>(EndpointMethods{}));
    append(bytes, number_);
    append_as(Method, bytes, arguments...);
    const Bytes answer = invoke(std::move(bytes));
    using Result = typename Signature<decltype(Method)>::Result;
    size_t at = 0;
    if constexpr (!std::is_void_v<Result>) return take<Result>(answer, at);
  }
  // Converts to the parameter's type first: its size is what travels.
  template <typename R, typename... P, typename... A>
  static void append_as(R (Endpoint::*)(P...), Bytes& bytes, const A&... arguments) {
    (append<std::remove_cvref_t<P>>(bytes, arguments), ...);
  }

  std::shared_ptr<Host> host_;
  uint32_t number_ = 0;
};

inline constexpr auto kNone =
    static_cast<ibv_wc_status>(31);  // no status; it is what Side::next() has for none

// What each end must be told to be connected to the other; tests spoil these.
struct Links {
  Link a;
  Link b;
};
[[nodiscard]] Links links_between(Side& a, Side& b);
// RESET to RTS on both. A failure if one refuses.
void connect(Side& a, Side& b, const Links& links);
inline void connect(Side& a, Side& b) { connect(a, b, links_between(a, b)); }

}  // namespace verbena::rc
