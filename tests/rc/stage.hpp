// Where ends of connections live: in this process, or in a helper process that performs the same calls, sent
// to it as bytes. A fork()ed child could not do it: it has no device (DESIGN 2.7), so the helper is a program
// of its own (stage_main.cpp).
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "endpoint.hpp"

namespace verbena::rc {

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

template <typename T>
T take(const Bytes& bytes, size_t& at) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() - at < sizeof(T)) throw std::runtime_error("a call or its answer is too short");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

// A call's number is its place in this list.
template <auto... Methods>
struct MethodList {};
using EndpointMethods =
    MethodList<&Endpoint::address, &Endpoint::caps, &Endpoint::to_init, &Endpoint::to_rtr, &Endpoint::to_rts,
               &Endpoint::to_state, &Endpoint::set_min_rnr_timer, &Endpoint::blast, &Endpoint::answer,
               &Endpoint::query, &Endpoint::destroy_qp, &Endpoint::add_buffer, &Endpoint::share,
               &Endpoint::deregister, &Endpoint::unmap, &Endpoint::fill, &Endpoint::mismatch, &Endpoint::word,
               &Endpoint::set_word, &Endpoint::post_sends, &Endpoint::post_receives, &Endpoint::poll,
               &Endpoint::next_event, &Endpoint::arm, &Endpoint::next_channel_event, &Endpoint::add_window,
               &Endpoint::bind, &Endpoint::remove_window>;
inline constexpr uint32_t kOpenCall = 1000;   // an EndpointSpec; answers its number
inline constexpr uint32_t kCloseCall = 1001;  // answers what Endpoint::close() did

template <auto A, auto B>
constexpr bool same_method() {
  if constexpr (std::is_same_v<decltype(A), decltype(B)>)
    return A == B;
  else
    return false;
}

template <auto Method, auto... Methods>
constexpr uint32_t number_in(MethodList<Methods...>) {
  uint32_t place = 0;
  (void)((same_method<Method, Methods>() || (++place, false)) || ...);
  return place;
}

template <typename>
struct Signature;
template <typename R, typename... A>
struct Signature<R (Endpoint::*)(A...)> {
  using Result = R;
};

// The ends in this process. Any thread; calls on the same end are as thread-safe as the verbs they make.
class Stage {
 public:
  // A call: its number, the end's number, the arguments. The answer: 0 and the result, or 1 and a sentence.
  [[nodiscard]] Bytes perform(const Bytes& call) noexcept;
  [[nodiscard]] Endpoint* find(uint32_t number);

 private:
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Endpoint>> endpoints_;
  uint32_t last_ = 0;
};

}  // namespace verbena::rc
