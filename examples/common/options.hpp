// The command line that the programs share.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace examples {

struct Options {
  std::string server;  ///< client: name or address of the server; server: where to listen, empty: everywhere
  std::string port = "18600";  ///< the server's port, a number or a service name
  uint64_t count = 1000;       ///< messages or round trips
  uint64_t size = 64;          ///< bytes of a message
  uint32_t sq_depth = 16;      ///< work requests that the send queue holds
  uint32_t rq_depth = 16;      ///< work requests that the receive queue holds
  uint32_t sges = 1;           ///< pieces that a message is gathered from and scattered to
  bool trace = false;          ///< print each verb and its result
  bool verify = true;          ///< compare each byte that arrives
  uint64_t clients = 0;        ///< server: end after so many clients; 0: never
};

enum class Role {
  kClient,  ///< needs a server's name
  kServer,  ///< may be given an address to listen on; serves clients
  kEither,  ///< a client if a server's name is given, otherwise the server
  kGroup,   ///< needs the address of a multicast group
  kAlone,   ///< neither: takes no address and moves no data
};

/// An option that only one program has.
struct Extra {
  const char* name;  ///< as CLI11 wants it: "--starve", "-d,--device"
  const char* help;
  std::variant<bool*, uint32_t*, uint64_t*, std::string*> target;  ///< its present value is the default
};

struct Program {
  const char* name;
  const char* purpose;  ///< one sentence for --help
  Role role;
  std::vector<Extra> extras = {};
};

/// Parses the command line; ends the process after --help or a mistake. Turns tracing on if it was asked for.
[[nodiscard]] Options parse_options(int argc, char** argv, const Program& program, Options defaults = {});

}  // namespace examples
