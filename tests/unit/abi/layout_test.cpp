// The public structs as our headers lay them out, against what Debian's programs were compiled with.
#include <gtest/gtest.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>

namespace {

struct Row {
  const char* what;
  size_t have;
  size_t want;
};

#define STRUCT(type, size, align) \
  {"sizeof " #type, sizeof(type), size}, {"alignof " #type, alignof(type), align},
#define FIELD(type, field, offset) {#type "." #field, offsetof(type, field), offset},
constexpr Row kRows[] = {
#include "layout_rows.inc"
};

TEST(Layout, IsDebians) {
  for (const Row& row : kRows) EXPECT_EQ(row.have, row.want) << row.what;
}

}  // namespace
