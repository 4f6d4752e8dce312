// The connection manager's MADs: every one that the kernel sent in tests/golden, and whatever else.
#include "cm/codec.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>

#include "cm/ip_header.hpp"
#include "roce/codec.hpp"
#include "support/pcap.hpp"

namespace verbena::cm {
namespace {

std::vector<MadBytes> golden_mads() {
  std::vector<MadBytes> mads;
  for (const char* file : {"rdmacm_rping.pcap", "rdmacm_udaddy.pcap"}) {
    for (const auto& captured : test::golden_packets(file)) {
      const auto packet = roce::parse(captured.transport());
      if (!packet || packet->bth.destination != roce::kGeneralServicesQpn) continue;
      MadBytes mad{};
      EXPECT_EQ(mad.size(), packet->payload.size());
      std::ranges::copy(packet->payload, mad.begin());
      mads.push_back(mad);
    }
  }
  return mads;
}

template <typename M>
M golden(size_t index) {
  const auto message = parse(golden_mads().at(index));
  EXPECT_TRUE(message && std::holds_alternative<M>(message->body));
  return message && std::holds_alternative<M>(message->body) ? std::get<M>(message->body) : M{};
}

TEST(CmGolden, ParsesAndIsEmittedByteByByte) {
  const auto mads = golden_mads();
  ASSERT_EQ(mads.size(), 7u);
  for (size_t i = 0; i < mads.size(); ++i) {
    const auto message = parse(mads[i]);
    ASSERT_TRUE(message) << i;
    EXPECT_EQ(emit(*message), mads[i]) << i;
  }
}

// As tshark's dissector reads them, but for the flow label and rate, where that one is a byte off.
TEST(CmGolden, RequestSaysWhatRpingAsked) {
  const auto req = golden<Req>(0);
  EXPECT_EQ(req.local_id, 0xdde522c6u);
  EXPECT_EQ(req.service_id, service_id(ipc::CmPortSpace::kTcp, 7174));
  EXPECT_EQ(req.ca_guid, 0xb8a2f4fffe93f1e8u);
  EXPECT_EQ(req.qpn, 0x1au);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_response_timeout, 0x14);
  EXPECT_EQ(req.transport, 0);
  EXPECT_EQ(req.first_psn, 0x3a4649u);
  EXPECT_EQ(req.local_response_timeout, 0x14);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_EQ(req.mtu, 5);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.primary.local_lid, 0xffff);
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(req.primary.ack_timeout, 19);
  EXPECT_EQ(req.alternate, PathFields{});
  const auto header = parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>());
  ASSERT_TRUE(header);
  EXPECT_EQ(header->source.port, 0xdc05);
  EXPECT_EQ(header->source.family, AF_INET);
  EXPECT_EQ(gid_of(header->source), req.primary.local_gid);
  EXPECT_EQ(gid_of(header->destination), req.primary.remote_gid);
}

// What rdma_connect and rdma_accept make of it is in abi/rdmacm_qp_states.cpp.
TEST(CmGolden, EachEndNamesTheNumberWithWhichTheOtherBegins) {
  std::vector<uint32_t> sends;
  for (const auto& captured : test::golden_packets("rdmacm_rping.pcap")) {
    const auto packet = roce::parse(captured.transport());
    if (packet && packet->bth.service == roce::Service::kRc &&
        packet->bth.operation == roce::Operation::kSendOnly)
      sends.push_back(packet->bth.psn.value);
  }
  ASSERT_FALSE(sends.empty());
  EXPECT_EQ(sends[0], golden<Rep>(1).first_psn) << "the client's first, as the server's reply named it";
}

TEST(CmGolden, TheRestOfRping) {
  const auto rep = golden<Rep>(1);
  EXPECT_EQ(rep.remote_id, 0xdde522c6u);
  EXPECT_EQ(rep.qpn, 0x1au);
  EXPECT_EQ(rep.first_psn, 0x3bf8e1u);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.ca_guid, 0x2c169afffe884469u);
  EXPECT_EQ(golden<Rtu>(2).remote_id, rep.local_id);
  const auto dreq = golden<Dreq>(3);
  EXPECT_EQ(dreq.remote_id, rep.local_id);
  EXPECT_EQ(dreq.remote_qpn, 0x1au);
  EXPECT_EQ(golden<Drep>(4).remote_id, 0xdde522c6u);
}

TEST(CmGolden, UdaddysDatagramService) {
  const auto req = golden<SidrReq>(5);
  EXPECT_EQ(req.service_id, service_id(ipc::CmPortSpace::kUdp, 7174));
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_TRUE(parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>()));
  const auto rep = golden<SidrRep>(6);
  EXPECT_EQ(rep.request_id, req.request_id);
  EXPECT_EQ(rep.status, 0);
  EXPECT_EQ(rep.qpn, 0x1bu);
  EXPECT_EQ(rep.service_id, req.service_id);
  EXPECT_EQ(rep.qkey, 0x01234567u);
}

TEST(CmCodec, RejectAndMraLieWhereTheStandardSays) {
  Rej rej{.local_id = 1,
          .remote_id = 2,
          .about = About::kRep,
          .info_length = 8,
          .reason = 28,
          .info = {},
          .private_data = {}};
  rej.info[0] = std::byte{0xaa};
  rej.private_data[0] = std::byte{0xbb};
  const auto bytes = emit({7, rej});
  const auto at = [](const MadBytes& mad, size_t data) {
    return std::to_integer<unsigned>(mad[roce::kMadHeaderBytes + data]);
  };
  EXPECT_EQ(std::to_integer<unsigned>(bytes[17]), 0x12u);
  EXPECT_EQ(at(bytes, 8), 0x40u);
  EXPECT_EQ(at(bytes, 9), 0x10u);
  EXPECT_EQ(at(bytes, 11), 28u);
  EXPECT_EQ(at(bytes, 12), 0xaau);
  EXPECT_EQ(at(bytes, 84), 0xbbu);
  const auto mra = emit({7, Mra{.about = About::kReq, .service_timeout = 24, .private_data = {}}});
  EXPECT_EQ(std::to_integer<unsigned>(mra[17]), 0x11u);
  EXPECT_EQ(at(mra, 9), 24u << 3);
}

// Every bit of a message is a field's or reserved: what parse() found, emit() and parse() give again.
RC_GTEST_PROP(CmCodecProperty, EmittedAgainItMeansTheSame, (uint64_t seed)) {
  std::mt19937_64 random(seed);
  MadBytes mad{};
  for (auto& byte : mad) byte = static_cast<std::byte>(random());
  mad[0] = std::byte{1};
  mad[1] = std::byte{7};
  mad[2] = std::byte{2};
  mad[3] = std::byte{3};
  mad[16] = std::byte{0};
  mad[17] = static_cast<std::byte>(0x10 + random() % 9);
  const auto message = parse(mad);
  RC_ASSERT(message.has_value());
  const auto again = emit(*message);
  const auto read = parse(again);
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == *message);
  RC_ASSERT(emit(*read) == again);
}

RC_GTEST_PROP(CmCodecProperty, AnyBytesAreReadOrRefused, (const std::vector<uint8_t>& bytes, uint8_t like)) {
  std::vector<std::byte> mad(like % 2 == 0 ? roce::kMadBytes : bytes.size());
  for (size_t i = 0; i < mad.size() && i < bytes.size(); ++i) mad[i] = std::byte{bytes[i]};
  const auto message = parse(mad);
  RC_ASSERT(!message || mad.size() == roce::kMadBytes);
}

TEST(CmCodec, OtherClassesVersionsAndAttributesAreNobodys) {
  const auto good = golden_mads().front();
  ASSERT_TRUE(parse(good));
  for (const size_t at : {0u, 1u, 2u, 3u, 16u, 17u}) {
    auto bad = good;
    bad[at] ^= std::byte{0x80};
    EXPECT_FALSE(parse(bad)) << at;
  }
  EXPECT_FALSE(parse(std::span(good).first(255)));
  EXPECT_FALSE(parse({}));
}

TEST(CmIpHeader, BothFamiliesThereAndBack) {
  IpHeader header;
  header.source = {.port = 7, .family = AF_INET6};
  header.destination.family = AF_INET6;
  ASSERT_EQ(::inet_pton(AF_INET6, "fd05::1", header.source.bytes), 1);
  ASSERT_EQ(::inet_pton(AF_INET6, "fd05::2", header.destination.bytes), 1);
  Bytes<kIpHeaderBytes> bytes{};
  emit_ip_header(header, bytes);
  const auto read = parse_ip_header(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->source.port, 7);
  EXPECT_EQ(gid_of(read->source), gid_of(header.source));
  EXPECT_EQ(gid_of(read->destination), gid_of(header.destination));
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(parse_ip_header(bytes)) << "IP version 5";
  bytes[1] = std::byte{0x60};
  bytes[0] = std::byte{0x10};
  EXPECT_FALSE(parse_ip_header(bytes)) << "another version of the header";
}

TEST(CmServiceId, EachSpaceHasItsOwn) {
  EXPECT_EQ(service_id(ipc::CmPortSpace::kTcp, 0x1c06), 0x0000000001061c06u);
  EXPECT_EQ(service_id(ipc::CmPortSpace::kUdp, 1), 0x0000000001110001u);
  EXPECT_EQ(service_id(ipc::CmPortSpace::kIb, 1), 0x00000000013f0001u);
  EXPECT_EQ(service_id(ipc::CmPortSpace::kIpoib, 1), 0x0000000000020001u);
  EXPECT_EQ(service_of(0x0111'ffff)->port, 0xffff);
  EXPECT_FALSE(service_of(0x1'0106'0001));
  EXPECT_FALSE(service_of(0));
}

}  // namespace
}  // namespace verbena::cm
