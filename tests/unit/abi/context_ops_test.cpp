// Every operation slot of a context is filled, and refuses by its own convention what isn't there yet.
#include <gtest/gtest.h>

#include <cstring>

#include "abi/objects.hpp"

namespace verbena::abi {
namespace {

bool is_empty(const void* slot) {
  void* value = nullptr;
  std::memcpy(&value, slot, sizeof value);
  return value == nullptr;
}

TEST(ContextOps, NoBasicSlotIsEmpty) {
  verbs_context verbs{};
  fill_operations(verbs);
  const auto* slots = reinterpret_cast<const std::byte*>(&verbs.context.ops);
  for (size_t at = 0; at < sizeof verbs.context.ops; at += sizeof(void*))
    EXPECT_FALSE(is_empty(slots + at)) << "ibv_context_ops +" << at;
}

TEST(ContextOps, NoExtendedSlotIsEmpty) {
  verbs_context verbs{};
  fill_operations(verbs);
  const auto* slots = reinterpret_cast<const std::byte*>(&verbs);
  for (size_t at = 0; at < offsetof(verbs_context, _ABI_placeholder3); at += sizeof(void*)) {
    if (at == offsetof(verbs_context, priv)) continue;  // a vendor driver's data, not a function
    EXPECT_FALSE(is_empty(slots + at)) << "verbs_context +" << at;
  }
}

TEST(ContextOps, RefusesByConvention) {
  verbs_context verbs{};
  fill_operations(verbs);
  EXPECT_EQ(EOPNOTSUPP, verbs.modify_wq(nullptr, nullptr));
  EXPECT_EQ(EOPNOTSUPP, verbs.destroy_counters(nullptr));
  errno = 0;
  EXPECT_EQ(nullptr, verbs.create_wq(nullptr, nullptr));
  EXPECT_EQ(EOPNOTSUPP, errno);
}

}  // namespace
}  // namespace verbena::abi
