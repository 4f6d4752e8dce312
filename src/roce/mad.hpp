// Management datagrams (IBA 13.4): the 256 bytes that a UD packet to QP1 carries, as a value. What the data
// mean is the business of the class's own code; cm/ knows that of the connection manager's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>

#include "base/numbers.hpp"
#include "roce/codec.hpp"

namespace verbena::roce {

inline constexpr size_t kMadBytes = 256;
inline constexpr size_t kMadHeaderBytes = 24;
inline constexpr size_t kMadDataBytes = kMadBytes - kMadHeaderBytes;

inline constexpr base::Qpn kGeneralServicesQpn{1};
inline constexpr uint32_t kGeneralServicesQkey = 0x80010000;  // QP1's

// Management classes that come to QP1.
namespace mad_class {
inline constexpr uint8_t kSubnetAdministration = 0x03;
inline constexpr uint8_t kPerformance = 0x04;
inline constexpr uint8_t kCommunication = 0x07;  // the connection manager
// By which Verbena's agents recognise each other: out of 0x30 to 0x4f, where an OUI in the data says whose it
// is.
inline constexpr uint8_t kVerbena = 0x3b;
}  // namespace mad_class

namespace mad_method {
inline constexpr uint8_t kGet = 0x01;
inline constexpr uint8_t kSet = 0x02;
inline constexpr uint8_t kSend = 0x03;
inline constexpr uint8_t kGetResponse = 0x81;
inline constexpr uint8_t kResponseBit = 0x80;
}  // namespace mad_method

// The low bits of MadHeader::status, IBA 13.4.7.
namespace mad_status {
inline constexpr uint16_t kOk = 0x0000;
inline constexpr uint16_t kBadVersion = 0x0004;    // base or class version
inline constexpr uint16_t kBadMethod = 0x0008;     // method isn't supported
inline constexpr uint16_t kBadAttribute = 0x000c;  // nor this attribute by this method
}  // namespace mad_status

struct MadHeader {
  uint8_t management_class = 0;
  uint8_t class_version = 1;
  uint8_t method = 0;
  uint16_t status = 0;
  uint16_t class_specific = 0;
  uint64_t transaction = 0;
  uint16_t attribute = 0;
  uint32_t modifier = 0;
  bool operator==(const MadHeader&) const = default;
};

struct Mad {
  MadHeader header;
  std::span<const std::byte> data;  // kMadDataBytes of them; not owned
};

// kTooShort and kBadLength: not 256 bytes; kBadVersion: not base version 1, which is the only one.
[[nodiscard]] std::expected<Mad, ParseError> parse_mad(std::span<const std::byte> bytes);

// Data shorter than kMadDataBytes are filled up with zeros.
void emit_mad(const Mad& mad, std::span<std::byte, kMadBytes> into);

// The data of a vendor's MAD, classes 0x30 to 0x4f: a segmentation header that single MADs leave zero, one
// reserved byte, the OUI, then the vendor's own.
inline constexpr size_t kVendorOuiAt = 13;
inline constexpr size_t kVendorDataAt = 16;
inline constexpr size_t kVendorDataBytes = kMadDataBytes - kVendorDataAt;

// Nobody's number: locally administered, and it reads VRB.
inline constexpr std::array<uint8_t, 3> kVerbenaOui{0x56, 0x52, 0x42};

// What follows the OUI in a MAD of Verbena's class, or an empty span: the MAD is somebody else's.
[[nodiscard]] std::span<const std::byte> verbena_data(const Mad& mad);

// A MAD of Verbena's class; its header's management_class is set here. `data` is at most kVendorDataBytes.
void emit_verbena_mad(const MadHeader& header, std::span<const std::byte> data,
                      std::span<std::byte, kMadBytes> into);

}  // namespace verbena::roce
