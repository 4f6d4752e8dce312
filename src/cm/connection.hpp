// What the manager knows of one connection, or of one question for a datagram service. It may outlive the id
// it was made for: a DREQ is repeated until it is answered, and duplicates are answered for some time.
#pragma once

#include <cstdint>

#include "base/time.hpp"
#include "cm/messages.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::cm {

// Who commands: the caller names its clients, never with 0.
using Client = uint64_t;

struct IdKey {
  Client client = 0;
  uint32_t id = 0;
  auto operator<=>(const IdKey&) const = default;
  explicit operator bool() const { return client != 0; }
};

// Between which addresses a MAD goes.
struct Way {
  Gid local{};
  Gid remote{};
  uint32_t interface = 0;  // 0: by the routing table
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  bool operator==(const Way&) const = default;
};

// By what a repeated request is recognised: the sender's GUID, or for datagram services, which don't tell it,
// its address; and its number for the request.
struct RequestKey {
  uint64_t guid = 0;
  Gid address{};
  uint32_t number = 0;
  auto operator<=>(const RequestKey&) const = default;
};

enum class State : uint8_t {
  kReqSent,      // repeats its REQ
  kReqReceived,  // the program has it
  kRepSent,      // repeats its REP
  kRepReceived,  // the program has it
  kEstablished,
  kDreqSent,      // repeats its DREQ
  kDreqReceived,  // the program has it
  kTimewait,      // answers DREQs
  kRejected,      // answers REQs and REPs with its REJ
  // datagram services
  kSidrSent,      // repeats its SIDR REQ
  kSidrReceived,  // the program has it
  kSidrAnswered,  // answers with its SIDR REP
};

struct Connection {
  uint32_t local_id = 0;   // by which the manager knows it
  uint32_t remote_id = 0;  // 0: not known yet
  State state{};
  IdKey owner;  // none: its id is gone, or needs it no more
  Way way;
  ipc::CmAddress local;
  ipc::CmAddress remote;
  uint64_t transaction = 0;
  uint64_t service_id = 0;
  uint64_t peer_guid = 0;
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  bool xrc = false;      // the other's queue pair number stands where reliable datagrams have theirs
  bool came_in = false;  // the other end asked for it
  RequestKey request;    // if it came in
  IdKey listener;        // of one that came in and is neither accepted nor rejected
  MadBytes message{};    // what is repeated, or given as an answer to a duplicate
  unsigned repeats = 0;  // of `message`, since something was heard last
  Rej rejection;         // of kRejected
  base::Duration timewait{};
};

}  // namespace verbena::cm
