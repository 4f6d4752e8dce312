// Any one field wrong, with an ICRC that fits: what no line does, but a peer with a bug or a bad mind.
// Counted under the reason that names it, or answered as the standard says; memory, completions and numbers
// stay as they were.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "roce/codec.hpp"
#include "wrong_fields.hpp"

namespace verbena::test {
namespace {

using roce::Operation;
using roce::Packet;
using roce::Service;
using wire::Drop;
namespace syndrome = roce::syndrome;

// What every packet has: the port's own checks.
struct CommonField {
  const char* name;
  Drop reason;
  std::function<void(std::vector<std::byte>&)> change;
};

void set(std::vector<std::byte>& bytes, size_t at, unsigned value) {
  bytes[at] = static_cast<std::byte>(value);
}

// A SEND of a service that the queue pair doesn't have. A notification has one of its own already.
void set_other_service(std::vector<std::byte>& bytes) {
  const unsigned opcode = std::to_integer<unsigned>(bytes[0]);
  if (opcode != roce::kCnpOpcode) set(bytes, 0, (opcode & 0xe0) == 0xa0 ? 0x04 : 0xa4);
}

const CommonField kCommon[] = {
    {"version", Drop::kBadVersion, [](auto& bytes) { bytes[1] |= std::byte{1}; }},
    {"version, its highest bit", Drop::kBadVersion, [](auto& bytes) { bytes[1] |= std::byte{8}; }},
    {"partition", Drop::kBadPkey, [](auto& bytes) { set(bytes, 3, 0xfe); }},
    {"partition, first byte", Drop::kBadPkey, [](auto& bytes) { set(bytes, 2, 0xef); }},
    {"queue pair", Drop::kNoConnection, [](auto& bytes) { set(bytes, 7, 4); }},
    {"process", Drop::kStray, [](auto& bytes) { set(bytes, 5, 8); }},
    {"opcode of no kind", Drop::kUnknownOpcode, [](auto& bytes) { set(bytes, 0, 0x1f); }},
    {"opcode of RD", Drop::kUnknownOpcode, [](auto& bytes) { set(bytes, 0, 0x44); }},
    {"opcode of XRC, or of RC where it is XRC's", Drop::kBadService, set_other_service},
};

TEST(WrongFields, OfEveryPacket) {
  for (const Way way : kWays) {
    for (const auto& kind : packet_kinds()) {
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      const auto good = bytes_of(kind.packet, way);
      const auto before = rig.connection.state();
      for (const auto& field : kCommon) {
        auto bytes = good;
        field.change(bytes);
        seal(bytes, way);
        EXPECT_EQ(wire::name_of(rig.receive(bytes)), wire::name_of(field.reason))
            << kind.name << ": " << field.name;
        ASSERT_EQ(rig.connection.state(), before) << kind.name << ": " << field.name;
      }
      EXPECT_EQ(rig.receive(good), kind.when_right) << kind.name;
    }
  }
}

// Every other opcode: of another service, of an answer where there is no request, or out of its place. What
// can't be told from a right packet isn't wrong.
TEST(WrongFields, ServiceOfEveryPacket) {
  for (const auto& kind : packet_kinds()) {
    PortRig rig(kind.service, Way::kRecognised);
    kind.before(rig, Way::kRecognised);
    const auto before = rig.connection.state();
    for (const auto service : {Service::kRc, Service::kUc, Service::kUd, Service::kXrc}) {
      Packet packet = kind.packet;
      packet.bth.service = service;
      if (service == kind.service || !packet.info().known) continue;
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, Way::kRecognised))), "bad_service") << kind.name;
      EXPECT_EQ(rig.connection.state(), before) << kind.name;
    }
  }
}

TEST(WrongFields, AddressesOfEveryPacket) {
  for (const Way way : kWays) {
    for (const auto& kind : packet_kinds()) {
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      const auto before = rig.connection.state();
      auto bytes = bytes_of(kind.packet, way);
      // Something on the way has changed the address: the ICRC still fits the one that was announced.
      auto packet = rig.received(bytes);
      packet.from.bytes[15] = 99;
      EXPECT_EQ(rig.receive(packet), Drop::kNatRewritten) << kind.name;
      packet = rig.received(bytes);
      packet.to.bytes[15] = 99;
      EXPECT_EQ(rig.receive(packet), Drop::kBadIcrc) << kind.name;
      // So does the UDP source port, which nobody announces.
      for (const unsigned change : {1u, 0x100u, 0x4000u}) {
        packet = rig.received(bytes);
        packet.source_port = static_cast<uint16_t>(packet.source_port ^ change);
        EXPECT_EQ(rig.receive(packet), Drop::kBadIcrc) << kind.name << ": source port";
      }
      // Somebody else sends it, and says so.
      for (const bool from : {true, false}) {
        packet = rig.received(bytes);
        (from ? packet.from : packet.to).bytes[15] = 99;
        roce::append_icrc(packet.flow(), way == Way::kForeign ? 0xbeef : 0, bytes);
        EXPECT_EQ(rig.receive(packet), Drop::kWrongAddress) << kind.name;
      }
      EXPECT_EQ(rig.connection.state(), before) << kind.name;
    }
  }
}

TEST(WrongFields, LengthsThatNoHeadersHave) {
  for (const auto& kind : packet_kinds()) {
    PortRig rig(kind.service, Way::kRecognised);
    kind.before(rig, Way::kRecognised);
    const auto before = rig.connection.state();
    const auto good = bytes_of(kind.packet, Way::kRecognised);
    auto bytes = good;
    bytes.resize(16);  // a BTH and the ICRC
    seal(bytes, Way::kRecognised);
    const bool bare = kind.packet.info().header_bytes == 12;
    const Drop reason = rig.receive(bytes);
    if (!bare) {
      EXPECT_EQ(wire::name_of(reason), "too_short") << kind.name;
      EXPECT_EQ(rig.connection.state(), before) << kind.name;
    }
    if (kind.packet.info().payload) continue;
    bytes = good;
    bytes.resize(good.size() + 4);
    seal(bytes, Way::kRecognised);
    EXPECT_EQ(wire::name_of(rig.receive(bytes)), "bad_length") << kind.name;
    bytes = good;
    bytes[1] |= std::byte{0x30};
    seal(bytes, Way::kRecognised);
    EXPECT_EQ(wire::name_of(rig.receive(bytes)), "bad_pad") << kind.name;
    EXPECT_EQ(rig.connection.state(), before) << kind.name;
  }
}

constexpr int kInvalid = syndrome::kInvalidRequest;
constexpr int kAccess = syndrome::kRemoteAccess;
constexpr int kSequence = syndrome::kSequence;
constexpr int kAckAgain = syndrome::kNoCredits;

const OneField kRcRequests[] = {
    {"RC SendOnly", "PSN past", psn(-1), "duplicate", kAckAgain},
    {"RC SendOnly", "PSN far past", psn(-(1 << 22)), "duplicate", kAckAgain},
    {"RC SendOnly", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC SendOnly", "PSN far future", psn(1 << 22), "out_of_order", kSequence},
    {"RC SendOnly", "a last one without a first", operation(Operation::kSendLast), "none", kInvalid},
    {"RC SendOnly", "a middle one without a first", operation(Operation::kSendMiddle), "none", kInvalid},
    {"RC SendOnly", "a first one that isn't full", operation(Operation::kSendFirst), "none", kInvalid},
    {"RC SendFirst", "not full", cut(4), "none", kInvalid},
    {"RC SendFirst", "padding", cut(1), "none", kInvalid},
    {"RC SendMiddle", "PSN past", psn(-1), "duplicate", kAckAgain},
    {"RC SendMiddle", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC SendMiddle", "not full", cut(4), "none", kInvalid},
    {"RC SendMiddle", "a first one inside a message", operation(Operation::kSendFirst), "none", kInvalid},
    {"RC SendMiddle", "of a WRITE", operation(Operation::kWriteMiddle), "none", kInvalid},
    {"RC SendLast", "empty", cut(45), "none", kInvalid},
    {"RC SendLast", "an only one inside a message", operation(Operation::kSendOnly), "none", kInvalid},
    {"RC SendLast", "of a WRITE", operation(Operation::kWriteLast), "none", kInvalid},
    {"RC WriteOnly", "PSN past", psn(-1), "duplicate", kAckAgain},
    {"RC WriteOnly", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC WriteOnly", "key", reth_key(), "none", kAccess},
    {"RC WriteOnly", "address below", reth_address(-9), "none", kAccess},
    {"RC WriteOnly", "address above", reth_address(kRegionBytes), "none", kAccess},
    {"RC WriteOnly", "address far off", reth_address(INT64_MIN), "none", kAccess},
    {"RC WriteOnly", "address at the end of all", reth_address(-static_cast<int64_t>(kAddress) - 9), "none",
     kAccess},
    {"RC WriteOnly", "length shorter", reth_length(28), "none", kInvalid},
    {"RC WriteOnly", "length longer", reth_length(30), "none", kInvalid},
    {"RC WriteOnly", "length beyond the region", reth_length(kRegionBytes), "none", kAccess},
    {"RC WriteOnly", "length beyond all", reth_length(0x80000001), "none", kInvalid},
    {"RC WriteOnly", "length 0", reth_length(0), "none", kInvalid},
    {"RC WriteOnly", "padding", cut(1), "none", kInvalid},
    {"RC WriteOnlyImm", "key", reth_key(), "none", kAccess},
    {"RC WriteOnlyImm", "length", reth_length(28), "none", kInvalid},
    {"RC WriteFirst", "key", reth_key(), "none", kAccess},
    {"RC WriteFirst", "address", reth_address(kRegionBytes), "none", kAccess},
    {"RC WriteFirst", "length of one packet", reth_length(kMtu), "none", kInvalid},
    {"RC WriteFirst", "not full", cut(4), "none", kInvalid},
    {"RC WriteMiddle", "an only one inside a message", operation(Operation::kSendOnly), "none", kInvalid},
    {"RC WriteMiddle", "of a SEND", operation(Operation::kSendMiddle), "none", kInvalid},
    {"RC WriteMiddle", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC WriteLast", "shorter than the WRITE", cut(1), "none", kInvalid},
    {"RC WriteLast", "of a SEND", operation(Operation::kSendLast), "none", kInvalid},
    {"RC WriteLastImm", "shorter than the WRITE", cut(1), "none", kInvalid},
    {"RC ReadRequest", "PSN past", psn(-1), "replay_forgotten"},
    {"RC ReadRequest", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC ReadRequest", "key", reth_key(), "none", kAccess},
    {"RC ReadRequest", "address", reth_address(kRegionBytes), "none", kAccess},
    {"RC ReadRequest", "length beyond the region", reth_length(kRegionBytes), "none", kAccess},
    {"RC ReadRequest", "length beyond all", reth_length(UINT32_MAX), "none", kInvalid},
    {"RC FetchAdd", "PSN past", psn(-1), "replay_forgotten"},
    {"RC FetchAdd", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC FetchAdd", "key", [](Packet& packet) { packet.atomic.key ^= 1; }, "none", kAccess},
    {"RC FetchAdd", "address not a multiple of 8", [](Packet& packet) { packet.atomic.address += 4; }, "none",
     kInvalid},
    {"RC FetchAdd", "address", [](Packet& packet) { packet.atomic.address += kRegionBytes; }, "none",
     kAccess},
    {"RC CompareSwap", "key", [](Packet& packet) { packet.atomic.key ^= 1; }, "none", kAccess},
    {"RC CompareSwap", "address not a multiple of 8", [](Packet& packet) { packet.atomic.address += 1; },
     "none", kInvalid},
    {"RC SendOnlyInvalidate", "key to invalidate", invalidate_key(), "none", kAccess},
    {"RC SendOnlyInvalidate", "PSN past", psn(-1), "duplicate", kAckAgain},
    {"RC SendOnlyInvalidate", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC SendLastInvalidate", "key to invalidate", invalidate_key(), "none", kAccess},
    {"RC SendLastInvalidate", "empty", cut(45), "none", kInvalid},
    {"RC SendLastInvalidate", "of a WRITE", operation(Operation::kWriteLast), "none", kInvalid},
    {"RC AtomicWrite", "PSN past", psn(-1), "replay_forgotten"},
    {"RC AtomicWrite", "PSN future", psn(1), "out_of_order", kSequence},
    {"RC AtomicWrite", "key", reth_key(), "none", kAccess},
    {"RC AtomicWrite", "address", reth_address(kRegionBytes), "none", kAccess},
    {"RC AtomicWrite", "address not a multiple of 8", reth_address(4), "none", kInvalid},
    {"RC AtomicWrite", "length", reth_length(4), "none", kInvalid},
    {"RC AtomicWrite", "shorter", cut(4), "none", kInvalid},
    {"RC AtomicWrite", "padding", cut(1), "none", kInvalid},
    {"XRC SendOnly", "no such queue", shared_queue(kSharedQueues), "none", kInvalid},
    {"XRC SendOnly", "PSN past", psn(-1), "duplicate", kAckAgain},
    {"XRC SendOnly", "PSN future", psn(1), "out_of_order", kSequence},
    {"XRC SendMiddle", "another queue", shared_queue(0), "none", kInvalid},
    {"XRC SendLast", "another queue", shared_queue(0), "none", kInvalid},
    {"XRC SendLast", "no such queue", shared_queue(kSharedQueues), "none", kInvalid},
    {"XRC SendOnlyInvalidate", "key to invalidate", invalidate_key(), "none", kAccess},
    {"XRC WriteOnly", "no such queue", shared_queue(kSharedQueues), "none", kInvalid},
    {"XRC WriteOnly", "key", reth_key(), "none", kAccess},
    {"XRC WriteMiddle", "another queue", shared_queue(0), "none", kInvalid},
    {"XRC WriteLast", "shorter than the WRITE", cut(1), "none", kInvalid},
    {"XRC ReadRequest", "no such queue", shared_queue(kSharedQueues), "none", kInvalid},
    {"XRC ReadRequest", "key", reth_key(), "none", kAccess},
    {"XRC FetchAdd", "no such queue", shared_queue(kSharedQueues), "none", kInvalid},
    {"XRC FetchAdd", "key", [](Packet& packet) { packet.atomic.key ^= 1; }, "none", kAccess},
};

TEST(WrongFields, OfRequests) {
  for (const Way way : kWays) {
    for (const auto& field : kRcRequests) {
      SCOPED_TRACE(fmt::format("{}: {}", field.kind, field.name));
      const auto& kind = packet_kind(field.kind);
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      auto& connection = rig.connection;
      const auto memory = connection.actions.memory();
      const size_t completions = connection.actions.completions().size();
      const size_t answers = connection.answers.sent.size();
      const auto expected = connection.responder->expected();
      Packet packet = kind.packet;
      field.change(packet);
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, way))), field.reason);
      EXPECT_EQ(connection.actions.memory(), memory);
      EXPECT_EQ(connection.actions.completions().size(), completions);
      EXPECT_EQ(connection.responder->expected(), expected);
      ASSERT_EQ(connection.answers.sent.size(), answers + (field.answer >= 0 ? 1 : 0));
      const bool fatal = field.answer == kInvalid || field.answer == kAccess;
      EXPECT_EQ(connection.responder->failed(), fatal);
      EXPECT_EQ(connection.actions.failures(), fatal ? 1u : 0u);
      if (field.answer < 0) continue;
      const Packet& answer = connection.answers.sent.back().packet;
      EXPECT_EQ(answer.bth.operation, Operation::kAcknowledge);
      EXPECT_EQ(answer.aeth.syndrome, field.answer);
      // A NAK names the packet that is awaited or at fault, an ACK the last one that was carried out.
      EXPECT_EQ(answer.bth.psn, field.answer == kAckAgain ? expected + base::Psn::kMask : expected);
    }
  }
}

const OneField kUnreliable[] = {
    {"UC SendOnly", "PSN past", psn(-1), "duplicate"},
    {"UC SendOnly", "a last one without a first", operation(Operation::kSendLast), "broken_message"},
    {"UC SendOnly", "a first one that isn't full", operation(Operation::kSendFirst), "broken_message"},
    {"UC SendFirst", "not full", cut(4), "broken_message"},
    {"UC SendMiddle", "PSN past", psn(-1), "duplicate"},
    {"UC SendMiddle", "PSN future", psn(1), "broken_message"},
    {"UC SendMiddle", "of a WRITE", operation(Operation::kWriteMiddle), "broken_message"},
    {"UC SendLast", "PSN future", psn(1), "broken_message"},
    {"UC SendLast", "empty", cut(45), "broken_message"},
    {"UC WriteOnly", "key", reth_key(), "refused"},
    {"UC WriteOnly", "address", reth_address(kRegionBytes), "refused"},
    {"UC WriteOnly", "length shorter", reth_length(28), "broken_message"},
    {"UC WriteOnly", "length longer", reth_length(30), "broken_message"},
    {"UC WriteOnly", "length beyond all", reth_length(0x80000001), "broken_message"},
    {"UC WriteOnlyImm", "key", reth_key(), "refused"},
    {"UC WriteFirst", "key", reth_key(), "refused"},
    {"UC WriteFirst", "length of one packet", reth_length(kMtu), "broken_message"},
    {"UC WriteMiddle", "PSN future", psn(1), "broken_message"},
    {"UC WriteMiddle", "of a SEND", operation(Operation::kSendMiddle), "broken_message"},
    {"UC WriteLast", "shorter than the WRITE", cut(1), "broken_message"},
    {"UC WriteLastImm", "shorter than the WRITE", cut(1), "broken_message"},
    {"UD SendOnly", "Q_Key", [](Packet& packet) { packet.deth.qkey ^= 1; }, "bad_qkey"},
    {"UD SendOnlyImm", "Q_Key", [](Packet& packet) { packet.deth.qkey ^= 0x80000000; }, "bad_qkey"},
};

TEST(WrongFields, OfUnreliableServices) {
  for (const Way way : kWays) {
    for (const auto& field : kUnreliable) {
      SCOPED_TRACE(fmt::format("{}: {}", field.kind, field.name));
      const auto& kind = packet_kind(field.kind);
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      const auto before = rig.connection.actions.state();
      Packet packet = kind.packet;
      field.change(packet);
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, way))), field.reason);
      EXPECT_EQ(rig.connection.actions.state(), before);
    }
  }
}

// What a peer may say either way.
TEST(WrongFields, ThatAreNone) {
  for (const auto& kind : packet_kinds()) {
    const std::pair<const char*, Change> kHarmless[] = {
        {"migrated", [](Packet& packet) { packet.bth.migrated = !packet.bth.migrated; }},
        {"membership", [](Packet& packet) { packet.bth.pkey = 0x7fff; }},
        {"MSN", [](Packet& packet) { packet.aeth.msn = 0x123456; }},
        {"FECN", [](Packet& packet) { packet.bth.fecn = packet.bth.becn = true; }}};
    for (const auto& [name, change] : kHarmless) {
      PortRig rig(kind.service, Way::kRecognised);
      kind.before(rig, Way::kRecognised);
      Packet packet = kind.packet;
      change(packet);
      EXPECT_EQ(rig.receive(bytes_of(packet, Way::kRecognised)), kind.when_right)
          << kind.name << ": " << name;
    }
  }
}

}  // namespace
}  // namespace verbena::test
