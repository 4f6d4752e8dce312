// A process that connects, or is connected to, as it is told line by line. Kills and leaks are looked for in
// it.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

bool is_end(rdma_cm_event_type type) {
  return type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED ||
         type == RDMA_CM_EVENT_UNREACHABLE || type == RDMA_CM_EVENT_CONNECT_ERROR;
}

using Clock = std::chrono::steady_clock;

void say(const std::string& line) { std::cout << line << std::endl; }

// Makes short pauses, so that a kill finds every state.
class Pace {
 public:
  explicit Pace(uint64_t seed) : random_(seed), pauses_(seed != 0) {}
  void step() {
    if (pauses_) ::usleep(static_cast<useconds_t>(random_() % 1'500));
  }
  bool one_in(unsigned many) { return pauses_ && random_() % many == 0; }

 private:
  std::mt19937_64 random_;
  bool pauses_;
};

// Connections in order, each with what became of it.
class Client {
 public:
  explicit Client(uint64_t seed) : pace_(seed), traced_(seed != 0) {}

  // An error's sentence: it could not be opened. It says where it is, for whoever finds it dead.
  [[nodiscard]] std::string open(uint16_t port) {
    state("resolving");
    Address there("127.0.0.1", port);
    id_ = make_id(channel_.get());
    must(rdma_resolve_addr(id_.get(), nullptr, there.get(), 2000), "rdma_resolve_addr");
    if (auto bad = wait_for(RDMA_CM_EVENT_ADDR_RESOLVED); !bad.empty()) return bad;
    must(rdma_resolve_route(id_.get(), 2000), "rdma_resolve_route");
    if (auto bad = wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED); !bad.empty()) return bad;
    give_queue_pair(id_.get());
    pace_.step();
    state("connecting");
    auto wanted = parameters();
    must(rdma_connect(id_.get(), &wanted), "rdma_connect");
    return wait_for(RDMA_CM_EVENT_ESTABLISHED);
  }

  [[nodiscard]] std::string close() {
    state("disconnecting");
    must(rdma_disconnect(id_.get()), "rdma_disconnect");
    const auto bad = wait_for(RDMA_CM_EVENT_DISCONNECTED);
    id_.reset();
    return bad;
  }

  // One connection's whole life. Empty: it went as it should.
  [[nodiscard]] std::string life(uint16_t port, bool may_hold) {
    std::string bad;
    try {
      bad = open(port);
      if (bad.empty()) {
        state("connected");
        if (may_hold && pace_.one_in(8)) {  // it is the other's to end it
          if (const Event event = next(channel_.get(), kLong);
              !event.came || event.type != RDMA_CM_EVENT_DISCONNECTED)
            bad = event.came ? rdma_event_str(event.type) : "hung";
          else
            bad = "RDMA_CM_EVENT_DISCONNECTED";
        }
        pace_.step();
        if (bad.empty()) bad = close();
      }
    } catch (const std::exception& failed) {
      bad = failed.what();
    }
    id_.reset();
    return bad;
  }

  // So many, or as many as there is time for.
  void lives(uint16_t port, uint64_t count, Clock::time_point until) {
    uint64_t whole = 0;
    std::string first;
    for (uint64_t i = 0; i < count && Clock::now() < until; ++i) {
      const auto bad = life(port, false);
      whole += bad.empty() ? 1 : 0;
      if (first.empty()) first = bad;
      if (bad == "hung") return say("hung in " + last_);
    }
    say("lived " + std::to_string(whole) + " " + first);
  }

  // Until one goes wrong; none may go wrong by itself.
  void live_on(uint16_t port) {
    for (;;) {
      const auto bad = life(port, true);
      if (bad.empty()) continue;
      return say("ended in " + last_ + ": " + bad);
    }
  }

  void open_many(uint16_t port, uint64_t count, Clock::time_point until) {
    std::string bad;
    while (held_.size() < count && Clock::now() < until && bad.empty()) {
      bad = open(port);
      if (bad.empty()) held_.push_back(std::move(id_));
    }
    say("opened " + std::to_string(held_.size()) + " " + bad);
  }

  void close_many() {
    uint64_t closed = 0;
    for (auto& held : held_) {
      id_ = std::move(held);
      if (close().empty()) ++closed;
    }
    held_.clear();
    say("closed " + std::to_string(closed));
  }

 private:
  void state(const char* name) {
    last_ = name;
    if (traced_) say(name);
  }
  // Empty: it came.
  [[nodiscard]] std::string wait_for(rdma_cm_event_type type) {
    for (;;) {
      const Event event = next(channel_.get());
      if (!event.came) return "hung";
      if (event.id != id_.get() || event.type == RDMA_CM_EVENT_TIMEWAIT_EXIT) continue;
      return event.type == type ? "" : rdma_event_str(event.type);
    }
  }

  Pace pace_;
  bool traced_;
  std::string last_;
  Channel channel_ = make_channel();
  Id id_;
  std::vector<Id> held_;
};

// Takes everybody who asks, and lets go of whoever ended.
class Server {
 public:
  explicit Server(uint64_t seed) : pace_(seed), traced_(seed != 0) {
    Address here("127.0.0.1");
    must(rdma_bind_addr(listener_.get(), here.get()), "rdma_bind_addr");
    must(rdma_listen(listener_.get(), 64), "rdma_listen");
    say("port " + std::to_string(ntohs(rdma_get_src_port(listener_.get()))));
  }
  [[nodiscard]] int fd() const { return channel_->fd; }
  [[nodiscard]] size_t live() const { return ids_.size(); }

  void on_event() {
    const Event event = next(channel_.get(), Wait(0));
    if (!event.came) return;
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event.id);
    if (traced_) say(rdma_event_str(event.type));
    if (!is_end(event.type)) return pace_.step();
    const auto found = ids_.find(event.id);
    if (found == ids_.end()) return;
    if (event.type == RDMA_CM_EVENT_DISCONNECTED) (void)rdma_disconnect(event.id);
    pace_.step();
    ids_.erase(found);
  }

 private:
  void on_request(rdma_cm_id* id) {
    if (traced_) say("requested");
    ids_[id] = Id(id);
    try {
      give_queue_pair(id);
      pace_.step();
      auto wanted = parameters();
      must(rdma_accept(id, &wanted), "rdma_accept");
      if (traced_) say("accepted");
      pace_.step();
    } catch (const std::exception&) {  // who asked is gone
      ids_.erase(id);
    }
  }

  Pace pace_;
  bool traced_;
  Channel channel_ = make_channel();
  Id listener_ = make_id(channel_.get());
  std::map<rdma_cm_id*, Id> ids_;
};

int serve(uint64_t seed) {
  Server server(seed);
  for (;;) {
    pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {server.fd(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) return 1;
    if (ready[1].revents != 0) server.on_event();
    if (ready[0].revents == 0) continue;
    std::string line;
    if (!std::getline(std::cin, line)) return 0;
    say("live " + std::to_string(server.live()));
  }
}

int ask(uint64_t seed) {
  Client client(seed);
  say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    uint16_t port = 0;
    uint64_t count = 0;
    uint64_t milliseconds = 0;
    words >> what >> port >> count >> milliseconds;
    const auto until = Clock::now() + Wait(milliseconds);
    if (what == "open") client.open_many(port, count, until);
    if (what == "close") client.close_many();
    if (what == "lives") client.lives(port, count, until);
    if (what == "live-on") client.live_on(port);
  }
  return 0;
}

}  // namespace
}  // namespace verbena::cm_test

// worker server|client SEED: with 0 it makes no pauses and says nothing unasked.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const uint64_t seed = std::stoull(argv[2]);
    return std::string(argv[1]) == "server" ? verbena::cm_test::serve(seed) : verbena::cm_test::ask(seed);
  } catch (const std::exception& failed) {
    std::cerr << failed.what() << std::endl;
    return 1;
  }
}
