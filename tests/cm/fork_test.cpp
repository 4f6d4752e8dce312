// fork(): what the parent made answers an error in the child, which makes its own; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include "ends.hpp"

namespace verbena::cm_test {
namespace {

// The child's checks, each with a number for its exit status; 0: all held.
int check_in_child(Pair& pair) {
  Address here("127.0.0.1", 0);
  rdma_cm_event* event = nullptr;
  rdma_cm_id* id = nullptr;
  if (rdma_get_cm_event(pair.active_channel.get(), &event) != -1 || errno != EIO) return 1;
  if (rdma_bind_addr(pair.listener.get(), here.get()) != -1 || errno != EIO) return 2;
  if (rdma_disconnect(pair.active.get()) != -1 || errno != EIO) return 3;
  if (rdma_create_id(pair.active_channel.get(), &id, nullptr, RDMA_PS_TCP) != -1 || errno != EIO) return 4;
  if (rdma_listen(pair.listener.get(), 1) != -1 || errno != EIO) return 10;
  if (rdma_resolve_addr(pair.active.get(), nullptr, here.get(), 1000) != -1 || errno != EIO) return 11;
  rdma_conn_param parameters{};
  if (rdma_connect(pair.active.get(), &parameters) != -1 || errno != EIO) return 12;
  if (rdma_accept(pair.passive.get(), &parameters) != -1 || errno != EIO) return 13;
  if (rdma_reject(pair.passive.get(), nullptr, 0) != -1 || errno != EIO) return 14;
  if (rdma_destroy_id(pair.listener.get()) != -1 || errno != EIO) return 5;
  try {
    Pair own;
    exchange(own.active.get(), own.passive.get());
  } catch (const std::exception&) {
    return 6;
  }
  return testing::Test::HasFailure() ? 7 : 0;
}

TEST(Fork, TheChildMakesItsOwnAndTheParentGoesOn) {
  Pair pair;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check_in_child(pair));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  exchange(pair.active.get(), pair.passive.get());
  ASSERT_EQ(rdma_disconnect(pair.active.get()), 0);
  EXPECT_TRUE(next_is(pair.passive_channel.get(), RDMA_CM_EVENT_DISCONNECTED));
}

}  // namespace
}  // namespace verbena::cm_test
