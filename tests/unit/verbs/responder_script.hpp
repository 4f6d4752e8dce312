// The responder's actions as a play for two in one process. The owner is a verbs::Process with its segments,
// regions and queue pairs; the requester is a Responder that sees those segments as a peer's process would,
// tables read-only. A script is a list of lines: an action, the verdict it must give, and everything that the
// owner must then notice, and nothing more.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arena/segment.hpp"
#include "verbs/own_memory.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/responder.hpp"
#include "verbs/send_path.hpp"

namespace verbena::verbs {

inline constexpr base::Slot kOwnerSlot{3};
inline constexpr base::Slot kRequesterSlot{7};
inline constexpr unsigned kAnyRemote =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// The owner's memory: ours, unless a test wants it otherwise.
class ScriptedMemory final : public engine::MemoryAccessor {
 public:
  [[nodiscard]] engine::Copied write(std::span<const iovec> here, std::span<const iovec> there,
                                     engine::Tail tail) override;
  [[nodiscard]] engine::Copied read(std::span<const iovec> here, std::span<const iovec> there,
                                    engine::Tail tail) override;
  std::optional<engine::Copied> instead;  // the answer, without a copy
  std::function<void()> before_copy;      // once, as if the owner were just then scheduled
  std::atomic<unsigned> copies = 0;

 private:
  OwnMemory own_;
};

// The owner as the requester's process knows it.
class ScriptedOwner final : public QueueOwner {
 public:
  explicit ScriptedOwner(arena::ProcessArena arena) : QueueOwner(arena) {}

  [[nodiscard]] engine::MemoryAccessor& memory() override { return memory_; }
  void wake_helper() override { ++wakes; }
  void ring_channel(uint16_t cq) override { rung.push_back(cq); }
  [[nodiscard]] HeldMemory mapped(uint32_t key, uint64_t address, uint64_t length) override;
  [[nodiscard]] HeldMemory atomic_target(const engine::AtomicRequest& request, const Region& region) override;

  [[nodiscard]] ScriptedMemory& scripted_memory() { return memory_; }
  unsigned wakes = 0;
  std::vector<uint16_t> rung;
  bool atomics_here = true;                 // false: only the owner's own process can run them
  std::map<uint32_t, std::byte*> mappings;  // by key: where a region of shared memory is mapped here

 private:
  ScriptedMemory memory_;
};

struct QpSetup {
  base::Slot peer = kRequesterSlot;
  uint16_t peer_index = 100;  // of the requester's queue pair
  unsigned access = kAnyRemote;
  uint32_t receives = 32;
  uint32_t pieces = 4;
  ibv_qp_state state = IBV_QPS_RTS;
  bool signal_all = false;
  std::shared_ptr<SharedReceiveQueue> srq = {};  // instead of receives of its own
};

// A way for requests on which nobody answers.
class PathToNowhere : public SendPath {
 public:
  [[nodiscard]] SendOutcome advance(const SendRequest&, SendProgress&, uint64_t) override {
    return {SendOutcome::Kind::kSilent, IBV_WC_SUCCESS, engine::Verdict::kSilence};
  }
  void begin(uint32_t) override {}
  [[nodiscard]] uint8_t rnr_timer_code() const override { return 1; }
  [[nodiscard]] bool peer_gone() const override { return false; }
  [[nodiscard]] bool ask_for_receive() override { return true; }
  void tell_posted() override {}
};

// A process that owns queue pairs.
class OwnerProcess {
 public:
  OwnerProcess();
  ~OwnerProcess();
  OwnerProcess(const OwnerProcess&) = delete;
  OwnerProcess& operator=(const OwnerProcess&) = delete;

  [[nodiscard]] Process& process() { return *process_; }
  // The view of the process in that slot; rings are shared, tables can't be written through it.
  [[nodiscard]] std::shared_ptr<ScriptedOwner> seen_from(base::Slot slot);
  // Where it keeps its own tables: for lies that the owner tells.
  [[nodiscard]] const arena::ProcessArena& own_arena() const { return process_->arena(); }

  [[nodiscard]] std::shared_ptr<ProtectionDomain> domain() const { return domain_; }
  [[nodiscard]] uint32_t register_memory(std::span<std::byte> memory, unsigned access);
  [[nodiscard]] uint32_t register_memory(const RegionRequest& request);
  [[nodiscard]] std::shared_ptr<CompletionQueue> make_cq(int cqe, CompletionChannel* channel = nullptr);
  [[nodiscard]] std::shared_ptr<SharedReceiveQueue> make_srq(uint32_t max_wr, uint32_t max_sge = 4);
  // `path`: who makes the way for its own requests; null: one that leads nowhere.
  [[nodiscard]] std::shared_ptr<QueuePair> make_qp(const std::shared_ptr<CompletionQueue>& cq,
                                                   const QpSetup& setup,
                                                   std::function<std::unique_ptr<SendPath>()> path = {});
  // From RESET up to the state asked for.
  void connect(QueuePair& queue_pair, const QpSetup& setup);
  static void move_to(QueuePair& queue_pair, ibv_qp_state state);
  // Who the setup's requester is to such a queue pair.
  [[nodiscard]] static RequesterIdentity identity(const QpSetup& setup);

  [[nodiscard]] std::vector<ibv_event_type> take_events();

 private:
  arena::Segment tables_;
  arena::Segment rings_;
  std::byte* peers_tables_ = nullptr;
  std::byte* peers_rings_ = nullptr;
  std::unique_ptr<Process> process_;
  std::map<uint8_t, std::shared_ptr<ScriptedOwner>> seen_;
  ProtectionDomains domains_;
  std::shared_ptr<ProtectionDomain> domain_;
  std::unique_ptr<EventQueue> events_;
};

// A completion, as the owner's program sees it.
struct Completed {
  uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t length = 0;  // of a success
  ibv_wc_opcode opcode = IBV_WC_RECV;
  std::optional<uint32_t> imm = std::nullopt;
};
[[nodiscard]] std::string text_of(const Completed& completed);
[[nodiscard]] Completed completed_of(const ibv_wc& completion);
// Until there is none any more.
[[nodiscard]] std::vector<ibv_wc> poll_all(CompletionQueue& queue);

struct Bytes {
  size_t at = 0;  // offset in the script's memory
  std::string text;
};

// What the owner notices.
struct Effects {
  std::vector<Completed> completions = {};
  std::vector<ibv_event_type> events = {};
  ibv_qp_state state = IBV_QPS_RTS;
  std::vector<Bytes> memory = {};
};
inline const Effects kNothing{};
inline constexpr std::nullopt_t kUnseen = std::nullopt;  // the owner doesn't look

using Action = std::function<engine::Verdict()>;

struct Line {
  const char* what;
  Action action;
  engine::Verdict verdict = engine::Verdict::kDone;
  std::optional<Effects> effects = kNothing;
};

// One connection: a queue pair of the owner's, and a requester connected to it.
class Script {
 public:
  static constexpr size_t kMemory = 1 << 20;

  explicit Script(OwnerProcess& owner, const QpSetup& setup = {}, std::shared_ptr<CompletionQueue> cq = {});
  ~Script();
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  void play(std::initializer_list<Line> lines);
  void play(const Line& line);
  void expect(const Effects& effects);

  // The requester's actions.
  [[nodiscard]] Action check(engine::RemoteRange range, engine::RemoteUse use);
  [[nodiscard]] Action write(engine::RemoteRange range, std::string text);
  [[nodiscard]] Action read(engine::RemoteRange range, std::string expected);
  [[nodiscard]] Action atomic(engine::AtomicRequest request, uint64_t expected_before = 0);
  [[nodiscard]] Action begin_receive(engine::Arrival arrival);
  [[nodiscard]] Action place(uint64_t offset, std::string text);
  [[nodiscard]] Action finish_receive(engine::Arrival arrival);
  [[nodiscard]] Action deliver(std::string text, engine::Arrival arrival = {});
  [[nodiscard]] Action fail(engine::Verdict why, bool consumes_receive = false);
  // The owner's: each gives kDone.
  [[nodiscard]] Action post(uint64_t wr_id, size_t at, uint32_t length);
  [[nodiscard]] Action post(uint64_t wr_id, std::vector<ibv_sge> pieces);
  [[nodiscard]] static Action owner(std::function<void()> does);

  // How many messages its ring holds.
  [[nodiscard]] uint32_t ring_slots() const {
    return owner_process.own_arena().qp(static_cast<uint16_t>(qp->number().value)).ring_slots.get();
  }
  // A range of the script's memory, by the key of a region that allows everything.
  [[nodiscard]] engine::RemoteRange at(size_t offset, uint64_t length) const {
    return {key, address(offset), length};
  }
  [[nodiscard]] uint64_t address(size_t offset) const {
    return reinterpret_cast<uint64_t>(memory.data() + offset);
  }
  [[nodiscard]] std::string text_at(size_t offset, size_t length) const {
    return {reinterpret_cast<const char*>(memory.data()) + offset, length};
  }

  OwnerProcess& owner_process;
  QpSetup setup;
  std::vector<std::byte> memory;
  uint32_t key = 0;
  std::shared_ptr<CompletionQueue> cq;
  std::shared_ptr<QueuePair> qp;
  std::shared_ptr<ScriptedOwner> seen;
  std::unique_ptr<Responder> responder;
};

}  // namespace verbena::verbs
