// A second network namespace, joined to ours by a veth pair: another host, as far as the network goes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "support/isolated.hpp"
#include "support/process.hpp"

namespace verbena::net {

// A new IPv6 address works only after a moment, even without duplicate detection.
inline bool add_address6(const std::string& address, const std::string& interface) {
  return support::ip("addr add " + address + "/64 dev " + interface + " nodad") && support::eventually([&] {
           return !support::shell("ip -6 route show table local exact " + address + " dev " + interface)
                       .text.empty();
         });
}

// Needs root, for `ip`. Our end is `here`, 10.5.0.1 and fd05::1; the other's is `there`, 10.5.0.2 and
// fd05::2.
class OtherHost {
 public:
  OtherHost() {
    run([&](int) {
      ASSERT_EQ(0, ::unshare(CLONE_NEWNET));
      namespace_.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    });
    EXPECT_TRUE(namespace_);
    const std::string path =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(namespace_.get());
    EXPECT_TRUE(support::ip("link add here type veth peer name there netns " + path));
    configure("here", "1");
    in([] {
      EXPECT_TRUE(support::ip("link set lo up"));
      configure("there", "2");
    });
  }
  ~OtherHost() { support::ip("link del here"); }

  // A thread is enough: a socket belongs to the namespace of the thread that made it.
  void in(const std::function<void()>& work) const {
    run([&](int fd) {
      ASSERT_EQ(0, ::setns(fd, CLONE_NEWNET));
      work();
    });
  }

 private:
  void run(const std::function<void(int)>& work) const {
    std::thread([&] { work(namespace_.get()); }).join();
  }
  static void configure(const std::string& name, const std::string& number) {
    EXPECT_TRUE(support::ip("addr add 10.5.0." + number + "/24 dev " + name));
    EXPECT_TRUE(support::ip("link set " + name + " addrgenmode none"));
    EXPECT_TRUE(support::ip("link set " + name + " up"));
    EXPECT_TRUE(add_address6("fd05::" + number, name) && add_address6("fe80::" + number, name));
  }

  base::UniqueFd namespace_;
};

// A device's feature by the name that `ethtool -k` shows; false if it can't be set.
inline bool set_feature(const std::string& interface, const std::string& feature, bool on) {
  const base::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto ask = [&](void* command) {
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    request.ifr_data = static_cast<char*>(command);
    return ::ioctl(socket.get(), SIOCETHTOOL, &request);
  };
  // The count comes behind the structure.
  alignas(ethtool_sset_info) char size[sizeof(ethtool_sset_info) + sizeof(uint32_t)]{};
  auto& info = *reinterpret_cast<ethtool_sset_info*>(size);
  info.cmd = ETHTOOL_GSSET_INFO;
  info.sset_mask = 1ull << ETH_SS_FEATURES;
  if (ask(&info) != 0) return false;
  const uint32_t count = info.data[0];
  std::vector<char> names(sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN);
  auto& strings = *reinterpret_cast<ethtool_gstrings*>(names.data());
  strings = {.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_FEATURES, .len = count};
  if (ask(&strings) != 0) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (feature != names.data() + sizeof strings + size_t{i} * ETH_GSTRING_LEN) continue;
    const uint32_t blocks = (count + 31) / 32;
    std::vector<uint32_t> change(2 + 2 * blocks);
    change[0] = ETHTOOL_SFEATURES;
    change[1] = blocks;
    change[2 + i / 32 * 2] = 1u << i % 32;                // valid
    change[2 + i / 32 * 2 + 1] = on ? 1u << i % 32 : 0u;  // requested
    return ask(change.data()) == 0;
  }
  return false;
}

}  // namespace verbena::net
