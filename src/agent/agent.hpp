// The host agent: sessions in, answers out. One thread; every handler returns without waiting.
#pragma once

#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/cm_service.hpp"
#include "agent/event_loop.hpp"
#include "agent/qp1.hpp"
#include "agent/runtime_directory.hpp"
#include "agent/slot_table.hpp"
#include "agent/takeover.hpp"
#include "agent/view_table.hpp"
#include "arena/registry.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "ipc/channel.hpp"
#include "ipc/rendezvous.hpp"
#include "net/steering.hpp"

namespace verbena::agent {

struct Options {
  bool system = false;                                     // serves every user; needs root
  base::Duration idle_timeout = base::seconds(5);          // leaves so long after its last client
  base::Duration survivor_wait = base::milliseconds(400);  // for a survivor to bring the park
  base::UniqueFd park;    // what the supervisor of a system agent kept from the one before
  base::UniqueFd keeper;  // the supervisor's end of a socket, to which each new park is sent
};

class Agent {
 public:
  // EADDRINUSE: another agent has started meanwhile, which is as good.
  [[nodiscard]] static base::Result<std::unique_ptr<Agent>> start(Options options);
  // Until there is nothing left to do, or `stop` is readable (a signalfd).
  void run(int stop);

 private:
  // One connection. Its key in sessions_ is its socket.
  struct Session {
    base::UniqueFd socket;
    ipc::PeerCredentials peer;
    base::Instant since;
    bool for_leases = false;               // came in at the port owner's name
    std::optional<ipc::Message> deferred;  // a Hello that waits for the takeover
    std::optional<unsigned> view;          // after its Hello
    std::optional<base::Slot> slot;
    std::optional<SlotRange> lease;
    cm::Client cm = 0;  // not 0: a process's CM connection
    base::Slot cm_slot;
  };
  // What a process brings for its peers (ipc::Introduced).
  struct Belongings {
    base::UniqueFd tables;
    base::UniqueFd rings;
    base::UniqueFd wake;
    base::UniqueFd memory;  // may be empty
    bool trusts_containers = false;
  };
  // The process in a slot. Without a session it is an orphan: alive, but not (or not yet again) connected.
  struct Attachment {
    base::UniqueFd pidfd;   // empty: a process that we can't see, in another pid namespace
    Belongings belongings;  // empty: it attached to an earlier agent and hasn't come back yet
    int session = -1;
  };
  struct Observer {
    base::UniqueFd pidfd;
    unsigned record = 0;
  };
  // A leased slot whose lessee is gone; ended unless somebody leased it anew, which its epoch shows.
  struct EndingLease {
    base::Slot slot;
    uint32_t epoch = 0;
    base::Instant end;
  };
  void let_lease_end(base::Slot slot);

  Agent(Options options, EventLoop loop, base::UniqueFd listener);

  // start.cpp: from nothing, or from what an earlier agent left, to ready
  [[nodiscard]] base::Result<void> begin();
  [[nodiscard]] base::Result<void> use_registry(base::UniqueFd fd, arena::Registry registry);
  void adopt_slots();
  void adopt_observers();
  void finish_start();

  // port.cpp: the RoCEv2 port, by one of the ways to have it
  void take_port();
  [[nodiscard]] bool adopt_park(base::UniqueFd park);
  void own_group(net::SteeredGroup group, base::UniqueFd park);
  [[nodiscard]] base::Result<void> lease_from_owner(uid_t owner_uid);
  void go_without_port(std::string advice);
  void on_lease_lost();
  void show_park_to_keeper();
  void open_qp1();
  void hand_out_sockets();

  // agent.cpp: life
  void accept(int listener, bool for_leases);
  void end_session(int socket);
  void end_attachment(base::Slot slot, arena::Counter why);
  void tick(base::Instant now);
  [[nodiscard]] base::Instant next_deadline(base::Instant now) const;
  [[nodiscard]] bool in_use() const;
  void on_interfaces_changed();
  void log(std::string_view sentence) const;

  // session.cpp: one handler a message
  void on_readable(int socket);
  void dispatch(Session& session, ipc::Message& message);
  void on_hello(Session& session, ipc::Message& message);
  [[nodiscard]] ViewTable::Flags views_in_use() const;
  void on_attach(Session& session, ipc::Message& message);
  void on_detach(Session& session);
  void on_observe(Session& session, ipc::Message& message);
  void on_stop(Session& session, const ipc::Message& message);
  void on_lease(Session& session, const ipc::Message& message);
  [[nodiscard]] base::Result<Claim> attach(Session& session, ipc::Message& message);
  [[nodiscard]] base::Result<void> add_observer(Session& session, ipc::Message& message);
  void end_observer(int pidfd);
  void refuse(Session& session, const base::Error& error);

  // introduction.cpp: what peers get of each other
  [[nodiscard]] static base::Result<Belongings> take_belongings(const ipc::Attach& attach,
                                                                ipc::Message& message, int pidfd);
  void on_introduce(Session& session, const ipc::Message& message);
  [[nodiscard]] base::Result<base::Slot> asking_slot(const Session& session,
                                                     const ipc::Introduce& wanted) const;
  [[nodiscard]] base::Result<base::Slot> own_slot(const Session& session, uint32_t claimed,
                                                  uint32_t epoch) const;
  [[nodiscard]] base::Result<base::Slot> wanted_slot(const ipc::Introduce& wanted, uid_t asker) const;
  [[nodiscard]] base::Result<ipc::Introduced> introduce(base::Slot asker, base::Slot peer) const;

  // look.cpp
  void on_look(Session& session, const ipc::Message& message);
  void on_stray(Session& session, const ipc::Message& message);

  // connections.cpp: connection management
  void on_cm_open(Session& session, const ipc::Message& message);
  void on_cm_command(Session& session, ipc::Message& message);
  void end_cm_of(base::Slot slot);
  void go_on_with_cm(base::Instant now);

  template <typename M>
  void answer(Session& session, const M& message, std::span<const int> fds = {});

  [[nodiscard]] Session* session_at(int socket);
  [[nodiscard]] base::Duration timewait_of(base::Slot slot) const;

  Options options_;
  EventLoop loop_;
  base::UniqueFd listener_;
  base::UniqueFd spare_;  // given up for a moment when descriptors run out, so that a refusal can be said
  base::UniqueFd interface_watch_;
  std::optional<base::Instant> interfaces_due_;  // a burst of changes is looked at once

  RuntimeDirectory directory_;
  base::UniqueFd registry_fd_;
  base::UniqueFd registry_readonly_;
  arena::Registry registry_;
  std::optional<SlotTable> slots_;
  std::optional<ViewTable> views_;

  std::vector<Survivor> survivors_;
  std::optional<base::Instant> park_deadline_;  // set while we wait for a survivor to bring the park
  bool ready_ = false;

  net::SteeredGroup group_;  // empty: we haven't the port
  std::unique_ptr<Qp1> qp1_;
  std::unique_ptr<CmService> cm_;
  base::UniqueFd park_;
  base::UniqueFd port_listener_;
  base::UniqueFd lease_;
  std::optional<base::Instant> port_retry_;  // set while a lease is lost and not yet renewed
  std::string advice_;

  std::map<int, Session> sessions_;
  std::array<std::optional<Attachment>, 256> attachments_;
  std::map<int, Observer> observers_;  // by pidfd
  std::vector<EndingLease> ending_leases_;
  base::Instant idle_since_;
  bool stopping_ = false;
};

template <typename M>
void Agent::answer(Session& session, const M& message, std::span<const int> fds) {
  // Whoever doesn't read its answers is cut off; its slot stays until it dies or comes back.
  if (auto sent = ipc::send(session.socket.get(), message, fds); !sent)
    ::shutdown(session.socket.get(), SHUT_RDWR);
}

}  // namespace verbena::agent
