// What the two ends of an RC connection must know of each other, and what RDMA CM would carry: exchanged over
// TCP.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "common/terms.hpp"
#include "rc/steps.hpp"

namespace examples {

struct Card {
  uint32_t qpn;     ///< number of the queue pair
  uint32_t psn;     ///< its first packet's sequence number
  uint16_t lid;     ///< where it is, on InfiniBand
  ibv_gid gid;      ///< where it is, on RoCE
  uint8_t mtu;      ///< what its port can take, as enum ibv_mtu
  Terms terms;      ///< what the client wants
  Regions regions;  ///< where the client may READ and WRITE; only the server's counts
};

/// A TCP connection.
class SideChannel {
 public:
  explicit SideChannel(int fd) : fd_(fd) {}
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;
  /// To a server; tries for some seconds, since that may be starting.
  static int connect(const std::string& server, const std::string& port);

  void send(const Card& card);
  [[nodiscard]] Card receive();
  /// Returns when the peer has come here, too.
  void meet();

 private:
  void send_all(const void* bytes, std::size_t length);
  void receive_all(void* bytes, std::size_t length);

  int fd_;
};

/// A listening TCP socket.
class SideListener {
 public:
  SideListener(const std::string& address, const std::string& port);
  ~SideListener();
  SideListener(const SideListener&) = delete;
  SideListener& operator=(const SideListener&) = delete;

  [[nodiscard]] int port() const;
  /// Waits for the next client.
  [[nodiscard]] int accept();

 private:
  int fd_;
};

}  // namespace examples
