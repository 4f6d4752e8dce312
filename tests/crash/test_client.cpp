// Attaches to the host agent, says "slot N" or "refused ERRNO SENTENCE", then obeys:
//   expect TOKEN   waits for a packet with that token on the slot's socket; says "got TOKEN" or "missed
//   TOKEN" slot           says "slot N" again events         says "event TYPE ELEMENT" for each event that
//   waits, then "end" fds            says "fds N" close          closes the device, says "closed" open opens
//   it again, as at the start exec           replaces itself by a program that attaches anew
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <set>
#include <string>

#include "base/time.hpp"
#include "client/devices.hpp"
#include "client/host_tie.hpp"
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

}  // namespace

int main(int, char** argv) {
  auto device = open_device();
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("expect ")) {
      const std::string token = line.substr(7);
      std::cout << (expect(token) ? "got " : "missed ") << token << std::endl;
    } else if (line == "slot") {
      std::cout << "slot " << unsigned{device->slot().value} << std::endl;
    } else if (line == "events") {
      pollfd ready{device->events().fd(), POLLIN, 0};
      while (::poll(&ready, 1, 0) > 0) {
        const auto event = device->events().take();
        std::cout << "event " << event->type << " " << event->element << std::endl;
      }
      std::cout << "end" << std::endl;
    } else if (line == "fds") {
      std::cout << "fds " << support::descriptor_count(::getpid()) << std::endl;
    } else if (line == "close") {
      device.reset();
      std::cout << "closed" << std::endl;
    } else if (line == "open") {
      device = open_device();
    } else if (line == "exec") {
      ::execv("/proc/self/exe", argv);
    }
  }
  return 0;
}
