// What doesn't come to be: rejected, refused, taken, unknown. The event, status and errno of each.
#include <thread>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

constexpr int kConsumerDefined = 28;
constexpr int kNoListener = 8;

testing::AssertionResult fails_with(int result, int error) {
  const int found = errno;
  if (result == -1 && found == error) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "answered " << result << ", errno " << std::strerror(found)
                                     << ", where " << std::strerror(error) << " should be";
}

// A port that nobody listens at.
uint16_t free_port() {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  Address any("127.0.0.1");
  must(rdma_bind_addr(id.get(), any.get()), "rdma_bind_addr");
  return ntohs(rdma_get_src_port(id.get()));
}

TEST(Refusals, ARejectionCarriesPrivateDataAndFailsTheQueuePair) {
  Pair pair(Pair::Unanswered{});
  const std::string reason = "no such size";
  ASSERT_EQ(rdma_reject(pair.passive.get(), reason.data(), static_cast<uint8_t>(reason.size())), 0);
  const Event rejected = next(pair.active_channel.get());
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, kConsumerDefined);
  EXPECT_EQ(rejected.data, reason);
  EXPECT_EQ(state_of(pair.active->qp), IBV_QPS_ERR);
  EXPECT_TRUE(fails_with(rdma_accept(pair.passive.get(), nullptr), EINVAL));
}

TEST(Refusals, ARequestWhoseIdIsDestroyedIsRejected) {
  Pair pair(Pair::Unanswered{});
  pair.passive.reset();
  EXPECT_EQ(next(pair.active_channel.get()).type, RDMA_CM_EVENT_REJECTED);
}

TEST(Refusals, WithoutAListenerTheConnectionIsRejected) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  Address nobody("127.0.0.1", free_port());
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, nobody.get(), 2000), 0);
  ASSERT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED));
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  ASSERT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED));
  give_queue_pair(id.get());
  ASSERT_EQ(rdma_connect(id.get(), nullptr), 0);
  EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_REJECTED, kNoListener));
}

TEST(Refusals, WithoutAListenerASynchronousConnectIsRefused) {
  const auto id = make_id(nullptr);
  Address nobody("127.0.0.1", free_port());
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, nobody.get(), 2000), 0);
  ASSERT_EQ(rdma_resolve_route(id.get(), 2000), 0);
  give_queue_pair(id.get());
  EXPECT_TRUE(fails_with(rdma_connect(id.get(), nullptr), ECONNREFUSED));
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_REJECTED);
}

TEST(Refusals, AnAddressIsTakenOnce) {
  const auto channel = make_channel();
  const auto first = make_id(channel.get());
  Address here("127.0.0.1");
  ASSERT_EQ(rdma_bind_addr(first.get(), here.get()), 0);
  ASSERT_EQ(rdma_listen(first.get(), 1), 0);
  Address same("127.0.0.1", ntohs(rdma_get_src_port(first.get())));
  const auto second = make_id(channel.get());
  EXPECT_TRUE(fails_with(rdma_bind_addr(second.get(), same.get()), EADDRINUSE));
  // Other port spaces have ports of their own.
  const auto datagrams = make_id(channel.get(), RDMA_PS_UDP);
  EXPECT_EQ(rdma_bind_addr(datagrams.get(), same.get()), 0);
}

TEST(Refusals, AddressesOfOthersCantBeBound) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  Address others("192.0.2.1");
  EXPECT_TRUE(fails_with(rdma_bind_addr(id.get(), others.get()), EADDRNOTAVAIL));
  EXPECT_EQ(id->verbs, nullptr);
  Address here("127.0.0.1");
  EXPECT_EQ(rdma_bind_addr(id.get(), here.get()), 0);  // it is as before
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
}

TEST(Refusals, NoRouteIsAnAddressError) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  Address far("192.0.2.1", 7471);  // this namespace has only lo
  ASSERT_EQ(rdma_resolve_addr(id.get(), nullptr, far.get(), 2000), 0);
  EXPECT_TRUE(next_is(channel.get(), RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH));
  const auto synchronous = make_id(nullptr);
  EXPECT_TRUE(fails_with(rdma_resolve_addr(synchronous.get(), nullptr, far.get(), 2000), ENETUNREACH));
}

TEST(Refusals, StepsInTheWrongOrder) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  EXPECT_TRUE(fails_with(rdma_resolve_route(id.get(), 2000), EINVAL));
  EXPECT_TRUE(fails_with(rdma_connect(id.get(), nullptr), EINVAL));
  EXPECT_TRUE(fails_with(rdma_accept(id.get(), nullptr), EINVAL));
  EXPECT_TRUE(fails_with(rdma_disconnect(id.get()), EINVAL));
  EXPECT_TRUE(fails_with(rdma_reject(id.get(), nullptr, 0), EINVAL));
  auto attributes = queue_pair_attributes();
  EXPECT_TRUE(fails_with(rdma_create_qp(id.get(), nullptr, &attributes), EINVAL));
  rdma_cm_id* none = nullptr;
  EXPECT_TRUE(fails_with(rdma_get_request(id.get(), &none), EINVAL));
  EXPECT_TRUE(
      fails_with(rdma_create_id(channel.get(), &none, nullptr, static_cast<rdma_port_space>(7)), EINVAL));
}

TEST(Refusals, TooMuchPrivateData) {
  Pair pair(Pair::Unanswered{});
  give_queue_pair(pair.passive.get());
  const std::string most(196, 'x');
  const std::string more = most + "y";
  auto wanted = parameters(more);
  EXPECT_TRUE(fails_with(rdma_accept(pair.passive.get(), &wanted), EINVAL));
  wanted = parameters(most);
  EXPECT_EQ(rdma_accept(pair.passive.get(), &wanted), 0);
  EXPECT_EQ(next(pair.active_channel.get()).data, most);
}

TEST(Refusals, OptionsAreCheckedForLengthAndValue) {
  const auto channel = make_channel();
  const auto id = make_id(channel.get());
  uint8_t byte = 0x20;
  int number = 1;
  EXPECT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, sizeof byte), 0);
  EXPECT_TRUE(fails_with(
      rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &number, sizeof number), EINVAL));
  EXPECT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &number, sizeof number), 0);
  EXPECT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number, sizeof number), 0);
  EXPECT_TRUE(fails_with(
      rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte), EINVAL));
  byte = 14;
  EXPECT_EQ(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, sizeof byte), 0);
  EXPECT_TRUE(fails_with(rdma_set_option(id.get(), RDMA_OPTION_ID, 99, &number, sizeof number), ENOSYS));
}

}  // namespace
}  // namespace verbena::cm_test
