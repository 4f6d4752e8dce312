#include "common/options.hpp"

#include <CLI/CLI.hpp>

#include "common/terms.hpp"
#include "common/trace.hpp"

namespace examples {
namespace {

void add_data_options(CLI::App& app, Options& options) {
  app.add_option("-n,--count", options.count, "messages to transfer")
      ->check(CLI::Range(uint64_t{1}, kMaxCount));
  app.add_option("-s,--size", options.size, "bytes of a message")->check(CLI::Range(uint64_t{1}, kMaxSize));
  app.add_option("--sq-depth", options.sq_depth, "work requests in the send queue")
      ->check(CLI::Range(1u, 16384u));
  app.add_option("--rq-depth", options.rq_depth, "work requests in the receive queue")
      ->check(CLI::Range(1u, 16384u));
  app.add_option("--sges", options.sges, "pieces that a message is cut into")->check(CLI::Range(1u, 32u));
  app.add_flag("--verify,!--no-verify", options.verify, "compare each byte that arrives");
}

void add_address_options(CLI::App& app, Role role, Options& options) {
  auto* server =
      app.add_option("server", options.server,
                     role == Role::kServer ? "address to listen on" : "the server's name or address");
  if (role == Role::kClient) server->required();
  app.add_option("-p,--port", options.port, "the server's port");
  if (role == Role::kClient) return;
  app.add_option("--clients", options.clients, "as a server: end after so many clients (0: never)");
  app.add_flag_callback(
      "--once", [&options] { options.clients = 1; }, "as a server: serve one client, then end");
}

void add_extra(CLI::App& app, const Extra& extra) {
  if (auto* const* flag = std::get_if<bool*>(&extra.target)) {
    app.add_flag(extra.name, **flag, extra.help);
    return;
  }
  std::visit([&](auto* value) { app.add_option(extra.name, *value, extra.help)->capture_default_str(); },
             extra.target);
}

}  // namespace

Options parse_options(int argc, char** argv, const Program& program, Options options) {
  CLI::App app(program.purpose, program.name);
  app.option_defaults()->always_capture_default();
  if (program.role != Role::kAlone) {
    add_address_options(app, program.role, options);
    add_data_options(app, options);
  }
  app.add_flag("-t,--trace", options.trace, "print each verb and its result");
  for (const auto& extra : program.extras) add_extra(app, extra);
  try {
    app.parse(argc, argv);
    if (options.sges > options.size) throw CLI::ValidationError("--sges", "more pieces than bytes");
  } catch (const CLI::ParseError& mistake) {
    std::exit(app.exit(mistake) == 0 ? 0 : 2);
  }
  set_tracing(options.trace);
  return options;
}

}  // namespace examples
