// Our packets beside the kernel's, field by field and byte by byte. What may differ stands in
// golden_differences.tsv, a sentence each; anything else fails, and so does a row that isn't needed any
// longer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "golden_replay.hpp"
#include "roce/codec.hpp"
#include "roce/print.hpp"

namespace verbena::test {
namespace {

using engine::RequestStatus;
using roce::Packet;

struct Case {
  const char* file;
  Fault fault = Fault::kNone;
  size_t requests = 1;
  size_t receives = 0;  // that complete with us
  RequestStatus last = RequestStatus::kSuccess;
};

constexpr Case kCases[] = {
    {.file = "rc_send.pcap", .requests = 5, .receives = 5},
    {.file = "rc_send_only.pcap", .requests = 10, .receives = 10},
    {.file = "rc_write.pcap", .requests = 5},
    {.file = "rc_writeimm.pcap", .receives = 1},
    {.file = "rc_sendimm.pcap", .receives = 1},
    {.file = "rc_sendinv.pcap", .receives = 1},
    {.file = "rc_read.pcap", .requests = 5},
    {.file = "rc_fetchadd.pcap", .requests = 5},
    {.file = "rc_cmpswap.pcap", .requests = 5},
    {.file = "rc_atomics.pcap", .requests = 2},
    {.file = "rc_rnr.pcap", .receives = 1},
    {.file = "rc_badrkey.pcap", .fault = Fault::kBadKey, .last = RequestStatus::kRemoteAccess},
    {.file = "rc_badaddr.pcap", .fault = Fault::kBadAddress, .last = RequestStatus::kRemoteAccess},
    {.file = "rc_inval.pcap", .fault = Fault::kShortReceive, .last = RequestStatus::kRemoteOperational},
    {.file = "rc_writeread.pcap", .requests = 2},
    {.file = "uc_send.pcap", .requests = 5, .receives = 5},
    {.file = "uc_write.pcap", .requests = 5},
    {.file = "ud_send.pcap", .requests = 5, .receives = 5},
};

struct Difference {
  std::string file;  // or * for all
  std::string field;
  std::string rxe;
  std::string ours;
  bool used = false;
};

std::vector<Difference> read_differences() {
  std::vector<Difference> rows;
  std::ifstream file(GOLDEN_DIFFERENCES);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::stringstream cells(line);
    Difference row;
    std::string why;
    for (auto* cell : {&row.file, &row.field, &row.rxe, &row.ours, &why}) std::getline(cells, *cell, '\t');
    EXPECT_FALSE(why.empty()) << "no sentence why: " << line;
    rows.push_back(row);
  }
  return rows;
}

using Field = std::pair<std::string, std::string>;

// All that a packet says, each field by its name.
std::vector<Field> fields_of(const Packet& packet) {
  const auto& bth = packet.bth;
  const auto& info = packet.info();
  const auto text = [](auto value) { return fmt::format("{:#x}", value); };
  std::vector<Field> fields{{"opcode", text(bth.opcode())},
                            {"solicited", text(+bth.solicited)},
                            {"migrated", text(+bth.migrated)},
                            {"pad", text(bth.pad)},
                            {"pkey", text(bth.pkey)},
                            {"fecn", text(+bth.fecn)},
                            {"becn", text(+bth.becn)},
                            {"destination", text(bth.destination.value)},
                            {"ack_request", text(+bth.ack_request)},
                            {"psn", text(bth.psn.value)},
                            {"payload_bytes", text(packet.payload.size())}};
  const auto add = [&](bool there, const char* name, auto value) {
    if (there) fields.emplace_back(name, text(value));
  };
  add(info.reth, "reth.address", packet.reth.address);
  add(info.reth, "reth.key", packet.reth.key);
  add(info.reth, "reth.length", packet.reth.length);
  add(info.atomic_eth, "atomic.address", packet.atomic.address);
  add(info.atomic_eth, "atomic.key", packet.atomic.key);
  add(info.atomic_eth, "atomic.swap_add", packet.atomic.swap_add);
  add(info.atomic_eth, "atomic.compare", packet.atomic.compare);
  add(info.aeth, "aeth.syndrome", packet.aeth.syndrome);
  add(info.aeth, "aeth.msn", packet.aeth.msn);
  add(info.atomic_ack_eth, "atomic_before", packet.atomic_before);
  add(info.deth, "deth.qkey", packet.deth.qkey);
  add(info.deth, "deth.source", packet.deth.source.value);
  add(info.imm, "imm", packet.imm);
  add(info.ieth, "invalidate_key", packet.invalidate_key);
  return fields;
}

// Makes ours like rxe's where the table allows it; the bytes must agree then.
void take_over(const std::string& field, const Packet& rxe, Packet& ours) {
  if (field == "migrated") ours.bth.migrated = rxe.bth.migrated;
  if (field == "aeth.syndrome") ours.aeth.syndrome = rxe.aeth.syndrome;
  if (field == "aeth.msn") ours.aeth.msn = rxe.aeth.msn;
  if (field == "atomic.compare") ours.atomic.compare = rxe.atomic.compare;
}

class GoldenAgreement : public ::testing::Test {
 protected:
  static bool allowed(const std::string& file, const std::string& field, const std::string& rxe,
                      const std::string& ours) {
    for (auto& row : rows_) {
      const auto fits = [](const std::string& cell, const std::string& value) {
        return cell == "*" || cell == value;
      };
      if (row.field != field || !fits(row.file, file) || !fits(row.rxe, rxe) || !fits(row.ours, ours))
        continue;
      row.used = true;
      return true;
    }
    return false;
  }

  static void compare(const std::string& file, const Pairing& pairing) {
    const auto rxe = roce::parse(pairing.rxe.transport());
    ASSERT_TRUE(rxe && pairing.sent) << "rxe sent " << roce::to_line(*rxe) << ", we nothing";
    // As it would leave: through the codec, which sets the padding.
    std::vector<std::byte> bytes(pairing.rxe.transport().size() + 64);
    bytes.resize(roce::emit(pairing.ours.whole(), bytes));
    auto ours = roce::parse(bytes);
    ASSERT_TRUE(ours);
    SCOPED_TRACE("rxe: " + roce::to_line(*rxe) + "\nours: " + roce::to_line(*ours));
    const auto theirs = fields_of(*rxe);
    const auto mine = fields_of(*ours);
    ASSERT_EQ(theirs.front(), mine.front());  // the opcode: the others are the same headers then
    ASSERT_EQ(theirs.size(), mine.size());
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (theirs[i].second == mine[i].second) continue;
      EXPECT_TRUE(allowed(file, theirs[i].first, theirs[i].second, mine[i].second))
          << theirs[i].first << ": rxe " << theirs[i].second << ", ours " << mine[i].second;
      take_over(theirs[i].first, *rxe, *ours);
    }
    // Reserved bits, padding, payload and the ICRC: all the rest.
    std::vector<std::byte> again(pairing.rxe.bytes.size());
    ASSERT_EQ(roce::emit(*ours, again), pairing.rxe.transport().size());
    roce::append_icrc(pairing.rxe.flow, pairing.rxe.ip_id, again);
    EXPECT_EQ(again, pairing.rxe.bytes);
  }

  static inline std::vector<Difference> rows_ = read_differences();
};

TEST_F(GoldenAgreement, EveryFieldOfEveryPacket) {
  size_t packets = 0;
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.file);
    const Replay done = replay(one.file, one.fault);
    for (const auto& pairing : done.packets) {
      SCOPED_TRACE(pairing.where);
      compare(one.file, pairing);
    }
    packets += done.packets.size();
    EXPECT_EQ(done.leftover, std::vector<std::string>{});
    EXPECT_EQ(done.refused, std::vector<std::string>{});
    EXPECT_EQ(done.posted.size(), one.requests);
    EXPECT_EQ(done.receives_completed, one.receives);
    EXPECT_TRUE(done.received_as_sent);
    ASSERT_EQ(done.ended.size(), one.requests);
    for (size_t i = 0; i + 1 < one.requests; ++i) EXPECT_EQ(done.ended[i], RequestStatus::kSuccess);
    EXPECT_EQ(done.ended.back(), one.last);
  }
  EXPECT_EQ(packets, 165u);
  for (const auto& row : rows_)
    EXPECT_TRUE(row.used) << row.file << " " << row.field << ": not needed any longer";
}

}  // namespace
}  // namespace verbena::test
