#include "net/udp_receiver.hpp"

#include <linux/sock_diag.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "net/message_calls.hpp"
#include "net/socket_option.hpp"

namespace verbena::net {
namespace {

Address mapped(const void* ipv4) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  std::memcpy(&address.bytes[12], ipv4, 4);
  return address;
}

template <typename T>
T value_of(const cmsghdr& c) {
  T value{};
  std::memcpy(&value, CMSG_DATA(&c), std::min(sizeof value, c.cmsg_len - CMSG_LEN(0)));
  return value;
}

// What the kernel tells beside the bytes.
struct Told {
  Received packet;
  bool destination = false;
  int segment_bytes = 0;          // 0: not merged
  std::optional<uint32_t> drops;  // since the socket was made
};

void read_ip(const cmsghdr& c, Told& told) {
  switch (c.cmsg_type) {
    case IP_PKTINFO: {
      const auto info = value_of<in_pktinfo>(c);
      told.packet.to = mapped(&info.ipi_addr);
      told.packet.interface = static_cast<uint32_t>(info.ipi_ifindex);
      told.destination = true;
      break;
    }
    case IP_TOS:
      told.packet.traffic_class = value_of<uint8_t>(c);
      break;
    case IP_TTL:
      told.packet.hop_limit = static_cast<uint8_t>(value_of<int>(c));
      break;
  }
}

void read_ipv6(const cmsghdr& c, Told& told) {
  switch (c.cmsg_type) {
    case IPV6_PKTINFO: {
      const auto info = value_of<in6_pktinfo>(c);
      std::memcpy(told.packet.to.bytes.data(), &info.ipi6_addr, 16);
      told.packet.interface = info.ipi6_ifindex;
      told.destination = true;
      break;
    }
    case IPV6_TCLASS:
      told.packet.traffic_class = static_cast<uint8_t>(value_of<int>(c));
      break;
    case IPV6_HOPLIMIT:
      told.packet.hop_limit = static_cast<uint8_t>(value_of<int>(c));
      break;
  }
}

Told read_control(msghdr& header) {
  Told told;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == IPPROTO_IP)
      read_ip(*c, told);
    else if (c->cmsg_level == IPPROTO_IPV6)
      read_ipv6(*c, told);
    else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO)
      told.segment_bytes = value_of<int>(*c);
    else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
      told.drops = value_of<uint32_t>(*c);
  }
  const auto& from = *static_cast<const sockaddr_in6*>(header.msg_name);
  told.packet.source_port = ntohs(from.sin6_port);  // at the same place in both families
  if (from.sin6_family == AF_INET)
    told.packet.from = mapped(&reinterpret_cast<const sockaddr_in&>(from).sin_addr);
  else
    std::memcpy(told.packet.from.bytes.data(), &from.sin6_addr, 16);
  return told;
}

}  // namespace

Pages::Pages(size_t bytes) : bytes_(bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages != MAP_FAILED) data_ = static_cast<std::byte*>(pages);
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

UdpReceiver::UdpReceiver(base::UniqueFd socket, int buffer_bytes)
    : socket_(base::high(std::move(socket))), buffers_(kBatch * kBufferBytes) {
  set_options(buffer_bytes);
  for (size_t i = 0; i < kBatch; ++i) {
    parts_[i] = {buffers_.data() + i * kBufferBytes, kBufferBytes};
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = &senders_[i];
    header.msg_iov = &parts_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_[i].data();
  }
}

void UdpReceiver::set_options(int buffer_bytes) {
  const int fd = socket_.get();
  set_option(fd, IPPROTO_UDP, UDP_GRO, 1);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
  set_option(fd, SOL_SOCKET, SO_RXQ_OVFL, 1);
  // IPv6's tells destinations of both families, and told twice each packet would cost 0.1 us more. It fails
  // on the IPv4 sockets of a host without IPv6.
  set_option(fd, IPPROTO_IP, IP_PKTINFO, set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) ? 0 : 1);
  set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
  int granted = 0;
  socklen_t length = sizeof granted;
  if (::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &length) == 0)
    counters_.receive_buffer_bytes += static_cast<uint64_t>(granted);
  uint32_t memory[SK_MEMINFO_VARS]{};
  length = sizeof memory;
  if (::getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &length) == 0) drops_seen_ = memory[SK_MEMINFO_DROPS];
}

void UdpReceiver::tell_hops() {
  const int fd = socket_.get();
  set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
  set_option(fd, IPPROTO_IP, IP_RECVTTL, 1);
  set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);  // fails on the IPv4 sockets of a host without IPv6
  set_option(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
}

base::Result<void> UdpReceiver::usable() const {
  if (buffers_.data() == nullptr) return base::fail(ENOMEM, "no memory for receiving packets");
  int protocol = 0;
  socklen_t length = sizeof protocol;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0)
    return base::fail_errno("looking at the slot's socket");
  if (protocol != IPPROTO_UDP) return base::fail(EPROTOTYPE, "the slot's socket isn't a UDP socket");
  return {};
}

size_t UdpReceiver::receive(Sink& sink, size_t budget) {
  const int fd = socket_.get_often();
  if (fd < 0) {
    ++counters_.closed;
    return 0;
  }
  size_t handed = 0;
  while (handed < budget) {
    const size_t batch = std::min(budget - handed, batch_);
    for (size_t i = 0; i < batch; ++i) {
      messages_[i].msg_hdr.msg_namelen = sizeof senders_[i];
      messages_[i].msg_hdr.msg_controllen = kControlBytes;
    }
    const int got = receive_messages(fd, messages_.data(), static_cast<unsigned>(batch));
    if (got < 0) {
      if (errno != EAGAIN) ++counters_.failed;
      batch_ = 1;
      lone_ = 0;
      break;
    }
    for (int i = 0; i < got; ++i) handed += hand_over(messages_[i], sink);
    // A lone datagram is handed on without a look for a second one; a crowd is fetched together.
    if (batch_ == 1) {
      if (++lone_ == kCrowd) batch_ = kBatch;
      break;
    }
    if (static_cast<size_t>(got) < batch) break;  // there was no more
  }
  return handed;
}

size_t UdpReceiver::hand_over(mmsghdr& message, Sink& sink) {
  Told told = read_control(message.msg_hdr);
  if (told.drops) {
    counters_.kernel_drops += *told.drops - drops_seen_;
    drops_seen_ = *told.drops;
  }
  if ((message.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
    ++counters_.truncated;
    return 0;
  }
  if (!told.destination) {
    ++counters_.no_destination;
    return 0;
  }
  ReceivedRun run{
      .about = told.packet,
      .bytes = {static_cast<const std::byte*>(message.msg_hdr.msg_iov->iov_base), message.msg_len}};
  run.segment_bytes = told.segment_bytes > 0 ? static_cast<size_t>(told.segment_bytes) : run.bytes.size();
  if (run.segment_bytes < run.bytes.size()) ++counters_.merged;
  sink.on_run(run);
  const size_t packets = run.packets();
  counters_.packets += packets;
  counters_.bytes += run.bytes.size();
  return packets;
}

}  // namespace verbena::net
