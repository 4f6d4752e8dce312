// What RDMA CM puts in front of a program's private data, and how it makes service IDs of ports: so two IP
// addresses and ports come to a connection that InfiniBand made without them (RDMA IP CM service annex A11).
#pragma once

#include <optional>
#include <span>

#include "cm/messages.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::cm {

inline constexpr size_t kIpHeaderBytes = 36;

// How much of a message's private data is the program's.
inline constexpr size_t kReqPrivateBytes = 92 - kIpHeaderBytes;
inline constexpr size_t kSidrReqPrivateBytes = 216 - kIpHeaderBytes;

// Source and destination; the destination's port is in the service ID, not here.
struct IpHeader {
  ipc::CmAddress source;
  ipc::CmAddress destination;
};

// Nothing: another version, or no IP version that we know.
[[nodiscard]] std::optional<IpHeader> parse_ip_header(std::span<const std::byte, kIpHeaderBytes> bytes);
void emit_ip_header(const IpHeader& header, std::span<std::byte, kIpHeaderBytes> into);

[[nodiscard]] uint64_t service_id(ipc::CmPortSpace space, uint16_t port);
struct Service {
  ipc::CmPortSpace space{};
  uint16_t port = 0;
};
// Nothing: not one of RDMA CM's.
[[nodiscard]] std::optional<Service> service_of(uint64_t service_id);

[[nodiscard]] inline Gid gid_of(const ipc::CmAddress& address) {
  Gid gid;
  std::memcpy(gid.data(), address.bytes, gid.size());
  return gid;
}

}  // namespace verbena::cm
