// The connection manager of a host: commands and MADs in, MADs and events out. One thread; time is handed in.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "cm/connection.hpp"
#include "cm/ip_header.hpp"
#include "cm/messages.hpp"
#include "cm/ports.hpp"
#include "cm/timers.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::cm {

struct Settings {
  base::Duration response_timeout = base::milliseconds(500);
  unsigned retries = 15;  // after the first; so a silent host is given up after 8 s
  // At most so long is an MRA believed: then the message is repeated, which the peer answers with another.
  base::Duration longest_service = base::milliseconds(4'300);
  base::Duration answering = base::seconds(15);  // so long duplicates of a rejected request are answered
  base::Duration shortest_timewait = base::milliseconds(50);
  base::Duration longest_timewait = base::milliseconds(4'300);
  // Both ends of a host's own connection come back to a new agent within that, or the other end is dead.
  base::Duration coming_back = base::seconds(30);
  Ports::Range ephemeral{};
  unsigned most_ids = 65'536;  // of one client
};

struct Environment {
  std::function<uint64_t()> random;
  std::function<bool(const ipc::CmAddress&)> is_local;  // an address of this host
};

struct Outgoing {
  Way way;
  MadBytes mad{};
};

// An event for a client's channel.
struct Notice {
  Client client = 0;
  uint32_t channel = 0;
  ipc::CmEvent event;
};

class Manager {
 public:
  Manager(Settings settings, Environment environment);

  // Commands, as ipc/cm_messages.hpp has them. Whether a channel exists is the caller's business.
  using Done = base::Result<void>;
  [[nodiscard]] Done create(Client client, const ipc::CmCreate& command);
  [[nodiscard]] Done destroy(base::Instant now, Client client, const ipc::CmDestroy& command);
  [[nodiscard]] Done migrate(Client client, const ipc::CmMigrate& command);
  // `privileged`: may take ports below 1024.
  [[nodiscard]] base::Result<ipc::CmBound> bind(Client client, const ipc::CmBind& command, bool privileged);
  [[nodiscard]] Done listen(Client client, const ipc::CmListen& command);
  [[nodiscard]] Done connect(base::Instant now, Client client, const ipc::CmConnect& command);
  [[nodiscard]] Done accept(base::Instant now, Client client, const ipc::CmAccept& command);
  [[nodiscard]] Done establish(Client client, const ipc::CmEstablish& command);
  [[nodiscard]] Done reject(base::Instant now, Client client, const ipc::CmReject& command);
  [[nodiscard]] Done disconnect(base::Instant now, Client client, const ipc::CmDisconnect& command);
  [[nodiscard]] Done notify(Client client, const ipc::CmNotify& command);
  [[nodiscard]] Done resume(base::Instant now, Client client, const ipc::CmResume& command);
  // All ids whose events go to this channel end: who closes it has been told of no others.
  void close_channel(base::Instant now, Client client, uint32_t channel);
  void end_client(base::Instant now, Client client);

  // `way` as its answer would go. False: not a message of the connection manager's.
  bool on_mad(base::Instant now, const Way& way, std::span<const std::byte> mad);
  void on_timer(base::Instant now);
  [[nodiscard]] std::optional<base::Instant> next_deadline() const { return timers_.next(); }

  [[nodiscard]] std::vector<Outgoing> take_mads() { return std::exchange(mads_, {}); }
  [[nodiscard]] std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }

  // Something is under way or open; what only waits for stray duplicates doesn't count.
  [[nodiscard]] bool in_use() const;
  [[nodiscard]] size_t ids() const { return ids_.size(); }
  [[nodiscard]] size_t connections() const { return connections_.size(); }

 private:
  struct Id {
    uint32_t channel = 0;
    ipc::CmPortSpace space{};
    Taking taking = 0;
    ipc::CmAddress bound;
    bool listening = false;
    unsigned backlog = 0;
    unsigned waiting = 0;     // requests of it that are neither accepted nor rejected
    uint32_t connection = 0;  // a Connection's local_id
    bool named = true;        // false: a request's id, of which no command has spoken yet
  };
  using Ids = std::map<IdKey, Id>;

  // commands.cpp
  [[nodiscard]] Done send_request(base::Instant now, Connection& connection,
                                  const ipc::CmParameters& parameters);

  // ids.cpp
  [[nodiscard]] base::Result<Ids::iterator> find_id(Client client, uint32_t id);
  [[nodiscard]] base::Result<Connection*> find_connection(Client client, uint32_t id);
  [[nodiscard]] Done add_id(IdKey key, Id id);
  void end_id(base::Instant now, IdKey key);
  template <typename Which>
  void end_ids(base::Instant now, Client client, Which which);

  // connections.cpp: records and what all states share
  Connection& add_connection(IdKey owner, uint32_t local_id);
  [[nodiscard]] uint32_t free_comm_id();
  void forget(Connection& connection);
  // Its id needs it no more.
  void let_go(Connection& connection);
  // A queue pair of that number may connect anew.
  void leave_peer(const Connection& connection);
  [[nodiscard]] Rej giving_up() const;
  void no_longer_waits(Connection& connection);
  void abandon(base::Instant now, Connection& connection);
  void enter_timewait(base::Instant now, Connection& connection);
  template <typename Body>
  void send(const Connection& connection, const Body& body);
  template <typename Body>
  void send_until_answered(base::Instant now, Connection& connection, const Body& body);
  void repeat(base::Instant now, Connection& connection);
  void send_rejection(base::Instant now, Connection& connection, Rej rej);
  void send_dreq(base::Instant now, Connection& connection);
  ipc::CmEvent event_of(const Connection& connection, ipc::CmEventKind kind, int status = 0) const;
  void tell(const Connection& connection, const ipc::CmEvent& event);
  void tell(const Connection& connection, ipc::CmEventKind kind, int status = 0) {
    tell(connection, event_of(connection, kind, status));
  }
  // The program gets kRejected.
  void refuse(base::Instant now, Connection& connection, uint16_t reason, const Rej* rej = nullptr);
  void on_due(base::Instant now, Connection& connection);

  // requests.cpp: what opens a connection
  void on(base::Instant now, const Way& way, uint64_t transaction, const Req& req);
  void on_repeated_request(base::Instant now, Connection& connection);
  [[nodiscard]] bool stale(base::Instant now, const Way& way, const Req& req);
  [[nodiscard]] IdKey listener_of(const Way& way, uint64_t service_id, const IpHeader& header) const;
  // A new id of the listener's client with its connection. Null: the backlog is full.
  [[nodiscard]] Connection* admit(IdKey listener, const Way& way, uint64_t transaction,
                                  const IpHeader& header);
  void announce(const Connection& connection, IdKey listener, const ipc::CmParameters& parameters);

  // replies.cpp: what comes to a connection that we know
  void on(base::Instant now, const Way& way, uint64_t transaction, const Mra& mra);
  void on(base::Instant now, const Way& way, uint64_t transaction, const Rej& rej);
  void on(base::Instant now, const Way& way, uint64_t transaction, const Rep& rep);
  void on(base::Instant now, const Way& way, uint64_t transaction, const Rtu& rtu);
  void on(base::Instant now, const Way& way, uint64_t transaction, const Dreq& dreq);
  void on(base::Instant now, const Way& way, uint64_t transaction, const Drep& drep);
  void send_mra(const Connection& connection, About about, uint8_t service_timeout);
  void send_rtu(const Connection& connection);
  void send_drep(const Connection& connection);
  void become_established(Connection& connection);
  void on_disconnect_request(Connection& connection);
  [[nodiscard]] Connection* known(uint32_t our_id, uint32_t their_id);

  // sidr.cpp
  [[nodiscard]] Done ask_service(base::Instant now, Connection& connection, const ipc::CmConnect& command);
  [[nodiscard]] Done answer_service(base::Instant now, Connection& connection, uint8_t status,
                                    const ipc::CmParameters& parameters);
  void on(base::Instant now, const Way& way, uint64_t transaction, const SidrReq& req);
  void on(base::Instant now, const Way& way, uint64_t transaction, const SidrRep& rep);

  Settings settings_;
  Environment environment_;
  uint64_t guid_;  // of this manager; peers tell its requests from others' by it
  Ports ports_;
  Timers timers_;
  Ids ids_;
  std::map<Client, size_t> ids_of_;  // how many
  uint32_t last_child_;
  std::map<Taking, IdKey> listeners_;
  std::map<uint32_t, Connection> connections_;
  std::map<RequestKey, uint32_t> requests_;  // those that came in
  // Living connections that came in, by the peer's address and queue pair.
  std::map<std::pair<Gid, uint32_t>, uint32_t> by_peer_;
  // DREQs for connections that nobody has, by our number and theirs: after a change of agents their owner may
  // come back only now.
  std::deque<std::pair<uint32_t, uint32_t>> missed_;
  std::vector<Outgoing> mads_;
  std::vector<Notice> notices_;
};

}  // namespace verbena::cm
