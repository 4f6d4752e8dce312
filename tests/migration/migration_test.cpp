// Path migration (IBA 17.2.8): armed by both ends, done by either, by a failure, or by the loss of a port.
#include "connection.hpp"
#include "support/isolated.hpp"

namespace verbena::migration {
namespace {

using support::ip;

template <ibv_qp_type kType>
struct Pair : testing::Test {
  Pair() {
    a.connect(b);
    b.connect(a);
  }
  // Both ends are rearmed; traffic both ways arms them.
  void arm() {
    ASSERT_EQ(a.set(IBV_MIG_REARM, kSecond), 0);
    ASSERT_EQ(b.set(IBV_MIG_REARM, kSecond), 0);
    ASSERT_TRUE(sends(a, b));
    ASSERT_TRUE(sends(b, a));
    ASSERT_TRUE(a.becomes(IBV_MIG_ARMED));
    ASSERT_TRUE(b.becomes(IBV_MIG_ARMED));
  }
  static void is_on(End& end, uint8_t port) {
    const ibv_qp_attr attr = end.attributes();
    EXPECT_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
    EXPECT_EQ(attr.port_num, port);
    EXPECT_EQ(attr.ah_attr.port_num, port);
    EXPECT_EQ(attr.alt_port_num, 3 - port);
  }
  End a{kType};
  End b{kType};
};
using Migration = Pair<IBV_QPT_RC>;
using UcMigration = Pair<IBV_QPT_UC>;

TEST_F(Migration, TheDeviceSaysThatItCan) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(a.context(), &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG, 0u);
}

TEST_F(Migration, ByTheProgramAndBack) {
  EXPECT_EQ(a.attributes().path_mig_state, IBV_MIG_MIGRATED);
  arm();
  ASSERT_EQ(a.set(IBV_MIG_MIGRATED), 0);
  EXPECT_TRUE(a.told(IBV_EVENT_PATH_MIG));
  is_on(a, 2);
  EXPECT_EQ(a.attributes().timeout, 15);
  EXPECT_EQ(a.attributes().alt_timeout, 14);
  ASSERT_TRUE(sends(a, b));
  EXPECT_TRUE(b.told(IBV_EVENT_PATH_MIG));
  is_on(b, 2);
  ASSERT_TRUE(sends(b, a));
  // What was used must be loaded anew.
  EXPECT_EQ(a.set(IBV_MIG_REARM), EINVAL);
  ASSERT_EQ(a.set(IBV_MIG_REARM, kFirst), 0);
  ASSERT_EQ(b.load(kFirst), 0);
  ASSERT_EQ(b.set(IBV_MIG_REARM), 0);
  ASSERT_TRUE(sends(a, b));
  ASSERT_TRUE(sends(b, a));
  ASSERT_TRUE(a.becomes(IBV_MIG_ARMED));
  ASSERT_TRUE(b.becomes(IBV_MIG_ARMED));
  ASSERT_EQ(b.set(IBV_MIG_MIGRATED), 0);
  ASSERT_TRUE(sends(b, a));
  EXPECT_TRUE(a.told(IBV_EVENT_PATH_MIG));
  is_on(a, 1);
  is_on(b, 1);
}

TEST_F(Migration, StatesHaveRules) {
  EXPECT_EQ(a.set(IBV_MIG_REARM), EINVAL);           // no path is loaded
  EXPECT_EQ(a.set(IBV_MIG_ARMED, kSecond), EINVAL);  // the device's business
  EXPECT_EQ(a.set(IBV_MIG_MIGRATED), 0);             // as it is
  EXPECT_FALSE(a.told(IBV_EVENT_PATH_MIG, kMoment));
  ASSERT_EQ(a.set(IBV_MIG_REARM, kSecond), 0);
  EXPECT_EQ(a.attributes().path_mig_state, IBV_MIG_REARM);
  ASSERT_TRUE(sends(a, b));
  EXPECT_EQ(a.attributes().path_mig_state, IBV_MIG_REARM);  // the peer hasn't
  ASSERT_EQ(a.set(IBV_MIG_MIGRATED), 0);                    // given up, not done
  EXPECT_FALSE(a.told(IBV_EVENT_PATH_MIG, kMoment));
  EXPECT_EQ(a.attributes().port_num, 1);
  arm();
  EXPECT_EQ(a.load(kSecond), EINVAL);  // under an armed connection
  ASSERT_TRUE(sends(a, b));
}

TEST_F(Migration, WhenAPortLosesItsLink) {
  arm();
  ASSERT_TRUE(ip("link set d0 down"));
  EXPECT_TRUE(a.told(IBV_EVENT_PATH_MIG));
  EXPECT_TRUE(b.told(IBV_EVENT_PATH_MIG));
  is_on(a, 2);
  is_on(b, 2);
  EXPECT_TRUE(sends(a, b));
  EXPECT_TRUE(sends(b, a));
  ASSERT_TRUE(ip("link set d0 up"));
  const auto end = std::chrono::steady_clock::now() + kSoon;
  ibv_port_attr port{};
  while (std::chrono::steady_clock::now() < end && ibv_query_port(a.context(), 1, &port) == 0 &&
         port.state != IBV_PORT_ACTIVE)
    continue;
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
}

// Whoever changes the path while retries go on: those were the other path's. On this one they count anew.
TEST_F(Migration, LateInTheRetries) {
  if (!by_wire()) GTEST_SKIP() << "between processes that share memory nothing gets lost";
  using std::chrono::milliseconds;
  arm();
  ASSERT_TRUE(ip("addr del 10.9.0.1/24 dev d0"));
  ASSERT_TRUE(ip("addr del 10.9.1.1/24 dev d1"));
  const auto begin = std::chrono::steady_clock::now();
  b.post_receive();
  a.post_send();
  ibv_wc completion{};
  EXPECT_FALSE(a.next(completion, milliseconds(120)));  // it has 3 times 67 ms
  ASSERT_EQ(a.set(IBV_MIG_MIGRATED), 0);
  ASSERT_TRUE(a.next(completion, kSoon));  // and 3 times 134 ms now
  EXPECT_EQ(completion.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(120 + 3 * 134));
  ASSERT_TRUE(ip("addr add 10.9.1.1/24 dev d1"));
  ASSERT_TRUE(ip("addr add 10.9.0.1/24 dev d0"));
}

// The port stays, but nothing comes through: retries are used up, then they count anew on the other path.
TEST_F(Migration, WhenRetriesAreUsedUp) {
  if (!by_wire()) GTEST_SKIP() << "between processes that share memory nothing gets lost";
  arm();
  ASSERT_TRUE(ip("addr del 10.9.0.1/24 dev d0"));
  EXPECT_TRUE(sends(a, b));
  EXPECT_TRUE(a.told(IBV_EVENT_PATH_MIG));
  EXPECT_TRUE(b.told(IBV_EVENT_PATH_MIG));
  is_on(a, 2);
  is_on(b, 2);
  EXPECT_TRUE(sends(b, a));
  ASSERT_TRUE(ip("addr add 10.9.0.1/24 dev d0"));
}

// The peer uses another path than the one that was agreed on: it isn't followed.
TEST_F(Migration, ToAPathThatThePeerDoesNotKnowIsRefused) {
  if (!by_wire()) GTEST_SKIP() << "between processes that share memory there is but one way";
  ASSERT_EQ(a.set(IBV_MIG_REARM, {2, "10.9.2.1", "10.9.1.1"}), 0);
  ASSERT_EQ(b.set(IBV_MIG_REARM, kSecond), 0);
  ASSERT_TRUE(sends(a, b));
  ASSERT_TRUE(sends(b, a));
  ASSERT_TRUE(a.becomes(IBV_MIG_ARMED));
  ASSERT_TRUE(b.becomes(IBV_MIG_ARMED));
  ASSERT_EQ(a.set(IBV_MIG_MIGRATED), 0);
  b.post_receive();
  a.post_send();
  EXPECT_TRUE(b.told(IBV_EVENT_PATH_MIG_ERR));
  ibv_wc completion{};
  ASSERT_TRUE(a.next(completion, kSoon));
  EXPECT_EQ(completion.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(b.attributes().path_mig_state, IBV_MIG_ARMED);
  EXPECT_EQ(b.attributes().port_num, 1);
}

TEST_F(UcMigration, ByTheProgram) {
  arm();
  ASSERT_EQ(a.set(IBV_MIG_MIGRATED), 0);
  EXPECT_TRUE(a.told(IBV_EVENT_PATH_MIG));
  ASSERT_TRUE(sends(a, b));
  EXPECT_TRUE(b.told(IBV_EVENT_PATH_MIG));
  is_on(a, 2);
  is_on(b, 2);
  EXPECT_TRUE(sends(b, a));
}

}  // namespace
}  // namespace verbena::migration

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "watch") return verbena::migration::watch_events();
  if (argc == 2 && std::string(argv[1]) == "lose") return verbena::migration::lose_device();
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    using verbena::support::ip;
    verbena::support::isolate();
    bool ready = true;
    for (const std::string n : {"0", "1"})
      ready = ready && ip("link add d" + n + " type veth peer name p" + n) && ip("link set p" + n + " up") &&
              ip("link set d" + n + " up") && ip("addr add 10.9." + n + ".1/24 dev d" + n);
    if (!ready || !ip("addr add 10.9.2.1/24 dev d1")) return 1;
    ::setenv("VERBENA_DEVICES", "mlx5_0=d0,d1", 1);
  }
  return RUN_ALL_TESTS();
}
