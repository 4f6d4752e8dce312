// The connection manager's messages (IBA 12.6 and 12.11) as values. Communication IDs are numbers that the
// other end gives back as they came.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "roce/mad.hpp"

namespace verbena::cm {

template <size_t Count>
using Bytes = std::array<std::byte, Count>;
using Gid = std::array<std::byte, 16>;

inline constexpr uint8_t kClassVersion = 2;

// Attribute IDs of the MAD header.
enum class Attribute : uint16_t {
  kReq = 0x10,
  kMra,
  kRej,
  kRep,
  kRtu,
  kDreq,
  kDrep,
  kSidrReq,
  kSidrRep,
};

// Which message an MRA or a REJ is about.
enum class About : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// REJ reasons, IBA 12.6.7.2, as far as we name them.
namespace reject_reason {
inline constexpr uint16_t kNoResources = 3;
inline constexpr uint16_t kTimeout = 4;
inline constexpr uint16_t kUnsupported = 5;
inline constexpr uint16_t kInvalidCommId = 6;
inline constexpr uint16_t kInvalidServiceId = 8;  // nobody listens
inline constexpr uint16_t kStaleConnection = 10;
inline constexpr uint16_t kConsumerDefined = 28;
}  // namespace reject_reason

// Status of a SIDR REP, IBA 12.11.
namespace sidr_status {
inline constexpr uint8_t kValid = 0;
inline constexpr uint8_t kUnsupported = 1;  // nobody listens
inline constexpr uint8_t kReject = 2;
inline constexpr uint8_t kNoQp = 3;
}  // namespace sidr_status

// One of the two paths that a REQ describes; RoCE uses only the first, and of it not the LIDs.
struct PathFields {
  uint16_t local_lid = 0;
  uint16_t remote_lid = 0;
  Gid local_gid{};
  Gid remote_gid{};
  uint32_t flow_label = 0;  // 20 bits
  uint8_t rate = 0;         // 6 bits
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  uint8_t ack_timeout = 0;  // 5 bits
  bool operator==(const PathFields&) const = default;
};

struct Req {
  static constexpr Attribute kAttribute = Attribute::kReq;
  uint32_t local_id = 0;
  uint64_t service_id = 0;
  uint64_t ca_guid = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;                     // 24 bits
  uint8_t responder_resources = 0;      // RDMA READs and atomics that the sender answers at once
  uint32_t local_eecn = 0;              // reliable datagrams; nobody has those
  uint8_t initiator_depth = 0;          // as many as the sender wants to have under way
  uint32_t remote_eecn = 0;             // as local_eecn; XRC has its queue pair's number here
  uint8_t remote_response_timeout = 0;  // 5 bits: so long the other may take; 4.096 us * 2^it
  uint8_t transport = 0;                // 2 bits: RC, UC, RD, extended
  bool flow_control = false;
  uint32_t first_psn = 0;              // 24 bits: with it the other end begins
  uint8_t local_response_timeout = 0;  // 5 bits: so long the sender may take
  uint8_t retry_count = 0;             // 3 bits
  uint16_t pkey = 0;
  uint8_t mtu = 0;  // 4 bits
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  uint8_t max_cm_retries = 0;   // 4 bits
  bool srq = false;
  uint8_t extended_transport = 0;  // 3 bits; 1: XRC
  PathFields primary;
  PathFields alternate;
  Bytes<92> private_data{};
  bool operator==(const Req&) const = default;
};

// "Your message came, the answer will take a while."
struct Mra {
  static constexpr Attribute kAttribute = Attribute::kMra;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  About about{};
  uint8_t service_timeout = 0;  // 5 bits: so long it may take
  Bytes<222> private_data{};
  bool operator==(const Mra&) const = default;
};

struct Rej {
  static constexpr Attribute kAttribute = Attribute::kRej;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  About about{};
  uint8_t info_length = 0;  // 7 bits: of `info`
  uint16_t reason = 0;
  Bytes<72> info{};
  Bytes<148> private_data{};
  bool operator==(const Rej&) const = default;
};

struct Rep {
  static constexpr Attribute kAttribute = Attribute::kRep;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t qkey = 0;
  uint32_t qpn = 0;        // 24 bits
  uint32_t eecn = 0;       // 24 bits; XRC has its queue pair's number here
  uint32_t first_psn = 0;  // 24 bits: with it the other end begins
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;  // 5 bits
  uint8_t failover = 0;          // 2 bits
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;  // 3 bits
  bool srq = false;
  uint64_t ca_guid = 0;
  Bytes<196> private_data{};
  bool operator==(const Rep&) const = default;
};

struct Rtu {
  static constexpr Attribute kAttribute = Attribute::kRtu;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Bytes<224> private_data{};
  bool operator==(const Rtu&) const = default;
};

struct Dreq {
  static constexpr Attribute kAttribute = Attribute::kDreq;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;  // 24 bits: the receiver's
  Bytes<220> private_data{};
  bool operator==(const Dreq&) const = default;
};

struct Drep {
  static constexpr Attribute kAttribute = Attribute::kDrep;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Bytes<224> private_data{};
  bool operator==(const Drep&) const = default;
};

// "Which queue pair serves this service's datagrams?"
struct SidrReq {
  static constexpr Attribute kAttribute = Attribute::kSidrReq;
  uint32_t request_id = 0;
  uint16_t pkey = 0;
  uint64_t service_id = 0;
  Bytes<216> private_data{};
  bool operator==(const SidrReq&) const = default;
};

struct SidrRep {
  static constexpr Attribute kAttribute = Attribute::kSidrRep;
  uint32_t request_id = 0;
  uint8_t status = 0;
  uint8_t info_length = 0;
  uint32_t qpn = 0;  // 24 bits
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  Bytes<72> info{};
  Bytes<136> private_data{};
  bool operator==(const SidrRep&) const = default;
};

struct Message {
  uint64_t transaction = 0;
  std::variant<Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep> body;
  bool operator==(const Message&) const = default;
};

using MadBytes = Bytes<roce::kMadBytes>;

}  // namespace verbena::cm
