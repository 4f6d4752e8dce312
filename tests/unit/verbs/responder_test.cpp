// The responder's actions, one by one: identity, keys, one-sided operations, failure. What messages do is in
// responder_messages_test.cpp.
#include "verbs/responder.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "responder_script.hpp"

namespace verbena::verbs {
namespace {

using engine::AtomicKind;
using engine::AtomicRequest;
using engine::Copied;
using engine::Nak;
using engine::RemoteRange;
using engine::RemoteUse;
using engine::Verdict;

// ---- Every verdict ----

Verdict provoke(Verdict wanted) {
  OwnerProcess owner;
  Script s(owner, {.access = wanted == Verdict::kNotEnabled ? 0u : kAnyRemote});
  switch (wanted) {
    case Verdict::kDone:
      return s.check(s.at(0, 100), RemoteUse::kWrite)();
    case Verdict::kSilence:
      s.seen->set_gone();
      return s.check(s.at(0, 100), RemoteUse::kWrite)();
    case Verdict::kNotReady:
      return s.deliver("nobody waits")();
    case Verdict::kNoRoom: {
      Script small(owner, {.peer_index = 101, .receives = 64}, owner.make_cq(1));
      for (uint64_t i = 0; i < 64; ++i) (void)small.post(i, 0, 100)();
      for (uint32_t i = 0; i < small.ring_slots(); ++i) EXPECT_EQ(Verdict::kDone, small.deliver("x")());
      return small.deliver("x")();
    }
    case Verdict::kAsk:
      s.seen->atomics_here = false;
      return s.atomic({AtomicKind::kFetchAdd, s.key, s.address(0), 1})();
    case Verdict::kFaultHere:
      s.seen->scripted_memory().instead = Copied::kFaultHere;
      return s.write(s.at(0, 4), "abcd")();
    case Verdict::kBadKey:
      return s.write({s.key ^ 1, s.address(0), 4}, "abcd")();
    case Verdict::kBadBounds:
      return s.write(s.at(Script::kMemory - 3, 4), "abcd")();
    case Verdict::kNoAccess: {
      const uint32_t local = owner.register_memory(s.memory, IBV_ACCESS_LOCAL_WRITE);
      return s.write({local, s.address(0), 4}, "abcd")();
    }
    case Verdict::kWrongDomain: {
      const uint32_t other =
          owner.register_memory({s.address(0), 100, s.address(0), owner.domain()->handle() + 1, kAnyRemote});
      return s.write({other, s.address(0), 4}, "abcd")();
    }
    case Verdict::kUnmapped:
      s.seen->scripted_memory().instead = Copied::kFaultThere;
      return s.write(s.at(0, 4), "abcd")();
    case Verdict::kNotEnabled:
      return s.check(s.at(0, 4), RemoteUse::kRead)();
    case Verdict::kMisaligned:
      return s.atomic({AtomicKind::kFetchAdd, s.key, s.address(4), 1})();
    case Verdict::kBadSequence:  // of packets: only the wire's
      return wanted;
    case Verdict::kTooLong:
      (void)s.post(1, 0, 3)();
      return s.deliver("four")();
    case Verdict::kBadReceive:
      (void)s.post(1, {{.addr = s.address(0), .length = 100, .lkey = 12345}})();
      return s.deliver("four")();
    case Verdict::kCorrupt:
      owner.own_arena().qp(static_cast<uint16_t>(s.qp->number().value)).receives_at.set(7);
      return s.deliver("four")();
    case Verdict::kWrongQueuePair: {
      const uint32_t domain = owner.domain()->handle();
      const uint32_t region = owner.register_memory(s.memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
      const uint32_t key = *owner.process().windows().add(IBV_MW_TYPE_2, domain);
      EXPECT_EQ(Verdict::kDone, owner.process().windows().bind({.type = IBV_MW_TYPE_2,
                                                                .key = key,
                                                                .region = region,
                                                                .access = IBV_ACCESS_REMOTE_WRITE,
                                                                .address = s.address(0),
                                                                .length = 100},
                                                               {{s.qp->number().value + 1}, domain}));
      return s.write({key, s.address(0), 4}, "abcd")();
    }
    case Verdict::kNotWindow:
      return s.finish_receive({.imm = s.key, .invalidates = true})();
    case Verdict::kBound:  // of our own binds: never of a peer's request
      return wanted;
    case Verdict::kNoSharedQueue:
      return s.responder->aim(7);
  }
  return Verdict::kDone;
}

TEST(Responder, GivesEveryVerdictItsCause) {
  for (int wanted = 0; wanted <= static_cast<int>(engine::kLastVerdict); ++wanted)
    EXPECT_EQ(wanted, static_cast<int>(provoke(static_cast<Verdict>(wanted))));
}

TEST(Responder, NaksAsTheStandardSays) {
  const std::map<Verdict, Nak> naks{
      {Verdict::kBadKey, Nak::kRemoteAccess},        {Verdict::kBadBounds, Nak::kRemoteAccess},
      {Verdict::kNoAccess, Nak::kRemoteAccess},      {Verdict::kWrongDomain, Nak::kRemoteAccess},
      {Verdict::kUnmapped, Nak::kRemoteAccess},      {Verdict::kNotEnabled, Nak::kInvalidRequest},
      {Verdict::kMisaligned, Nak::kInvalidRequest},  {Verdict::kTooLong, Nak::kInvalidRequest},
      {Verdict::kBadSequence, Nak::kInvalidRequest}, {Verdict::kBadReceive, Nak::kOperational},
      {Verdict::kCorrupt, Nak::kOperational},        {Verdict::kWrongQueuePair, Nak::kRemoteAccess},
      {Verdict::kNotWindow, Nak::kRemoteAccess},     {Verdict::kNoSharedQueue, Nak::kInvalidRequest}};
  for (int i = 0; i <= static_cast<int>(engine::kLastVerdict); ++i) {
    const auto known = naks.find(static_cast<Verdict>(i));
    EXPECT_EQ(known == naks.end() ? Nak::kNone : known->second, nak_of(static_cast<Verdict>(i))) << i;
  }
}

// ---- Identity: whoever isn't the one that the target was told of meets silence ----

// Every action of a stranger's, on a target that would do all of them for its own requester.
void expect_silence(Script& s, const char* why) {
  SCOPED_TRACE(why);
  const AtomicRequest add{AtomicKind::kFetchAdd, s.key, s.address(0), 1};
  const engine::Arrival arrival{.length = 4};
  for (const Action& action :
       {s.check(s.at(0, 4), RemoteUse::kRead), s.check(s.at(0, 0), RemoteUse::kRead),
        s.write(s.at(0, 4), "abcd"), s.write(s.at(0, 0), ""), s.read(s.at(0, 4), "abcd"), s.atomic(add),
        s.begin_receive(arrival), s.place(0, "abcd"), s.finish_receive(arrival), s.deliver("abcd")})
    EXPECT_EQ(Verdict::kSilence, action());
  EXPECT_EQ(Verdict::kDone, s.fail(Verdict::kBadKey)()) << "there is nobody to fail";
  Effects nothing{.state = s.qp->state(), .memory = {{0, std::string(4, '\0')}}};
  s.expect(nothing);
}

TEST(Identity, AnotherRequesterMeetsSilence) {
  struct Case {
    const char* what;
    std::function<void(RequesterIdentity&)> change;
  };
  for (const Case& one :
       {Case{"QPN", [](auto& i) { ++i.qpn.value; }}, Case{"slot", [](auto& i) { i.qpn.value ^= 1 << 16; }},
        Case{"GID's first half", [](auto& i) { ++i.gid[0]; }},
        Case{"GID's second half", [](auto& i) { ++i.gid[1]; }},
        Case{"PSN", [](auto& i) { ++i.first_psn; }}}) {
    OwnerProcess owner;
    Script s(owner);
    (void)s.post(1, 0, 100)();
    auto identity = OwnerProcess::identity(s.setup);
    one.change(identity);
    s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), identity);
    expect_silence(s, one.what);
    // And it has bound nothing: the right one is served.
    s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
    s.play({{"the right one", s.deliver("abcd"), Verdict::kDone,
             Effects{.completions = {{1, IBV_WC_SUCCESS, 4}}}}});
  }
}

TEST(Identity, AnotherLifeOfTheRequesterMeetsSilence) {
  OwnerProcess owner;
  Script s(owner);
  (void)s.post(1, 0, 100)();
  s.play({{"first", s.check(s.at(0, 4), RemoteUse::kRead)}});
  auto later = OwnerProcess::identity(s.setup);
  ++later.incarnation;
  s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), later);
  expect_silence(s, "the target knows an earlier one");
}

TEST(Identity, OnlyStatesThatReceiveAnswer) {
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT}) {
    OwnerProcess owner;
    Script s(owner, {.state = state});
    expect_silence(s, state == IBV_QPS_RESET ? "RESET" : "INIT");
  }
  OwnerProcess owner;
  Script s(owner, {.state = IBV_QPS_RTR});
  (void)s.post(1, 0, 100)();
  s.play(
      {{"RTR receives, and learns that the other end is there", s.deliver("abcd"), Verdict::kDone,
        Effects{
            .completions = {{1, IBV_WC_SUCCESS, 4}}, .events = {IBV_EVENT_COMM_EST}, .state = IBV_QPS_RTR}}});
  Script drained(owner, {.peer_index = 101});
  OwnerProcess::move_to(*drained.qp, IBV_QPS_SQD);
  drained.play({{"SQD stops sending only", drained.check(drained.at(0, 4), RemoteUse::kRead), Verdict::kDone,
                 Effects{.state = IBV_QPS_SQD}}});
  OwnerProcess::move_to(*drained.qp, IBV_QPS_ERR);
  expect_silence(drained, "ERR");
}

TEST(Identity, ATargetThatWasResetIsAStranger) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"connected", s.check(s.at(0, 4), RemoteUse::kRead)}});
  OwnerProcess::move_to(*s.qp, IBV_QPS_RESET);
  expect_silence(s, "RESET");
  owner.connect(*s.qp, s.setup);
  expect_silence(s, "connected anew, with the same numbers: another life");
  s.responder = std::make_unique<Responder>(s.seen, s.qp->number(), OwnerProcess::identity(s.setup));
  s.play({{"a requester of this life", s.check(s.at(0, 4), RemoteUse::kRead)}});
}

TEST(Identity, NobodyThereIsSilence) {
  OwnerProcess owner;
  Script s(owner);
  s.responder = std::make_unique<Responder>(s.seen, base::Qpn{s.qp->number().value ^ 0x5555},
                                            OwnerProcess::identity(s.setup));
  expect_silence(s, "no such queue pair");
  Script destroyed(owner, {.peer_index = 101});
  destroyed.play({{"connected", destroyed.check(destroyed.at(0, 4), RemoteUse::kRead)}});
  destroyed.qp->destroy();
  expect_silence(destroyed, "destroyed");
  Script dead(owner, {.peer_index = 102});
  dead.play({{"connected", dead.check(dead.at(0, 4), RemoteUse::kRead)}});
  dead.seen->set_gone();
  expect_silence(dead, "its process is dead");
}

TEST(Identity, AnEntryInTheMiddleOfAChangeIsSilenceForNow) {
  OwnerProcess owner;
  Script s(owner);
  auto& word = owner.own_arena().qp(static_cast<uint16_t>(s.qp->number().value)).word;
  auto changing = arena::QpWord::unpack(word.get());
  const auto before = word.get();
  changing.state = arena::QpWord::kChanging;
  word.set(changing.pack());
  s.play({{"being written", s.check(s.at(0, 4), RemoteUse::kRead), Verdict::kSilence}});
  word.set(before);
  s.play({{"written", s.check(s.at(0, 4), RemoteUse::kRead)}});
}

TEST(Identity, AChangeOfAccessIsSeen) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"allowed", s.check(s.at(0, 4), RemoteUse::kWrite)}});
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_TRUE(s.qp->modify(attributes, IBV_QP_ACCESS_FLAGS));
  s.play({{"no more", s.check(s.at(0, 4), RemoteUse::kWrite), Verdict::kNotEnabled},
          {"but this", s.check(s.at(0, 4), RemoteUse::kRead)}});
}

// ---- One-sided ----

TEST(OneSided, WriteAndReadMoveBytesAndTellNobody) {
  OwnerProcess owner;
  Script s(owner);
  s.play({{"write", s.write(s.at(100, 5), "hello"), Verdict::kDone, Effects{.memory = {{100, "hello"}}}},
          {"read", s.read(s.at(98, 9), std::string("\0\0hello\0\0", 9))},
          {"the last byte", s.write(s.at(Script::kMemory - 1, 1), "!"), Verdict::kDone,
           Effects{.memory = {{Script::kMemory - 1, "!"}}}}});
}

TEST(OneSided, NothingIsCheckedOfAnEmptyRange) {
  OwnerProcess owner;
  Script s(owner);
  const RemoteRange nonsense{.key = 0xdeadbeef, .address = 1, .length = 0};
  s.play({{"check for reading", s.check(nonsense, RemoteUse::kRead)},
          {"check for writing", s.check(nonsense, RemoteUse::kWrite)},
          {"write", s.write(nonsense, "")},
          {"read", s.read(nonsense, "")}});
  Script closed(owner, {.peer_index = 101, .access = 0});
  closed.play(
      {{"but the queue pair must allow it", closed.check(nonsense, RemoteUse::kRead), Verdict::kNotEnabled}});
}

TEST(OneSided, KeysAreCheckedBeforeAnyByteMoves) {
  OwnerProcess owner;
  Script s(owner);
  const uint64_t begin = s.address(0);
  const auto reg = [&](unsigned access, uint32_t domain) {
    return owner.register_memory({begin + 64, 64, begin + 64, domain, access});
  };
  const uint32_t home = owner.domain()->handle();
  const uint32_t key = reg(kAnyRemote, home);
  const uint32_t readable = reg(IBV_ACCESS_REMOTE_READ, home);
  const uint32_t writable = reg(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE, home);
  const uint32_t foreign = reg(kAnyRemote, home + 1);
  const uint32_t gone = reg(kAnyRemote, home);
  ASSERT_TRUE(owner.process().deregister(gone));
  struct Case {
    RemoteRange range;
    Verdict writing;
    Verdict reading;
  };
  const Case cases[] = {
      {{key, begin + 64, 64}, Verdict::kDone, Verdict::kDone},
      {{key, begin + 63, 1}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, begin + 63, 64}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, begin + 65, 64}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, begin + 128, 1}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, begin + 64, UINT64_MAX}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, begin + 65, UINT64_MAX}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, UINT64_MAX, 64}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key, 0, 1}, Verdict::kBadBounds, Verdict::kBadBounds},
      {{key + 1, begin + 64, 1}, Verdict::kBadKey, Verdict::kBadKey},
      {{0, begin + 64, 1}, Verdict::kBadKey, Verdict::kBadKey},
      {{UINT32_MAX, begin + 64, 1}, Verdict::kBadKey, Verdict::kBadKey},
      {{arena::kMrEntries << 8 | 1, begin + 64, 1}, Verdict::kBadKey, Verdict::kBadKey},
      {{gone, begin + 64, 1}, Verdict::kBadKey, Verdict::kBadKey},
      {{readable, begin + 64, 1}, Verdict::kNoAccess, Verdict::kDone},
      {{writable, begin + 64, 1}, Verdict::kDone, Verdict::kNoAccess},
      {{foreign, begin + 64, 1}, Verdict::kWrongDomain, Verdict::kWrongDomain},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::PrintToString(std::tuple(one.range.key, one.range.address, one.range.length)));
    EXPECT_EQ(one.writing, s.check(one.range, RemoteUse::kWrite)());
    EXPECT_EQ(one.reading, s.check(one.range, RemoteUse::kRead)());
    if (one.range.length > 64) continue;
    if (one.writing != Verdict::kDone) {  // also without asking first: the owner may have deregistered since
      EXPECT_EQ(one.writing, s.write(one.range, std::string(one.range.length, 'x'))());
    }
    if (one.reading != Verdict::kDone) {
      EXPECT_EQ(one.reading, s.read(one.range, "")());
    }
  }
  s.expect({.memory = {{0, std::string(256, '\0')}}});
}

TEST(OneSided, AddressesCountFromTheRegionsIova) {
  OwnerProcess owner;
  Script s(owner);
  for (const uint64_t iova : {uint64_t{0}, uint64_t{0x100000}, UINT64_MAX - 63}) {
    const uint32_t key =
        owner.register_memory({s.address(512), 64, iova, owner.domain()->handle(), kAnyRemote});
    s.play({{"its third byte", s.write({key, iova + 2, 2}, "ab"), Verdict::kDone,
             Effects{.memory = {{512, std::string("\0\0ab\0", 5)}}}},
            {"behind its end", s.write({key, iova + 63, 2}, "xy"), Verdict::kBadBounds},
            {"before its begin", s.write({key, iova - 1, 2}, "xy"), Verdict::kBadBounds},
            {"tidy", s.write({key, iova + 2, 2}, std::string(2, '\0'))}});
  }
}

TEST(OneSided, SharedMemoryIsWrittenWhereItIsMapped) {
  OwnerProcess owner;
  Script s(owner);
  std::vector<std::byte> mapping(4096);  // stands for the same pages, seen from here
  owner.own_arena().mr(s.key >> 8).mode.set(static_cast<uint32_t>(arena::MrMode::kFile));
  s.seen->mappings[s.key] = mapping.data();
  s.play({{"write", s.write(s.at(16, 20), "twenty bytes, exactly")},
          {"read", s.read(s.at(16, 20), "twenty bytes, exactl")}});
  EXPECT_EQ(0, std::memcmp(mapping.data() + 16, "twenty bytes, exactl", 20));
  EXPECT_EQ(0u, s.seen->scripted_memory().copies) << "the kernel wasn't asked";
  s.seen->mappings.clear();
  s.play({{"where it can't be mapped", s.write(s.at(16, 2), "ab"), Verdict::kDone,
           Effects{.memory = {{16, "ab"}}}}});
}

TEST(OneSided, WhatTheCopyFoundIsTold) {
  OwnerProcess owner;
  Script s(owner);
  const std::pair<Copied, Verdict> answers[] = {{Copied::kFaultHere, Verdict::kFaultHere},
                                                {Copied::kFaultThere, Verdict::kUnmapped},
                                                {Copied::kOwnerGone, Verdict::kSilence}};
  for (const auto& [copied, verdict] : answers) {
    s.seen->scripted_memory().instead = copied;
    s.play({{"write", s.write(s.at(0, 2), "ab"), verdict}, {"read", s.read(s.at(0, 2), "ab"), verdict}});
  }
}

TEST(OneSided, MemoryUnmappedWhileRegisteredIsADefinedError) {
  OwnerProcess owner;
  Script s(owner);
  auto* page = static_cast<std::byte*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const uint32_t key = owner.register_memory({page, 4096}, kAnyRemote);
  const RemoteRange range{key, reinterpret_cast<uint64_t>(page) + 8, 4};
  s.play({{"there", s.write(range, "abcd")}});
  ASSERT_EQ(0, ::munmap(page, 4096));
  s.play({{"write", s.write(range, "abcd"), Verdict::kUnmapped},
          {"read", s.read(range, "abcd"), Verdict::kUnmapped}});
}

TEST(Atomic, AddsAndSwaps) {
  OwnerProcess owner;
  Script s(owner);
  const auto word = [&] {
    uint64_t value = 0;
    std::memcpy(&value, s.memory.data() + 8, sizeof value);
    return value;
  };
  s.play({{"add", s.atomic({AtomicKind::kFetchAdd, s.key, s.address(8), 5}, 0)},
          {"add", s.atomic({AtomicKind::kFetchAdd, s.key, s.address(8), UINT64_MAX}, 5)},
          {"swap", s.atomic({AtomicKind::kCompareSwap, s.key, s.address(8), 4, 77}, 4)},
          {"no match", s.atomic({AtomicKind::kCompareSwap, s.key, s.address(8), 4, 99}, 77)}});
  EXPECT_EQ(77u, word());
}

TEST(Atomic, IsRefusedWhereItMayNotBe) {
  OwnerProcess owner;
  Script s(owner);
  const auto add = [&](uint32_t key, uint64_t address) {
    return s.atomic({AtomicKind::kFetchAdd, key, address, 1});
  };
  const uint32_t plain = owner.register_memory(
      s.memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  // Aligned as the requester counts, but not where it lies.
  const uint32_t shifted =
      owner.register_memory({s.address(4), 64, 0x1000, owner.domain()->handle(), kAnyRemote});
  s.play({{"misaligned", add(s.key, s.address(1)), Verdict::kMisaligned},
          {"misaligned in the owner's memory", add(shifted, 0x1000), Verdict::kMisaligned},
          {"no access", add(plain, s.address(0)), Verdict::kNoAccess},
          {"out of bounds", add(s.key, s.address(Script::kMemory)), Verdict::kBadBounds},
          {"bad key", add(s.key ^ 1, s.address(0)), Verdict::kBadKey},
          {"nothing has changed", s.read(s.at(0, 8), std::string(8, '\0'))}});
  Script closed(owner, {.peer_index = 101, .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ});
  closed.play({{"not enabled", closed.atomic({AtomicKind::kFetchAdd, closed.key, closed.address(0), 1}),
                Verdict::kNotEnabled}});
}

}  // namespace
}  // namespace verbena::verbs
