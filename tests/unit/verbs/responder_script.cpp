#include "responder_script.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

namespace verbena::verbs {
namespace {

using engine::Arrival;
using engine::Copied;
using engine::Tail;
using engine::Verdict;

constexpr size_t kGuard = size_t{16} << 20;  // around what a peer maps: whoever leaves it dies at once

std::byte* map_guarded(int fd, size_t size, int protection) {
  void* room =
      ::mmap(nullptr, size + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(MAP_FAILED, room);
  auto* inside = static_cast<std::byte*>(room) + kGuard;
  EXPECT_EQ(inside, ::mmap(inside, size, protection, MAP_SHARED | MAP_FIXED, fd, 0)) << std::strerror(errno);
  return inside;
}

class ScriptedPaths final : public PathMaker {
 public:
  explicit ScriptedPaths(std::function<std::unique_ptr<SendPath>()> make) : make_(std::move(make)) {}
  [[nodiscard]] base::Result<PathPlan> plan(const PathWish& wish) override {
    PathPlan plan;
    plan.path = make_ ? make_() : std::make_unique<PathToNowhere>();
    plan.peer_known = true;
    plan.peer_slot = base::Qpn{wish.attributes.dest_qp_num}.slot();
    plan.peer_epoch = 1;
    return plan;
  }
  [[nodiscard]] std::vector<PortFacts> ports() override {
    PortFacts facts;
    facts.gids[0] = true;
    facts.active_mtu = IBV_MTU_4096;
    return {facts};
  }

 private:
  std::function<std::unique_ptr<SendPath>()> make_;
};

uint32_t first_psn(const QpSetup& setup) { return 1000u + setup.peer_index; }

iovec piece_of(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

Copied ScriptedMemory::write(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  ++copies;
  if (before_copy) std::exchange(before_copy, {})();
  return instead ? *instead : own_.write(here, there, tail);
}

Copied ScriptedMemory::read(std::span<const iovec> here, std::span<const iovec> there, Tail tail) {
  ++copies;
  if (before_copy) std::exchange(before_copy, {})();
  return instead ? *instead : own_.read(here, there, tail);
}

HeldMemory ScriptedOwner::mapped(uint32_t key, uint64_t address, uint64_t) {
  const auto found = mappings.find(key);
  if (found == mappings.end()) return nullptr;
  return {std::shared_ptr<void>{}, found->second + (address - arena().mr(key >> 8).iova.get())};
}

HeldMemory ScriptedOwner::atomic_target(const engine::AtomicRequest&, const Region& region) {
  if (!atomics_here) return nullptr;
  return {std::shared_ptr<void>{}, reinterpret_cast<std::byte*>(region.address)};
}

OwnerProcess::OwnerProcess() {
  tables_ =
      std::move(*arena::create_sealed(arena::kTablesName, arena::kTablesSize, arena::Sharing::kOwnerWrites));
  rings_ =
      std::move(*arena::create_sealed(arena::kRingsName, arena::kRingsSize, arena::Sharing::kPeersWrite));
  peers_tables_ = map_guarded(tables_.fd.get(), arena::kTablesSize, PROT_READ);
  peers_rings_ = map_guarded(rings_.fd.get(), arena::kRingsSize, PROT_READ | PROT_WRITE);
  process_ = std::make_unique<Process>(arena::ProcessArena(tables_.mapping.data(), rings_.mapping.data()),
                                       kOwnerSlot);
  domain_ = *domains_.allocate("verbena0");
  events_ = std::move(*EventQueue::create());
  EXPECT_EQ(0, ::fcntl(events_->fd(), F_SETFL, O_NONBLOCK));
}

OwnerProcess::~OwnerProcess() {
  ::munmap(peers_tables_ - kGuard, arena::kTablesSize + 2 * kGuard);
  ::munmap(peers_rings_ - kGuard, arena::kRingsSize + 2 * kGuard);
}

std::shared_ptr<ScriptedOwner> OwnerProcess::seen_from(base::Slot slot) {
  auto& seen = seen_[slot.value];
  if (!seen) {
    seen = std::make_shared<ScriptedOwner>(arena::ProcessArena(peers_tables_, peers_rings_));
    seen->arena().rings_head().hazard_users[slot.value / 64].atomic().fetch_or(uint64_t{1}
                                                                               << slot.value % 64);
  }
  return seen;
}

uint32_t OwnerProcess::register_memory(std::span<std::byte> memory, unsigned access) {
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  return register_memory({.address = address,
                          .length = memory.size(),
                          .iova = address,
                          .domain = domain_->handle(),
                          .access = access});
}

uint32_t OwnerProcess::register_memory(const RegionRequest& request) {
  const auto key = process_->regions().add(request);
  EXPECT_TRUE(key) << (key ? "" : key.error().sentence);
  return key ? *key : 0;
}

std::shared_ptr<CompletionQueue> OwnerProcess::make_cq(int cqe, CompletionChannel* channel) {
  return *CompletionQueue::create(*process_, {.cqe = cqe, .channel = channel, .events = events_.get()});
}

std::shared_ptr<SharedReceiveQueue> OwnerProcess::make_srq(uint32_t max_wr, uint32_t max_sge) {
  auto made = SharedReceiveQueue::create(*process_, {domain_, max_wr, max_sge, events_.get(), this});
  EXPECT_TRUE(made) << (made ? "" : made.error().sentence);
  return made ? *made : nullptr;
}

std::shared_ptr<QueuePair> OwnerProcess::make_qp(const std::shared_ptr<CompletionQueue>& cq,
                                                 const QpSetup& setup,
                                                 std::function<std::unique_ptr<SendPath>()> path) {
  auto made = QueuePair::create(*process_, {.domain = domain_,
                                            .send_cq = cq,
                                            .recv_cq = cq,
                                            .caps = {.max_send_wr = 16,
                                                     .max_recv_wr = setup.receives,
                                                     .max_send_sge = 4,
                                                     .max_recv_sge = setup.pieces,
                                                     .max_inline_data = 256},
                                            .signal_all = setup.signal_all,
                                            .paths = std::make_shared<ScriptedPaths>(std::move(path)),
                                            .events = events_.get(),
                                            .srq = setup.srq});
  EXPECT_TRUE(made) << (made ? "" : made.error().sentence);
  if (!made) return nullptr;
  connect(**made, setup);
  return *made;
}

RequesterIdentity OwnerProcess::identity(const QpSetup& setup) {
  return {.qpn = base::Qpn::make(setup.peer, setup.peer_index),
          .incarnation = 1,
          .first_psn = first_psn(setup),
          .gid = {0x11, 0x2200u + setup.peer.value},
          .accessor = setup.peer};
}

void OwnerProcess::connect(QueuePair& queue_pair, const QpSetup& setup) {
  const auto step = [&](ibv_qp_state state, ibv_qp_attr attributes, int mask) {
    if (setup.state < state) return;
    attributes.qp_state = state;
    const auto moved = queue_pair.modify(attributes, mask | IBV_QP_STATE);
    EXPECT_TRUE(moved) << (moved ? "" : moved.error().sentence);
  };
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.qp_access_flags = setup.access;
  step(IBV_QPS_INIT, attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  const auto peer = identity(setup);
  attributes = {};
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof peer.gid);
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.qpn.value;
  attributes.rq_psn = peer.first_psn;
  attributes.max_dest_rd_atomic = 16;
  attributes.min_rnr_timer = 12;
  step(IBV_QPS_RTR, attributes,
       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_MIN_RNR_TIMER);
  attributes = {};
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 16;
  step(IBV_QPS_RTS, attributes,
       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void OwnerProcess::move_to(QueuePair& queue_pair, ibv_qp_state state) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  const auto moved = queue_pair.modify(attributes, IBV_QP_STATE);
  EXPECT_TRUE(moved) << (moved ? "" : moved.error().sentence);
}

std::vector<ibv_event_type> OwnerProcess::take_events() {
  std::vector<ibv_event_type> taken;
  while (const auto event = events_->take()) taken.push_back(static_cast<ibv_event_type>(event->type));
  return taken;
}

std::string text_of(const Completed& completed) {
  if (completed.status != IBV_WC_SUCCESS)
    return fmt::format("wr {}: status {}", completed.wr_id, static_cast<int>(completed.status));
  return fmt::format("wr {}: opcode {}, {} bytes{}", completed.wr_id, static_cast<int>(completed.opcode),
                     completed.length, completed.imm ? fmt::format(", immediate {}", *completed.imm) : "");
}

Completed completed_of(const ibv_wc& completion) {
  Completed completed{.wr_id = completion.wr_id,
                      .status = completion.status,
                      .length = completion.byte_len,
                      .opcode = completion.opcode};
  if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) completed.imm = completion.imm_data;
  return completed;
}

std::vector<ibv_wc> poll_all(CompletionQueue& queue) {
  std::vector<ibv_wc> all;
  ibv_wc some[8];
  // A poll that finds a failure returns nothing yet: what the failure flushes comes with the next.
  for (int empty = 0; empty < 2;) {
    const int got = queue.poll(8, some);
    empty = got > 0 ? 0 : empty + 1;
    if (got > 0) all.insert(all.end(), some, some + got);
  }
  return all;
}

Script::Script(OwnerProcess& owner, const QpSetup& wanted, std::shared_ptr<CompletionQueue> queue)
    : owner_process(owner),
      setup(wanted),
      memory(kMemory),
      cq(queue ? std::move(queue) : owner.make_cq(256)) {
  key = owner.register_memory(memory, kAnyRemote);
  qp = owner.make_qp(cq, setup);
  seen = owner.seen_from(setup.peer);
  responder = std::make_unique<Responder>(seen, qp->number(), OwnerProcess::identity(setup));
}

Script::~Script() {
  if (qp) qp->destroy();
  (void)owner_process.process().work();
  (void)owner_process.process().deregister(key);
}

void Script::play(std::initializer_list<Line> lines) {
  for (const Line& line : lines) play(line);
}

void Script::play(const Line& line) {
  SCOPED_TRACE(line.what);
  EXPECT_EQ(static_cast<int>(line.verdict), static_cast<int>(line.action()));
  if (line.effects) expect(*line.effects);
}

void Script::expect(const Effects& effects) {
  std::vector<std::string> expected;
  std::vector<std::string> got;
  for (const Completed& completed : effects.completions) expected.push_back(text_of(completed));
  for (const ibv_wc& completion : poll_all(*cq)) {
    got.push_back(text_of(completed_of(completion)));
    EXPECT_EQ(qp->number().value, completion.qp_num);
  }
  EXPECT_EQ(expected, got);
  EXPECT_EQ(effects.events, owner_process.take_events());
  EXPECT_EQ(effects.state, qp->state());
  for (const Bytes& bytes : effects.memory) EXPECT_EQ(bytes.text, text_at(bytes.at, bytes.text.size()));
}

Action Script::check(engine::RemoteRange range, engine::RemoteUse use) {
  return [this, range, use] { return responder->check(range, use); };
}

Action Script::write(engine::RemoteRange range, std::string text) {
  return [this, range, text] {
    const iovec from = piece_of(text);
    return responder->write(range, {&from, 1}, Tail::kLast);
  };
}

Action Script::read(engine::RemoteRange range, std::string expected) {
  return [this, range, expected] {
    std::string got(range.length, '?');
    const iovec into = piece_of(got);
    const Verdict verdict = responder->read(range, {&into, 1}, Tail::kLast);
    if (verdict == Verdict::kDone) {
      EXPECT_EQ(expected, got);
    }
    return verdict;
  };
}

Action Script::atomic(engine::AtomicRequest request, uint64_t expected_before) {
  return [this, request, expected_before] {
    uint64_t before = 0;
    const Verdict verdict = responder->atomic(request, before);
    if (verdict == Verdict::kDone) {
      EXPECT_EQ(expected_before, before);
    }
    return verdict;
  };
}

Action Script::begin_receive(Arrival arrival) {
  return [this, arrival] { return responder->begin_receive(arrival); };
}

Action Script::place(uint64_t offset, std::string text) {
  return [this, offset, text] {
    const iovec from = piece_of(text);
    return responder->place(offset, {&from, 1}, Tail::kAnyOrder);
  };
}

Action Script::finish_receive(Arrival arrival) {
  return [this, arrival] { return responder->finish_receive(arrival); };
}

Action Script::deliver(std::string text, Arrival arrival) {
  return [this, text, arrival]() mutable {
    arrival.length = text.size();
    const iovec from = piece_of(text);
    return responder->deliver(arrival, {&from, 1});
  };
}

Action Script::fail(Verdict why, bool consumes_receive) {
  return [this, why, consumes_receive] { return responder->fail(why, consumes_receive); };
}

Action Script::post(uint64_t wr_id, size_t at_offset, uint32_t length) {
  return post(wr_id, {{.addr = address(at_offset), .length = length, .lkey = key}});
}

Action Script::post(uint64_t wr_id, std::vector<ibv_sge> pieces) {
  return owner([this, wr_id, pieces]() mutable {
    ibv_recv_wr request{.wr_id = wr_id, .sg_list = pieces.data(), .num_sge = static_cast<int>(pieces.size())};
    EXPECT_EQ(0, qp->post_recv(&request, nullptr));
  });
}

Action Script::owner(std::function<void()> does) {
  return [does] {
    does();
    return Verdict::kDone;
  };
}

}  // namespace verbena::verbs
