// Two connected queue pairs of this process, on a device with two ports.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace verbena::migration {

inline constexpr std::chrono::milliseconds kSoon{10'000};  // for what must come
inline constexpr std::chrono::milliseconds kMoment{60};    // for what must not

// Where a path leads, from whichever end.
struct Way {
  uint8_t port = 1;
  std::string from = "10.9.0.1";
  std::string to = "10.9.0.1";
};
inline const Way kFirst{};
inline const Way kSecond{2, "10.9.1.1", "10.9.1.1"};

[[nodiscard]] bool by_wire();
[[nodiscard]] ibv_ah_attr vector_of(ibv_context* context, const Way& way);

class End {
 public:
  // A context of its own, so that events tell by where they come whose they are.
  explicit End(ibv_qp_type type);
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void connect(const End& peer, ibv_qp_state until = IBV_QPS_RTS);
  // 0 or an errno; `way` loads an alternate path as well.
  [[nodiscard]] int set(ibv_mig_state state);
  [[nodiscard]] int set(ibv_mig_state state, const Way& way);
  [[nodiscard]] int load(const Way& way);
  [[nodiscard]] ibv_qp_attr attributes();
  [[nodiscard]] bool becomes(ibv_mig_state state);

  void post_receive();
  void post_send();
  [[nodiscard]] bool next(ibv_wc& completion, std::chrono::milliseconds wait);
  // The next event of that kind, others are passed over. True: it came, and is about this queue pair.
  [[nodiscard]] bool told(ibv_event_type type, std::chrono::milliseconds wait = kSoon);

  [[nodiscard]] ibv_qp* qp() const { return qp_; }
  [[nodiscard]] ibv_context* context() const { return context_; }

 private:
  [[nodiscard]] int modify(ibv_qp_attr& attr, int mask) { return ibv_modify_qp(qp_, &attr, mask); }

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp_type type_;
  std::array<uint64_t, 16> bytes_{};
};

// A message from one to the other, and its completions. False: it didn't come.
[[nodiscard]] testing::AssertionResult sends(End& from, End& to);

// What another process with the device open prints of its events.
[[nodiscard]] int watch_events();
// A process that closes the descriptors of its device, and prints the events that come of it.
[[nodiscard]] int lose_device();

}  // namespace verbena::migration
