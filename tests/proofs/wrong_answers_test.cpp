// Any one field of an answer wrong, with an ICRC that fits: it ends the request as a bad response, or is
// counted under the reason that names it, and nothing is taken from it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "wrong_fields.hpp"

namespace verbena::test {
namespace {

using engine::RequestStatus;
using roce::Operation;
using roce::Packet;
using roce::Service;
using wire::Drop;
namespace syndrome = roce::syndrome;

Change aeth(uint8_t code) {
  return [code](Packet& packet) { packet.aeth.syndrome = code; };
}

// `answer` is how the request ends; -1: it doesn't.
constexpr int kBadResponse = static_cast<int>(RequestStatus::kBadResponse);
const OneField kAnswers[] = {
    {"RC Acknowledge", "PSN past", psn(-2), "stale_answer"},
    {"RC Acknowledge", "PSN of what wasn't sent", psn(1), "ghost_answer"},
    {"RC Acknowledge", "syndrome of no kind", aeth(0x40), "bad_answer"},
    {"RC Acknowledge", "syndrome of no NAK", aeth(0x64), "bad_answer"},
    {"RC Acknowledge", "syndrome's reserved bit", aeth(0x80 | syndrome::kNoCredits), "bad_answer"},
    {"RC Acknowledge", "a READ's", operation(Operation::kReadResponseOnly), "bad_answer"},
    {"RC ReadResponseOnly", "PSN past", psn(-1), "stale_answer"},
    {"RC ReadResponseOnly", "PSN of what wasn't sent", psn(1), "ghost_answer"},
    {"RC ReadResponseOnly", "longer",
     [](Packet& packet) {
       packet.payload = {packet.payload.data(), 54};
     },
     "bad_answer", kBadResponse},
    {"RC ReadResponseOnly", "shorter", cut(1), "bad_answer", kBadResponse},
    {"RC ReadResponseOnly", "empty", cut(50), "bad_answer", kBadResponse},
    {"RC ReadResponseOnly", "a first one", operation(Operation::kReadResponseFirst), "bad_answer",
     kBadResponse},
    {"RC ReadResponseOnly", "a last one", operation(Operation::kReadResponseLast), "bad_answer",
     kBadResponse},
    {"RC ReadResponseOnly", "syndrome", aeth(syndrome::kRemoteAccess), "bad_answer", kBadResponse},
    {"RC ReadResponseFirst", "PSN future", psn(1), "out_of_order"},
    {"RC ReadResponseFirst", "an only one", operation(Operation::kReadResponseOnly), "bad_answer",
     kBadResponse},
    {"RC ReadResponseFirst", "a middle one", operation(Operation::kReadResponseMiddle), "bad_answer",
     kBadResponse},
    {"RC ReadResponseFirst", "not full", cut(4), "bad_answer", kBadResponse},
    {"RC ReadResponseFirst", "syndrome", aeth(syndrome::kRnr), "bad_answer", kBadResponse},
    {"RC ReadResponseMiddle", "PSN past", psn(-1), "stale_answer"},
    {"RC ReadResponseMiddle", "PSN future", psn(1), "out_of_order"},
    {"RC ReadResponseMiddle", "a last one", operation(Operation::kReadResponseLast), "bad_answer",
     kBadResponse},
    {"RC ReadResponseMiddle", "not full", cut(1), "bad_answer", kBadResponse},
    {"RC ReadResponseLast", "PSN past", psn(-1), "stale_answer"},
    {"RC ReadResponseLast", "shorter", cut(1), "bad_answer", kBadResponse},
    {"RC ReadResponseLast", "a middle one", operation(Operation::kReadResponseMiddle), "bad_answer",
     kBadResponse},
    {"RC ReadResponseLast", "an atomic's",
     [](Packet& packet) {
       packet.bth.operation = Operation::kAtomicAcknowledge;
       packet.payload = {};
     },
     "bad_answer"},
    {"RC AtomicAcknowledge", "PSN past", psn(-1), "stale_answer"},
    {"RC AtomicAcknowledge", "PSN of what wasn't sent", psn(1), "ghost_answer"},
    {"RC AtomicAcknowledge", "syndrome", aeth(syndrome::kSequence), "bad_answer", kBadResponse},
    {"RC AtomicAcknowledge", "a READ's", operation(Operation::kReadResponseOnly), "bad_answer"},
    {"XRC Acknowledge", "PSN past", psn(-2), "stale_answer"},
    {"XRC Acknowledge", "PSN of what wasn't sent", psn(1), "ghost_answer"},
    {"XRC Acknowledge", "syndrome of no kind", aeth(0x40), "bad_answer"},
    {"XRC ReadResponseOnly", "longer",
     [](Packet& packet) {
       packet.payload = {packet.payload.data(), 54};
     },
     "bad_answer", kBadResponse},
    {"XRC ReadResponseMiddle", "PSN future", psn(1), "out_of_order"},
    {"XRC ReadResponseLast", "shorter", cut(1), "bad_answer", kBadResponse},
    {"XRC AtomicAcknowledge", "a READ's", operation(Operation::kReadResponseOnly), "bad_answer"},
};

TEST(WrongFields, OfAnswers) {
  for (const Way way : kWays) {
    for (const auto& field : kAnswers) {
      SCOPED_TRACE(fmt::format("{}: {}", field.kind, field.name));
      const auto& kind = packet_kind(field.kind);
      PortRig rig(kind.service, way);
      kind.before(rig, way);
      auto& connection = rig.connection;
      const auto before = connection.state();
      const size_t scattered = connection.host.scattered().size();
      Packet packet = kind.packet;
      field.change(packet);
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, way))), field.reason);
      EXPECT_EQ(connection.host.scattered().size(), scattered);
      if (field.answer >= 0) {
        ASSERT_EQ(connection.host.ends().size(), 1u);
        EXPECT_EQ(static_cast<int>(connection.host.ends().front().status), field.answer);
        EXPECT_TRUE(connection.requester->failed());
      } else if (field.reason == std::string("out_of_order")) {
        // What is missing is asked for again; nothing ends.
        EXPECT_TRUE(connection.host.ends().empty());
      } else {
        EXPECT_EQ(connection.state(), before);
        EXPECT_EQ(rig.receive(bytes_of(kind.packet, way)), Drop::kNone) << "it is still welcome";
      }
    }
  }
}

// An answer that is none doesn't acknowledge what was sent before it either.
TEST(WrongFields, OfAnswersBehindRequestsThatWait) {
  const auto answer = [](Operation what, uint8_t code) {
    Packet packet;
    packet.bth.operation = what;
    packet.bth.destination = kOwn;
    packet.bth.psn = kSent + 1;
    packet.aeth.syndrome = code;
    return packet;
  };
  for (const Way way : kWays) {
    PortRig rig(Service::kRc, way);
    for (int i = 0; i < 3; ++i)
      rig.connection.requester->post({.kind = engine::Request::Kind::kSend, .length = 4});
    rig.connection.go_on(rig.now);
    const auto before = rig.connection.state();
    for (unsigned code = 0x40; code < 0x100; ++code) {
      if (code >= syndrome::kSequence && code <= syndrome::kOperational) continue;
      const auto packet = answer(Operation::kAcknowledge, static_cast<uint8_t>(code));
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(packet, way))), "bad_answer") << code;
    }
    for (const auto what :
         {Operation::kReadResponseOnly, Operation::kReadResponseFirst, Operation::kReadResponseMiddle,
          Operation::kReadResponseLast, Operation::kAtomicAcknowledge})
      EXPECT_EQ(wire::name_of(rig.receive(bytes_of(answer(what, syndrome::kNoCredits), way))), "bad_answer");
    EXPECT_EQ(rig.connection.state(), before);
    EXPECT_EQ(rig.receive(bytes_of(answer(Operation::kAcknowledge, syndrome::kNoCredits), way)), Drop::kNone);
    EXPECT_EQ(rig.connection.host.ends().size(), 2u);
  }
}

}  // namespace
}  // namespace verbena::test
