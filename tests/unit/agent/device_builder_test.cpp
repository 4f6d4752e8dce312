#include "agent/device_builder.hpp"

#include <set>

#include "hosts.hpp"

namespace verbena::agent {
namespace {

constexpr uint64_t kGuid = 0x0211223344556600;

using Gids = std::vector<std::string>;

std::vector<net::Interface> plain_host() {
  return {loopback(), interface("eth0", 2, {"192.0.2.1", "fe80::1"})};
}

Gids ordered(const std::vector<net::Interface>& interfaces, const std::string& port = "*") {
  Gids gids;
  for (const auto& gid : ordered_gids(interfaces, port)) gids.push_back(text_of(gid.raw));
  return gids;
}

TEST(MtuCode, IsTheLargestPayloadWhoseHeadersFit) {
  const std::pair<uint32_t, int> cases[] = {{0, 1},    {256, 1},  {576, 1},  {607, 1},  {608, 2},  {1119, 2},
                                            {1120, 3}, {1280, 3}, {1500, 3}, {2143, 3}, {2144, 4}, {4191, 4},
                                            {4192, 5}, {4200, 5}, {9000, 5}, {65536, 5}};
  for (const auto& [mtu, code] : cases) EXPECT_EQ(code, mtu_code(mtu)) << mtu;
}

TEST(GidOrder, IsGlobalIpv4ThenIpv6ThenLinkLocalThenLoopback) {
  const auto eth0 = interface("eth0", 2, {"fe80::1", "169.254.3.4", "2001:db8::1", "fd00::1", "192.0.2.1"});
  const auto eth1 = interface("eth1", 3, {"10.0.0.1", "fe80::2"});
  EXPECT_EQ((Gids{"192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1", "169.254.3.4", "fe80::1", "fe80::2",
                  "127.0.0.1", "::1"}),
            ordered({loopback(), eth0, eth1}));
}

TEST(GidOrder, KeepsTheKernelsOrderAmongEquals) {
  EXPECT_EQ((Gids{"10.0.0.9", "10.0.0.1", "10.0.0.5"}),
            ordered({interface("eth0", 2, {"10.0.0.9", "10.0.0.1"}), interface("eth1", 3, {"10.0.0.5"})}));
}

TEST(GidOrder, HasLoopbackAloneOnAMachineWithNothingElse) {
  EXPECT_EQ((Gids{"127.0.0.1", "::1"}), ordered({loopback()}));
}

TEST(GidOrder, AnAddressOfALoopbackInterfaceComesLastWhateverItIs) {
  auto lo = loopback();
  lo.addresses.push_back(address("10.1.1.1"));
  EXPECT_EQ((Gids{"192.0.2.1", "127.0.0.1", "10.1.1.1", "::1"}),
            ordered({lo, interface("eth0", 2, {"192.0.2.1"})}));
}

TEST(GidOrder, TakesOnlyThePortsInterfaceAndOnlyWhileItIsUp) {
  auto host = plain_host();
  EXPECT_EQ((Gids{"192.0.2.1", "fe80::1"}), ordered(host, "eth0"));
  EXPECT_EQ((Gids{}), ordered(host, "eth"));
  host[1].up = false;
  EXPECT_EQ((Gids{"127.0.0.1", "::1"}), ordered(host));
  EXPECT_EQ((Gids{}), ordered(host, "eth0"));
}

TEST(Devices, TheDefaultOneSpeaksForTheInterfaceOfItsBestAddress) {
  auto host = plain_host();
  host[1].mtu = 4200;
  const auto table = build_devices(ipc::default_specs(), host, kGuid, nullptr);
  ASSERT_EQ(1u, table.device_count);
  const auto& device = table.devices[0];
  EXPECT_EQ("verbena0", arena::text(device.name));
  EXPECT_EQ(kGuid, device.node_guid);
  ASSERT_EQ(1, device.port_count);
  const auto& port = device.ports[0];
  EXPECT_EQ("eth0", arena::text(port.interface));
  EXPECT_EQ(2u, port.ifindex);
  EXPECT_EQ(25'000u, port.speed_mbps);
  EXPECT_EQ(arena::PortState::kActive, port.state);
  EXPECT_EQ(5, port.active_mtu);
  EXPECT_EQ((Gids{"192.0.2.1", "fe80::1", "127.0.0.1", "::1"}), gids_of(port));
  EXPECT_EQ(2u, port.gids[0].ifindex);
  EXPECT_EQ(1u, port.gids[2].ifindex);
}

TEST(Devices, AreAsManyAsAskedForWithTheirPortsInOrder) {
  const ipc::DeviceSpecs specs{{"mlx5_0", {"eth0", "lo"}}, {"mlx5_1", {"lo"}}};
  const auto table = build_devices(specs, plain_host(), kGuid, nullptr);
  ASSERT_EQ(2u, table.device_count);
  EXPECT_EQ("mlx5_0", arena::text(table.devices[0].name));
  EXPECT_EQ(2, table.devices[0].port_count);
  EXPECT_EQ("eth0", arena::text(table.devices[0].ports[0].interface));
  EXPECT_EQ("lo", arena::text(table.devices[0].ports[1].interface));
  EXPECT_EQ(1, table.devices[1].port_count);
  EXPECT_EQ((Gids{"127.0.0.1", "::1"}), gids_of(table.devices[1].ports[0]));
}

TEST(Devices, HaveDistinctGuids) {
  ipc::DeviceSpecs specs;
  for (char name = 'a'; name < 'a' + 8; ++name) specs.push_back({std::string(1, name), {"*"}});
  const auto table = build_devices(specs, plain_host(), kGuid, nullptr);
  std::set<uint64_t> guids;
  for (const auto& device : table.devices) guids.insert(device.node_guid);
  EXPECT_EQ(8u, guids.size());
}

TEST(Devices, APortIsDownWhileItsInterfaceIs) {
  auto host = plain_host();
  host[1].up = false;
  const auto port = build_devices({{"a", {"eth0"}}}, host, kGuid, nullptr).devices[0].ports[0];
  EXPECT_EQ(arena::PortState::kDown, port.state);
  EXPECT_EQ("eth0", arena::text(port.interface));
  EXPECT_EQ(3, port.active_mtu);
  EXPECT_EQ((Gids{}), gids_of(port));
}

TEST(Devices, APortOfAnInterfaceThatIsNotThereIsDownAndHasNone) {
  const auto port = build_devices({{"a", {"eth7"}}}, plain_host(), kGuid, nullptr).devices[0].ports[0];
  EXPECT_EQ(arena::PortState::kDown, port.state);
  EXPECT_EQ("", arena::text(port.interface));
  EXPECT_EQ(0u, port.ifindex);
  EXPECT_EQ(1, port.active_mtu);
}

TEST(Devices, APortIsActiveWithoutAnyAddress) {
  const auto port = build_devices({{"a", {"eth0"}}}, {loopback(), interface("eth0", 2, {})}, kGuid, nullptr)
                        .devices[0]
                        .ports[0];
  EXPECT_EQ(arena::PortState::kActive, port.state);
  EXPECT_EQ("eth0", arena::text(port.interface));
  EXPECT_EQ((Gids{}), gids_of(port));
}

TEST(Devices, AreTheSameBytesForTheSameHost) {
  const auto first = build_devices(ipc::default_specs(), plain_host(), kGuid, nullptr);
  const auto again = build_devices(ipc::default_specs(), plain_host(), kGuid, &first);
  EXPECT_EQ(0, std::memcmp(&first, &again, sizeof first));
}

TEST(HostGuid, IsTheSameOnEveryStartWhateverTheAddresses) {
  const uint64_t guid = host_guid("machine", 7, plain_host());
  EXPECT_EQ(guid, host_guid("machine", 7, plain_host()));
  EXPECT_EQ(guid, host_guid("machine", 7, {loopback(), interface("eth0", 2, {"10.9.9.9"})}));
  EXPECT_EQ(guid, host_guid("machine", 8, plain_host()));  // after a reboot the namespace has another number
}

TEST(HostGuid, DiffersByMachineByHardwareAddressAndWithoutOneByNamespace) {
  std::set<uint64_t> guids{host_guid("machine", 7, plain_host()),
                           host_guid("other", 7, plain_host()),
                           host_guid("machine", 7, {loopback(), interface("eth0", 3, {})}),
                           host_guid("machine", 7, {loopback()}),
                           host_guid("machine", 8, {loopback()}),
                           host_guid("other", 7, {loopback()}),
                           host_guid("", 7, {})};
  EXPECT_EQ(7u, guids.size());
}

TEST(HostGuid, IsLocallyAdministeredAndLeavesRoomForTheDevices) {
  for (const char* machine : {"", "a", "b", "0123456789abcdef0123456789abcdef"}) {
    const uint64_t guid = host_guid(machine, 7, plain_host());
    EXPECT_EQ(0x02u, guid >> 56);
    EXPECT_EQ(0u, guid & 0xff);
  }
}

}  // namespace
}  // namespace verbena::agent
