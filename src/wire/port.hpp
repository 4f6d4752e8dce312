// This process's end of the network: takes packets in, hands them to their connections, sends what those
// have.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <utility>
#include <vector>

#include "arena/counter_table.hpp"
#include "base/lock.hpp"
#include "base/numbers.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "engine/packet_sink.hpp"
#include "engine/rc_requester.hpp"
#include "net/counter.hpp"
#include "net/link.hpp"
#include "net/multicast.hpp"
#include "net/transmitter.hpp"
#include "roce/greeting.hpp"
#include "roce/icrc.hpp"
#include "verbs/access_burst.hpp"
#include "verbs/process.hpp"
#include "verbs/send_queue.hpp"
#include "wire/acquaintances.hpp"
#include "wire/drops.hpp"
#include "wire/lanes.hpp"
#include "wire/pacing.hpp"

namespace verbena::wire {

inline constexpr unsigned kBurst = 64;  // packets that one turn of a connection sends, to the end of a run

// One queue pair's end. All but schedule's fields are used under the port's receiving lock.
class Connection {
 public:
  virtual ~Connection() = default;
  [[nodiscard]] virtual base::Qpn own() const = 0;
  // The only way that its packets come and go; null: any.
  [[nodiscard]] virtual const net::Route* route() const = 0;
  // Another one by which they may come; null: none.
  [[nodiscard]] virtual const net::Route* alternate() const { return nullptr; }
  // The peer has changed its path to one that we don't know.
  virtual void refuse_path() {}
  virtual Drop on_packet(base::Instant now, const roce::Packet& packet, const net::Received& received) = 0;
  // After a packet that on_packet() took, and that isn't the last of its message: others like it came with
  // it. How many were taken.
  virtual size_t on_more(base::Instant now, const roce::Packet& before, engine::MorePayloads& payloads) {
    (void)now, (void)before, (void)payloads;
    return 0;
  }
  // Its peer turned out to be Verbena: segmented sends from now on.
  virtual void recognise() = 0;
  [[nodiscard]] virtual bool recognised() const = 0;
  // After a batch of packets, when a timer is due, or when it had more to send: sends what may be sent.
  virtual void go_on(base::Instant now) = 0;
  // Sends the acknowledgement that was put off, if it hasn't left by now.
  virtual void acknowledge(base::Instant) {}
  [[nodiscard]] bool owes_acknowledgement() const { return owes_.load(std::memory_order_relaxed); }

 private:
  friend class Port;
  bool dirty_ = false;              // got packets in this batch
  std::atomic<bool> owes_ = false;  // an acknowledgement was put off, and hasn't left
  bool for_a_post_ = false;         // by a helper, which expected one to take it along
  unsigned refrain_ = 0;            // times that helpers don't, since none took the last along
  // Written under the port's schedule lock.
  std::atomic<bool> queued_ = false;
  std::atomic<int64_t> timer_ = INT64_MAX;
};

class Port final : public verbs::Wire, private net::Sink {
 public:
  // `wake` has the helper thread look around.
  // Counters are published in `shown`. A packet for another process of this host goes to `pass_on`.
  struct Environment {
    std::function<void()> wake;
    arena::CounterTable* shown = nullptr;
    std::function<void(const net::Received&)> pass_on;
    // Processes of this host that datagrams reach without a socket, and where theirs come to.
    arena::ProcessArena own{};
    Lanes::Meet meet{};
  };
  Port(std::unique_ptr<net::Link> link, base::Slot slot, Environment environment);
  ~Port() override;

  void add(Connection& connection);
  // Returns when nobody is inside it any more.
  void remove(Connection& connection);

  // What comes to the group goes to that datagram queue pair, too. EINVAL: it is attached already.
  [[nodiscard]] base::Result<void> attach(base::Qpn queue_pair, const net::Address& group,
                                          std::span<const uint32_t> interfaces);
  // EINVAL: it isn't attached.
  [[nodiscard]] base::Result<void> detach(base::Qpn queue_pair, const net::Address& group);
  void detach_all(base::Qpn queue_pair);

  [[nodiscard]] bool active() const override { return count_.load(std::memory_order_relaxed) != 0; }
  bool drive(base::Instant now, Driver driver) override;
  // Some thread is sending or taking packets in.
  [[nodiscard]] bool busy() const { return receiving_.held() || sending_.held(); }
  // When a thread that polls last began to.
  [[nodiscard]] base::Instant driven_at() const { return {driven_at_.load(std::memory_order_relaxed)}; }
  // When drive() is due though nothing comes in.
  [[nodiscard]] base::Instant next_due();
  // The helper thread sleeps until then: whoever schedules something earlier wakes it.
  void promise(base::Instant until) { promised_.store(until.ns); }
  [[nodiscard]] int fd() const { return link_->fd(); }

  // Whether the host at the other end of the route is known to be Verbena. Who isn't known is asked.
  [[nodiscard]] bool knows(const net::Route& route) {
    return acquaintances_.look_up(route) == Acquaintances::Word::kVerbena;
  }

  // Datagrams to that process of this host may go past the socket; call it before they are sent.
  void prepare_lane(base::Slot to) { lanes_.prepare(to, sending_); }
  // With the sending lock held, by Sending; null: there is none.
  [[nodiscard]] Lane* lane(base::Slot to) { return lanes_.find(to); }
  // The process in that slot is no more.
  void part(base::Slot slot) {
    const std::lock_guard lock(sending_);
    lanes_.part(slot);
  }

  // An acknowledgement needn't leave before the program goes on: its next post takes it along, or its next
  // poll sends it, or the helper, or the program's end. False: it must leave now.
  [[nodiscard]] bool put_off(Connection& connection);
  // Since when one waits that was put off; INT64_MAX: none does. It may have left since, with a post.
  [[nodiscard]] base::Instant owing_since() const { return {owing_since_.load(std::memory_order_relaxed)}; }
  // The connection's acknowledgement has left.
  static void settle(Connection& connection) { connection.owes_.store(false, std::memory_order_relaxed); }
  // The program ends.
  void acknowledge_all();
  // Runs while no packet is being taken in.
  template <typename Change>
  void while_nothing_comes(Change change) {
    const std::lock_guard lock(receiving_);
    change();
  }

  // Has go_on() called at `due`, or at the next drive() if that has passed. With a lock held under which
  // go_on() looks at what the caller has changed.
  void schedule(Connection& connection, base::Instant due, base::Instant now);
  // More has come than a turn takes in: what a timer waits for may be among it. With the receiving lock held.
  [[nodiscard]] bool behind() const { return behind_; }
  // A packet that another process got in our stead and passed on.
  void take_stray(base::Instant now, const net::Received& received);
  // A queue pair failed while the receiving lock is held: concluded by drive().
  void conclude_later(verbs::SendQueue::Failure failure);

  // Where a connection emits packets; holds the sending lock.
  class Sending final : public engine::PacketSink {
   public:
    enum class Pace : uint8_t {
      kOwn,    // the sender sees to it by acknowledgements
      kPaced,  // as `Pacing` says
    };
    // Whether a connection's peer is recognised it knows better than its route; `migrated`: BTH's MigReq in
    // all packets.
    Sending(Port& port, const net::Route& route, bool recognised, base::Instant now, Pace pace,
            bool migrated = true)
        : port_(port),
          route_(route),
          now_(now),
          paced_(pace == Pace::kPaced),
          migrated_(migrated),
          lock_(port.sending_) {
      route_.recognised = recognised;
    }
    ~Sending() {
      if (waiting() > 0) port_.unsent_.store(true, std::memory_order_relaxed);
    }
    [[nodiscard]] bool ready() override { return !paced_ || port_.pacing_.open(route_, now_); }
    // Has the connection called when it may go on, after it stopped because of ready().
    void await_turn(Connection& connection);
    [[nodiscard]] std::span<std::byte> room(uint8_t opcode, size_t payload_bytes) override;
    void commit(const roce::Packet& packet) override;
    [[nodiscard]] size_t run_room(uint8_t opcode, size_t payload_bytes) override;
    void commit_run(const roce::Packet& first, std::span<const std::byte> memory,
                    size_t payload_bytes) override;
    // An acknowledgement that mustn't come after what is committed next, up to flush().
    void carry(const roce::Packet& acknowledgement);
    void flush() { port_.transmitter_.flush(); }
    [[nodiscard]] size_t waiting() const { return port_.transmitter_.waiting(); }
    // Has the engine send until it has no more, or has had its turn: true. A run that goes on isn't cut: two
    // short ones cost twice as much.
    template <typename Engine>
    bool send_from(Engine& engine) {
      const uint64_t before = port_.transmitter_.counters().packets;
      const auto enough = [&] {
        const uint64_t sent = port_.transmitter_.counters().packets - before;
        return sent >= kBurst && (waiting() == 0 || sent >= 2 * kBurst);
      };
      while (!enough())
        if (!engine.poll_transmit(now_, *this)) return false;
      return true;
    }
    void turn_to(const net::Route& route) { route_ = route; }

   private:
    Port& port_;
    net::Route route_;
    base::Instant now_;
    bool paced_;
    bool migrated_;
    std::lock_guard<base::Lock> lock_;
    verbs::AccessBurst memory_;
    std::span<std::byte> space_;
  };

  struct Counters {
    net::Counter packets;
    DropCounters drops;
    // What requesters did again, and why; any thread.
    std::atomic<uint64_t> retransmitted = 0;
    std::atomic<uint64_t> timeouts = 0;
    std::atomic<uint64_t> sequence_naks = 0;
    std::atomic<uint64_t> rnr_naks = 0;
    std::atomic<uint64_t> implied_losses = 0;
  };
  // Packets of all requesters that aren't acknowledged yet, as they last told.
  [[nodiscard]] int64_t under_way() const { return under_way_.load(std::memory_order_relaxed); }
  void add_under_way(int64_t packets) {
    if (packets != 0) under_way_.fetch_add(packets, std::memory_order_relaxed);
  }
  // What a requester has counted, since it was last told.
  void account(const engine::RcRequester::Counters& now, engine::RcRequester::Counters& told);
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Timer {
    base::Instant due;
    uint16_t index;
    bool operator>(const Timer& other) const { return due > other.due; }
  };
  struct Membership {
    base::Qpn queue_pair;
    net::Address group;
    std::vector<net::GroupMembership> joins;  // one an interface
  };
  void on_packet(const net::Received& received) override;
  void on_run(const net::ReceivedRun& run) override;
  class Followers;
  void take_near(const arena::DatagramHeader& header, std::span<const std::byte> payload);
  [[nodiscard]] bool look_at_socket(size_t near);
  [[nodiscard]] size_t take_in(base::Instant now);
  [[nodiscard]] bool something_due(base::Instant now) const;
  [[nodiscard]] bool owes();
  void send_due(base::Instant now, Driver driver);
  bool conclude_failures();
  [[nodiscard]] base::Result<void> room_for(const net::Address& group) const;
  [[nodiscard]] Drop take_multicast(const net::Received& received);
  [[nodiscard]] Drop take(const net::Received& received, Followers* followers = nullptr);
  [[nodiscard]] Drop take_for(Connection& connection, const net::Received& received,
                              Followers* followers = nullptr);
  [[nodiscard]] Drop take_greeting(const net::Received& received);
  [[nodiscard]] Drop answer_greeting(const roce::Greeting& greeting, const net::Received& received);
  [[nodiscard]] Drop take_pace(uint64_t number);
  void greet(base::Instant now);
  // With the sending lock held.
  void send_greeting(const roce::Greeting& greeting, base::Qpn to, const net::Route& route);
  void run_scheduled(base::Instant now);
  void pay(std::vector<Connection*>& owing, base::Instant now);
  void send_what_waits();
  void publish_counters(base::Instant now);

  // No queue pair has index 0: it is the port's own.
  [[nodiscard]] base::Qpn own_number() const { return base::Qpn::make(slot_, 0); }

  std::unique_ptr<net::Link> link_;
  base::Slot slot_;
  Environment environment_;
  std::atomic<size_t> count_ = 0;
  std::atomic<int64_t> promised_ = 0;
  std::atomic<int64_t> driven_at_ = 0;
  std::atomic<int64_t> under_way_ = 0;

  base::Lock receiving_;  // link_->receive, and all below; tried also by whoever may hold it already
  std::vector<Connection*> connections_;
  std::vector<Connection*> dirty_;
  std::vector<Connection*> owing_;  // acknowledgements that were put off, and may have left since
  std::vector<Connection*> owed_;   // those of the turn before
  bool may_put_off_ = false;        // in this turn
  bool stands_in_ = false;          // this turn is a helper's, in the program's stead
  std::atomic<int64_t> owing_since_ = INT64_MAX;
  std::atomic<bool> ending_ = false;  // the program: nothing is put off any more
  bool tells_hops_ = false;           // the link does
  bool behind_ = false;
  size_t passed_ = 0;  // packets that were taken in since timers are put off
  std::vector<uint16_t> due_;
  roce::RecentFlows flows_;  // of what comes
  Acquaintances acquaintances_;
  std::vector<Membership> memberships_;
  unsigned near_lately_ = 0;  // rounds for which datagrams by lane are expected
  unsigned round_ = 0;
  std::atomic<int64_t> link_due_ = INT64_MAX;
  base::Instant now_{};
  Counters counters_;
  uint64_t work_shown_ = 0;  // packets in and out when counters were last published
  std::atomic<int64_t> show_at_ = INT64_MAX;

  base::Lock failures_lock_;
  std::vector<verbs::SendQueue::Failure> failures_;
  std::atomic<bool> failed_ = false;  // there are some

  base::Lock sending_;
  net::Transmitter transmitter_;
  std::atomic<bool> unsent_ = false;  // something may wait there
  Pacing pacing_;
  Lanes lanes_;  // its boxes under the receiving lock

  base::Lock schedule_lock_;
  std::vector<uint16_t> ready_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::atomic<int64_t> scheduled_ = INT64_MAX;  // when the first of them is due; written under the lock
};

}  // namespace verbena::wire
