// A process's side of connection management, as the contract has it and no more.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "client/host_tie.hpp"
#include "ipc/channel.hpp"
#include "ipc/cm_messages.hpp"
#include "ipc/rendezvous.hpp"
#include "support/process.hpp"

namespace verbena::agent {

inline ipc::CmAddress cm_address(const std::string& text, uint16_t port = 0) {
  ipc::CmAddress address{.port = port, .family = AF_INET};
  if (text.find(':') != std::string::npos) {
    address.family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), address.bytes), 1);
  } else {
    address.bytes[10] = address.bytes[11] = 0xff;
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), address.bytes + 12), 1);
  }
  return address;
}

class CmClient {
 public:
  // Attaches this process, if it isn't yet, and opens a CM connection with one event channel, 1.
  CmClient() {
    const auto tie = client::HostTie::instance();
    const auto acquired = tie->acquire();
    EXPECT_TRUE(acquired) << acquired.error().sentence;
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    events_.reset(ends[0]);
    agents_end_.reset(ends[1]);
    reopen();
  }
  // Also with the next agent, once there is one and this process has its slot again.
  void reopen() {
    EXPECT_TRUE(support::eventually([&] {
      auto made = ipc::connect_to(ipc::user_agent_name(::geteuid()));
      const auto claim = client::HostTie::instance()->claim();
      if (!made || !claim || !ipc::send(made->get(), ipc::Hello{}) ||
          !ipc::receive_until(made->get(), base::now() + base::seconds(5)))
        return false;
      socket_ = std::move(*made);
      return code(ipc::CmOpen{.own_slot = claim->slot, .own_epoch = claim->epoch}) == 0;
    }));
    EXPECT_EQ(code(ipc::CmChannel{.channel = 1}, agents_end_.get()), 0);
  }
  ~CmClient() {
    if (open()) client::HostTie::instance()->release();
  }
  CmClient(const CmClient&) = delete;
  CmClient& operator=(const CmClient&) = delete;

  template <typename M>
  base::Result<ipc::Message> ask(const M& command, int fd = -1) {
    if (auto sent = ipc::send(socket_.get(), command, std::span(&fd, fd < 0 ? 0u : 1u)); !sent)
      return std::unexpected(sent.error());
    return ipc::receive_until(socket_.get(), base::now() + base::seconds(5));
  }
  // 0 for Done, or the errno.
  template <typename M>
  int code(const M& command, int fd = -1) {
    const auto answer = ask(command, fd);
    if (!answer) return answer.error().code;
    const auto done = ipc::expect<ipc::Done>(*answer);
    return done ? 0 : done.error().code;
  }
  int create(uint32_t id, ipc::CmPortSpace space = ipc::CmPortSpace::kTcp) {
    return code(ipc::CmCreate{.id = id, .channel = 1, .space = space});
  }
  // The port; or the errno, negative.
  int bind(uint32_t id, const ipc::CmAddress& address) {
    const auto answer = ask(ipc::CmBind{.id = id, .address = address});
    if (!answer) return -answer.error().code;
    const auto bound = ipc::expect<ipc::CmBound>(*answer);
    return bound ? static_cast<int>(bound->port) : -bound.error().code;
  }
  // A listening id; its port.
  uint16_t listen(uint32_t id, const ipc::CmAddress& at, int backlog = 0,
                  ipc::CmPortSpace space = ipc::CmPortSpace::kTcp) {
    EXPECT_EQ(create(id, space), 0);
    const int port = bind(id, at);
    EXPECT_GT(port, 0);
    EXPECT_EQ(code(ipc::CmListen{.id = id, .backlog = backlog}), 0);
    return static_cast<uint16_t>(port);
  }
  int connect(uint32_t id, const ipc::CmAddress& local, const ipc::CmAddress& remote, uint32_t qpn) {
    return code(ipc::CmConnect{
        .id = id, .local = local, .remote = remote, .parameters = {.qpn = qpn, .ack_timeout = 10}});
  }

  // The next event; its kind 0: none came in time.
  ipc::CmEvent event(int wait_ms = 5'000) {
    pollfd ready{events_.get(), POLLIN, 0};
    if (::poll(&ready, 1, wait_ms) <= 0) return {};
    const auto message = ipc::receive(events_.get());
    if (!message) return {};
    const auto event = message->as<ipc::CmEvent>();
    return event ? *event : ipc::CmEvent{};
  }
  [[nodiscard]] bool open() const { return static_cast<bool>(socket_); }
  [[nodiscard]] int socket() const { return socket_.get(); }
  // As if the process had died.
  void die() {
    socket_.reset();
    client::HostTie::instance()->release();
  }

 private:
  base::UniqueFd socket_;
  base::UniqueFd events_;
  base::UniqueFd agents_end_;
};

}  // namespace verbena::agent
