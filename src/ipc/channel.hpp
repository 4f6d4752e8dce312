// A connected SEQPACKET socket that carries one control message, with descriptors, per packet.
#pragma once

#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "ipc/messages.hpp"

namespace verbena::ipc {

inline constexpr size_t kMaxPayload = 4608;
inline constexpr size_t kMaxDescriptors = 8;

struct Message {
  Kind kind{};
  std::vector<std::byte> payload;
  std::vector<base::UniqueFd> fds;

  // EPROTO unless it is exactly an M.
  template <typename M>
  [[nodiscard]] base::Result<M> as() const {
    static_assert(std::is_trivially_copyable_v<M> && sizeof(M) <= kMaxPayload);
    if (kind != M::kKind || payload.size() != payload_size<M>())
      return base::fail(EPROTO, "a control message is not of the kind or length expected");
    M value;
    if constexpr (!std::is_empty_v<M>) std::memcpy(static_cast<void*>(&value), payload.data(), sizeof value);
    return value;
  }

  template <typename M>
  static constexpr size_t payload_size() {
    return std::is_empty_v<M> ? 0 : sizeof(M);
  }
};

// Sends without waiting. EAGAIN: the peer doesn't read.
template <typename M>
[[nodiscard]] base::Result<void> send(int socket, const M& message, std::span<const int> fds = {});
[[nodiscard]] base::Result<void> send_bytes(int socket, Kind kind, std::span<const std::byte> payload,
                                            std::span<const int> fds);

// One message, without waiting. EAGAIN: none there; ECONNRESET: the peer is gone; EPROTO: not a message of
// ours.
[[nodiscard]] base::Result<Message> receive(int socket);

// How a thread waits: until `fd` is readable (-1: there is nothing to read), until `until` at the latest. It
// may return early. One that has other work does it meanwhile.
using Waiting = std::function<void(int fd, base::Instant until)>;
void wait_idly(int fd, base::Instant until);

// One message, waiting until `deadline`. ETIMEDOUT past it.
[[nodiscard]] base::Result<Message> receive_until(int socket, base::Instant deadline,
                                                  const Waiting& waiting = wait_idly);

// Expects an M; a Refused becomes its error.
template <typename M>
[[nodiscard]] base::Result<M> expect(const Message& message) {
  if (message.kind == Kind::kRefused) {
    auto refused = message.as<Refused>();
    if (!refused) return std::unexpected(refused.error());
    return base::fail(refused->code, std::string(text(refused->sentence)));
  }
  return message.as<M>();
}

template <typename M>
base::Result<void> send(int socket, const M& message, std::span<const int> fds) {
  static_assert(std::is_trivially_copyable_v<M> && sizeof(M) <= kMaxPayload);
  const auto bytes = std::as_bytes(std::span(&message, 1)).first(Message::payload_size<M>());
  return send_bytes(socket, M::kKind, bytes, fds);
}

}  // namespace verbena::ipc
