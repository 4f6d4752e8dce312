// Attaches to the host agent, says "slot N" or "refused ERRNO SENTENCE", then obeys, a line a command:
//   expect TOKEN     waits for a packet with that token on the slot's socket; says "got TOKEN" or "missed
//   TOKEN" slot             says "slot N" again events           says "event TYPE ELEMENT" for each event
//   that waits, then "end" fds              says "fds N" close            closes the device, says "closed"
//   open             opens it again, as at the start
//   exec             replaces itself by a program that attaches anew
// and towards the process in another slot:
//   introduce SLOT   says "introduced PID EPOCH WHAT", or "refused ERRNO SENTENCE"; WHAT has the letters
//                    t r w m for tables, rings, wake and memory that came and are what they should be
//   wake SLOT        wakes its helper thread; says "woke SLOT" or "gone SLOT"
//   hangup SLOT      waits for its end; says "hangup SLOT" or "alive SLOT"
//   put TEXT         says "at ADDRESS", where TEXT now is
//   peek SLOT ADDRESS LENGTH   says "peeked TEXT", read from its memory, or "peeked" if that is gone
//   work             counts from here how often its own helper thread is woken, says "working"
//   wakes N          waits until that was N times; says "wakes N", or how many it was
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "arena/process_segments.hpp"
#include "base/time.hpp"
#include "client/devices.hpp"
#include "client/host_tie.hpp"
#include "client/introduction.hpp"
#include "support/process.hpp"

namespace {

using namespace verbena;

constexpr size_t kBthSize = 12;

std::unique_ptr<client::OpenDevice> open_device() {
  auto device = client::OpenDevice::open("verbena0");
  if (!device) {
    std::cout << "refused " << device.error().code << " " << device.error().sentence << std::endl;
    return nullptr;
  }
  std::cout << "slot " << unsigned{(*device)->slot().value} << std::endl;
  return std::move(*device);
}

// Tokens may arrive before they are asked for.
bool expect(const std::string& token) {
  static std::multiset<std::string> seen;
  const auto deadline = base::now() + base::seconds(5);
  for (;;) {
    if (const auto found = seen.find(token); found != seen.end()) {
      seen.erase(found);
      return true;
    }
    if (base::now() > deadline) return false;
    const int socket = client::HostTie::instance()->roce_socket();
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, 50) <= 0) continue;
    char packet[256];
    const ssize_t size = ::recv(socket, packet, sizeof packet, MSG_DONTWAIT);
    if (size > static_cast<ssize_t>(kBthSize)) seen.emplace(packet + kBthSize, packet + size);
  }
}

void say_events(client::OpenDevice& device) {
  pollfd ready{device.events().fd(), POLLIN, 0};
  while (::poll(&ready, 1, 0) > 0) {
    const auto event = device.events().take();
    std::cout << "event " << event->type << " " << event->element << std::endl;
  }
  std::cout << "end" << std::endl;
}

// What of an introduction is as it should be.
std::string proven(const client::Introduction& peer, unsigned slot) {
  std::string good;
  const auto tables = arena::map(peer.tables.get(), arena::kTablesSize, arena::Access::kRead);
  const auto forbidden = arena::map(peer.tables.get(), arena::kTablesSize, arena::Access::kReadWrite);
  if (tables && !forbidden) {
    const auto* head = reinterpret_cast<const arena::TablesHead*>(tables->data());
    if (head->magic == arena::kTablesMagic && head->slot.load() == slot) good += 't';
  }
  if (arena::map(peer.rings.get(), arena::kRingsSize, arena::Access::kReadWrite)) good += 'r';
  pollfd state{peer.wake.get(), 0, 0};
  if (::poll(&state, 1, 0) == 0) good += 'w';
  char byte = 0;
  const auto here = reinterpret_cast<off_t>(&kBthSize);
  // The peer runs the same program, but not at the same place: anything but "no such file" will do.
  if (peer.memory && (::pread(peer.memory.get(), &byte, 1, here) == 1 || errno == EIO)) good += 'm';
  return good;
}

class CountingWork final : public client::HelperWork {
 public:
  base::Instant help(base::Instant) override {
    calls_.fetch_add(1);
    return client::kWhenWoken;
  }
  void watch(std::vector<pollfd>&) override {}
  void on_events(std::span<const pollfd>) override {}
  [[nodiscard]] unsigned calls() const { return calls_.load(); }

 private:
  std::atomic<unsigned> calls_ = 0;
};

class Peers {
 public:
  // False: not a command about peers.
  bool obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "put") {
      std::string text;
      words >> text;
      std::strncpy(text_, text.c_str(), sizeof text_ - 1);
      std::cout << "at " << reinterpret_cast<uintptr_t>(text_) << std::endl;
    } else if (command == "work") {
      work_ = std::make_shared<CountingWork>();
      client::HostTie::instance()->set_work(work_);
      support::eventually([&] { return work_->calls() > 0; });
      ::poll(nullptr, 0, 20);
      before_ = work_->calls();
      std::cout << "working" << std::endl;
    } else if (command == "wakes") {
      unsigned wanted = 0;
      words >> wanted;
      support::eventually([&] { return work_->calls() - before_ >= wanted; }, support::Wait(2'000));
      std::cout << "wakes " << work_->calls() - before_ << std::endl;
    } else {
      unsigned slot = 0;
      words >> slot;
      return towards(command, slot, words);
    }
    return true;
  }

 private:
  bool towards(const std::string& command, unsigned slot, std::istream& words) {
    auto& peer = known_[slot];
    if (command == "introduce") {
      auto made = client::introduce({static_cast<uint8_t>(slot)});
      if (!made) {
        std::cout << "refused " << made.error().code << " " << made.error().sentence << std::endl;
        return true;
      }
      peer = std::move(*made);
      std::cout << "introduced " << peer.pid << " " << peer.epoch << " " << proven(peer, slot) << std::endl;
    } else if (command == "wake") {
      std::cout << (client::wake_peer(peer.wake.get()) ? "woke " : "gone ") << slot << std::endl;
    } else if (command == "hangup") {
      pollfd state{peer.wake.get(), 0, 0};
      const bool gone = ::poll(&state, 1, 5'000) > 0 && (state.revents & POLLHUP) != 0;
      std::cout << (gone ? "hangup " : "alive ") << slot << std::endl;
    } else if (command == "peek") {
      off_t address = 0;
      size_t length = 0;
      words >> address >> length;
      std::string text(length, '\0');
      const ssize_t got = ::pread(peer.memory.get(), text.data(), length, address);
      std::cout << "peeked" << (got > 0 ? " " + text : "") << std::endl;
    } else {
      return false;
    }
    return true;
  }

  std::map<unsigned, client::Introduction> known_;
  std::shared_ptr<CountingWork> work_;
  unsigned before_ = 0;
  char text_[64]{};
};

}  // namespace

int main(int, char** argv) {
  auto device = open_device();
  Peers peers;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("expect ")) {
      const std::string token = line.substr(7);
      std::cout << (expect(token) ? "got " : "missed ") << token << std::endl;
    } else if (line == "slot") {
      std::cout << "slot " << unsigned{device->slot().value} << std::endl;
    } else if (line == "events") {
      say_events(*device);
    } else if (line == "fds") {
      std::cout << "fds " << support::descriptor_count(::getpid()) << std::endl;
    } else if (line == "close") {
      device.reset();
      std::cout << "closed" << std::endl;
    } else if (line == "open") {
      device = open_device();
    } else if (line == "exec") {
      ::execv("/proc/self/exe", argv);
    } else {
      peers.obey(line);
    }
  }
  return 0;
}
