#include "stage.hpp"

#include <string>
#include <tuple>

namespace verbena::rc {
namespace {

template <auto Method, typename R, typename... A>
void call_as(R (Endpoint::*)(A...), Endpoint& endpoint, const Bytes& call, [[maybe_unused]] size_t at,
             Bytes& answer) {
  // Braces: the arguments are taken in their order.
  std::tuple<std::remove_cvref_t<A>...> arguments{take<std::remove_cvref_t<A>>(call, at)...};
  const auto invoke = [&](const auto&... argument) { return (endpoint.*Method)(argument...); };
  if constexpr (std::is_void_v<R>)
    std::apply(invoke, arguments);
  else
    append(answer, std::apply(invoke, arguments));
}

template <auto... Methods>
void dispatch(MethodList<Methods...>, uint32_t number, Endpoint& endpoint, const Bytes& call, size_t at,
              Bytes& answer) {
  uint32_t place = 0;
  const bool found =
      ((number == place++ && (call_as<Methods>(Methods, endpoint, call, at, answer), true)) || ...);
  if (!found) throw std::runtime_error("no such call");
}

}  // namespace

Endpoint* Stage::find(uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = endpoints_.find(number);
  return found == endpoints_.end() ? nullptr : found->second.get();
}

Bytes Stage::perform(const Bytes& call) noexcept try {
  Bytes answer;
  append(answer, uint8_t{0});
  size_t at = 0;
  const auto number = take<uint32_t>(call, at);
  const auto whose = take<uint32_t>(call, at);
  if (number == kOpenCall) {
    auto made = std::make_unique<Endpoint>(take<EndpointSpec>(call, at));
    const std::lock_guard lock(mutex_);
    endpoints_[++last_] = std::move(made);
    append(answer, last_);
    return answer;
  }
  Endpoint* endpoint = find(whose);
  if (endpoint == nullptr) throw std::runtime_error("no such end");
  if (number == kCloseCall) {
    append(answer, endpoint->close());
    const std::lock_guard lock(mutex_);
    endpoints_.erase(whose);
    return answer;
  }
  dispatch(EndpointMethods{}, number, *endpoint, call, at, answer);
  return answer;
} catch (const std::exception& error) {
  Bytes answer;
  append(answer, uint8_t{1});
  for (const char* c = error.what(); *c != '\0'; ++c) append(answer, *c);
  return answer;
}

}  // namespace verbena::rc
