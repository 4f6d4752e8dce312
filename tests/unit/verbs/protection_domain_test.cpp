#include "verbs/protection_domain.hpp"

#include <gtest/gtest.h>

#include "verbs/device_limits.hpp"

namespace verbena::verbs {
namespace {

TEST(ProtectionDomain, StaysWhileHeld) {
  ProtectionDomains domains;
  const auto domain = *domains.allocate("verbena0");
  ASSERT_TRUE(domain->hold());

  const auto refused = domains.deallocate(*domain);
  ASSERT_FALSE(refused);
  EXPECT_EQ(EBUSY, refused.error().code);

  domain->release();
  EXPECT_TRUE(domains.deallocate(*domain));
}

TEST(ProtectionDomain, CantBeHeldOrDeallocatedTwice) {
  ProtectionDomains domains;
  const auto domain = *domains.allocate("verbena0");
  ASSERT_TRUE(domains.deallocate(*domain));
  EXPECT_FALSE(domain->hold());
  EXPECT_EQ(ENOENT, domains.deallocate(*domain).error().code);
}

TEST(ProtectionDomain, IsFoundByItsDeviceOnly) {
  ProtectionDomains domains;
  const auto domain = *domains.allocate("verbena0");
  EXPECT_EQ(domain, *domains.find("verbena0", domain->handle()));
  EXPECT_EQ(ENOENT, domains.find("verbena1", domain->handle()).error().code);
  ASSERT_TRUE(domains.deallocate(*domain));
  EXPECT_EQ(ENOENT, domains.find("verbena0", domain->handle()).error().code);
}

TEST(ProtectionDomain, HandlesAreNotReusedAtOnce) {
  ProtectionDomains domains;
  const auto first = *domains.allocate("verbena0");
  ASSERT_TRUE(domains.deallocate(*first));
  EXPECT_NE(first->handle(), (*domains.allocate("verbena0"))->handle());
}

TEST(ProtectionDomain, TheAdvertisedNumberFits) {
  ProtectionDomains domains;
  for (int i = 0; i < kMaxPd; ++i) ASSERT_TRUE(domains.allocate("verbena0"));
  EXPECT_EQ(ENOMEM, domains.allocate("verbena0").error().code);
}

}  // namespace
}  // namespace verbena::verbs
