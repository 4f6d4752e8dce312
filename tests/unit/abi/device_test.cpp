// The device as a program sees it: through the fronts, with a live host agent in a network namespace of its
// own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <thread>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/isolated.hpp"

#undef ibv_query_port  // the exported function, not the header's inline one

namespace {

class Device : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_NE(nullptr, list) << std::strerror(errno);
    ASSERT_GE(count, 1);
    EXPECT_EQ(nullptr, list[count]);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(nullptr, context) << std::strerror(errno);
  }
  void TearDown() override {
    if (context) {
      EXPECT_EQ(0, ibv_close_device(context));
    }
  }

  verbs_context& extended() { return *verbs_get_ctx(context); }

  ibv_context* context = nullptr;
};

// Runs the body in a forked child; the child's answer is its exit code.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Device, IsDescribedAsAnInfinibandAdapter) {
  ibv_device* device = context->device;  // the list it came from is freed
  EXPECT_STREQ("verbena0", ibv_get_device_name(device));
  EXPECT_EQ(IBV_NODE_CA, device->node_type);
  EXPECT_EQ(IBV_TRANSPORT_IB, device->transport_type);
  EXPECT_STREQ("uverbs0", device->dev_name);
  EXPECT_STREQ("/sys/class/infiniband_verbs/uverbs0", device->dev_path);
  EXPECT_STREQ("/sys/class/infiniband/verbena0", device->ibdev_path);
  EXPECT_EQ(0, ibv_get_device_index(device));
  EXPECT_NE(0u, ibv_get_device_guid(device));
  void* vendor_driver = nullptr;
  std::memcpy(&vendor_driver, reinterpret_cast<std::byte*>(device) + 664, sizeof vendor_driver);
  EXPECT_EQ(nullptr, vendor_driver);
}

TEST_F(Device, ListsTheSameDeviceEachTime) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ASSERT_NE(nullptr, list);
  EXPECT_EQ(context->device, list[0]);
  ibv_free_device_list(list);
}

TEST_F(Device, ContextIsComplete) {
  EXPECT_EQ(__VERBS_ABI_IS_EXTENDED, context->abi_compat);
  EXPECT_EQ(648u, extended().sz);
  EXPECT_GE(context->num_comp_vectors, 1);
  EXPECT_GE(::fcntl(context->cmd_fd, F_GETFD), 0);
  const auto* words = reinterpret_cast<void* const*>(&context->ops);
  for (size_t i = 0; i < sizeof context->ops / sizeof(void*); ++i) EXPECT_NE(nullptr, words[i]) << i;
  words = reinterpret_cast<void* const*>(&extended());
  for (size_t i = 0; i < offsetof(verbs_context, _ABI_placeholder3) / sizeof(void*); ++i) {
    if (i == offsetof(verbs_context, priv) / sizeof(void*)) continue;
    EXPECT_NE(nullptr, words[i]) << i;
  }
}

TEST_F(Device, QueriesTellPlausibleLimits) {
  ibv_device_attr attr{};
  ASSERT_EQ(0, ibv_query_device(context, &attr));
  EXPECT_EQ(attr.node_guid, ibv_get_device_guid(context->device));
  EXPECT_EQ(1, attr.phys_port_cnt);
  EXPECT_EQ(IBV_ATOMIC_HCA, attr.atomic_cap);

  ibv_device_attr_ex extended_attr{};
  ASSERT_EQ(0, ibv_query_device_ex(context, nullptr, &extended_attr));
  EXPECT_EQ(1u, extended_attr.phys_port_cnt_ex);
  EXPECT_EQ(attr.max_qp, extended_attr.orig_attr.max_qp);
  const ibv_query_device_ex_input from_the_future{.comp_mask = 1};
  EXPECT_EQ(EINVAL,
            extended().query_device_ex(context, &from_the_future, &extended_attr, sizeof extended_attr));
}

TEST_F(Device, ExtendedQueryHonoursTheCallersLength) {
  std::vector<unsigned char> buffer(1024, 0xee);
  auto* attr = reinterpret_cast<ibv_device_attr_ex*>(buffer.data());
  EXPECT_EQ(EINVAL, extended().query_device_ex(context, nullptr, attr, 100));
  ASSERT_EQ(0, extended().query_device_ex(context, nullptr, attr, 240));
  EXPECT_EQ(0xee, buffer[240]);
  ASSERT_EQ(0, extended().query_device_ex(context, nullptr, attr, 800));  // a newer program's
  EXPECT_EQ(0, buffer[799]);
  EXPECT_EQ(0xee, buffer[800]);
}

TEST_F(Device, OldPortQueryWrites48Bytes) {
  unsigned char buffer[64];
  std::memset(buffer, 0xee, sizeof buffer);
  ASSERT_EQ(0, ibv_query_port(context, 1, reinterpret_cast<_compat_ibv_port_attr*>(buffer)));
  EXPECT_EQ(0xee, buffer[48]);
  EXPECT_EQ(0xee, buffer[63]);
  ASSERT_EQ(0, extended().query_port(context, 1, reinterpret_cast<ibv_port_attr*>(buffer), 52));
  EXPECT_EQ(0, buffer[48]);
  EXPECT_EQ(0xee, buffer[52]);
}

TEST_F(Device, PortIsRoce) {
  ibv_port_attr port{};
  ASSERT_EQ(0, ___ibv_query_port(context, 1, &port));
  EXPECT_EQ(IBV_LINK_LAYER_ETHERNET, port.link_layer);
  EXPECT_TRUE(port.flags & IBV_QPF_GRH_REQUIRED);
  EXPECT_EQ(64, port.gid_tbl_len);
  EXPECT_EQ(1, port.pkey_tbl_len);
  EXPECT_NE(0, port.active_width);
  EXPECT_NE(0, port.active_speed);
  EXPECT_EQ(port.state == IBV_PORT_ACTIVE ? 5 : 3, port.phys_state);
  EXPECT_EQ(EINVAL, ___ibv_query_port(context, 0, &port));
  EXPECT_EQ(EINVAL, ___ibv_query_port(context, 2, &port));
}

TEST_F(Device, GidTableHasEmptyPlaces) {
  ibv_gid first{};
  ASSERT_EQ(0, ibv_query_gid(context, 1, 0, &first));
  ibv_gid_entry entry{};
  ASSERT_EQ(0, ibv_query_gid_ex(context, 1, 0, &entry, 0));
  EXPECT_EQ(0, std::memcmp(first.raw, entry.gid.raw, sizeof first.raw));
  EXPECT_EQ(static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2), entry.gid_type);
  EXPECT_NE(0u, entry.ndev_ifindex);

  const ibv_gid zero{};
  ibv_gid last{};
  last.raw[3] = 1;
  ASSERT_EQ(0, ibv_query_gid(context, 1, 63, &last));
  EXPECT_EQ(0, std::memcmp(zero.raw, last.raw, sizeof zero.raw));
  EXPECT_EQ(ENODATA, ibv_query_gid_ex(context, 1, 63, &entry, 0));

  for (const int index : {64, -1}) {
    errno = 0;
    EXPECT_EQ(-1, ibv_query_gid(context, 1, index, &last));
    EXPECT_EQ(EINVAL, errno);
  }
  EXPECT_EQ(EINVAL, ibv_query_gid_ex(context, 1, 64, &entry, 0));
  EXPECT_EQ(EINVAL, ibv_query_gid_ex(context, 2, 0, &entry, 0));
  EXPECT_NE(0, ibv_query_gid_ex(context, 1, 0, &entry, 1));
}

TEST_F(Device, GidTableComesWhole) {
  ibv_gid_entry entries[64];
  const ssize_t count = ibv_query_gid_table(context, entries, 64, 0);
  ASSERT_GE(count, 1);
  EXPECT_EQ(0u, entries[0].gid_index);
  EXPECT_EQ(1u, entries[0].port_num);
  EXPECT_EQ(-EINVAL, ibv_query_gid_table(context, entries, static_cast<size_t>(count - 1), 0));
}

TEST_F(Device, HasOnePartitionKey) {
  __be16 pkey = 0;
  ASSERT_EQ(0, ibv_query_pkey(context, 1, 0, &pkey));
  EXPECT_EQ(0xffff, pkey);
  EXPECT_EQ(-1, ibv_query_pkey(context, 1, 1, &pkey));
  EXPECT_EQ(-1, ibv_query_pkey(context, 2, 0, &pkey));
  EXPECT_EQ(0, ibv_get_pkey_index(context, 1, 0xffff));
  EXPECT_EQ(-1, ibv_get_pkey_index(context, 1, 0x1234));
}

TEST_F(Device, ClockRuns) {
  ibv_values_ex first{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | 0x80, .raw_clock = {}};
  ibv_values_ex second = first;
  ASSERT_EQ(0, ibv_query_rt_values_ex(context, &first));
  ASSERT_EQ(0, ibv_query_rt_values_ex(context, &second));
  EXPECT_EQ(static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK), first.comp_mask);
  const auto ns = [](const ibv_values_ex& v) {
    return v.raw_clock.tv_sec * 1'000'000'000 + v.raw_clock.tv_nsec;
  };
  EXPECT_GT(ns(first), 0);
  EXPECT_GE(ns(second), ns(first));
}

TEST_F(Device, DomainsAreAllocatedImportedAndFreed) {
  ibv_pd* pd = ibv_alloc_pd(context);
  ASSERT_NE(nullptr, pd);
  EXPECT_EQ(context, pd->context);
  ibv_pd* imported = ibv_import_pd(context, pd->handle);
  ASSERT_NE(nullptr, imported);
  EXPECT_EQ(pd->handle, imported->handle);
  const uint32_t handle = pd->handle;
  ibv_unimport_pd(imported);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
  EXPECT_EQ(nullptr, ibv_import_pd(context, handle));
}

TEST_F(Device, MayBeClosedBeforeItsDomains) {
  ibv_pd* pd = ibv_alloc_pd(context);
  ASSERT_NE(nullptr, pd);
  EXPECT_EQ(0, ibv_close_device(context));
  context = nullptr;
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
}

TEST_F(Device, IsImportedByADuplicateOfItsDescriptor) {
  ibv_context* imported = ibv_import_device(::dup(context->cmd_fd));
  ASSERT_NE(nullptr, imported) << std::strerror(errno);
  EXPECT_EQ(context->device, imported->device);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_pd* other = ibv_import_pd(imported, pd->handle);
  EXPECT_NE(nullptr, other);
  if (other) ibv_unimport_pd(other);
  EXPECT_EQ(0, ibv_dealloc_pd(pd));
  EXPECT_EQ(0, ibv_close_device(imported));
  EXPECT_EQ(nullptr, ibv_import_device(-1));
}

TEST_F(Device, HasNoEventsAtFirst) {
  pollfd poll_fd{.fd = context->async_fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(0, ::poll(&poll_fd, 1, 0));
  ASSERT_EQ(0, ::fcntl(context->async_fd, F_SETFL, ::fcntl(context->async_fd, F_GETFL) | O_NONBLOCK));
  ibv_async_event event{};
  errno = 0;
  EXPECT_EQ(-1, ibv_get_async_event(context, &event));
  EXPECT_EQ(EAGAIN, errno);
}

TEST_F(Device, IsStaleInAChildThatOpensItsOwn) {
  EXPECT_EQ(0, in_child([&] {
              ibv_device_attr attr{};
              ibv_gid gid{};
              if (ibv_query_device(context, &attr) != 0 || attr.max_qp == 0) return 1;
              if (ibv_query_gid(context, 1, 0, &gid) != -1 || errno != EIO) return 2;
              if (ibv_alloc_pd(context) || errno != EIO) return 3;
              if (ibv_close_device(context) != 0) return 4;
              ibv_device** list = ibv_get_device_list(nullptr);
              if (!list || !list[0]) return 5;
              ibv_context* own = ibv_open_device(list[0]);
              if (!own || ibv_query_device(own, &attr) != 0) return 6;
              return ibv_close_device(own) == 0 ? 0 : 7;
            }));
  ibv_device_attr attr{};
  EXPECT_EQ(0, ibv_query_device(context, &attr));  // the parent's goes on
}

TEST_F(Device, CmDevicesAreOpenedOnce) {
  int count = 0;
  ibv_context** first = rdma_get_devices(&count);
  ASSERT_NE(nullptr, first) << std::strerror(errno);
  ibv_context** second = rdma_get_devices(nullptr);
  ASSERT_NE(nullptr, second);
  EXPECT_GE(count, 1);
  EXPECT_EQ(nullptr, first[count]);
  EXPECT_EQ(first[0], second[0]);
  rdma_free_devices(first);
  ibv_device_attr attr{};
  EXPECT_EQ(0, ibv_query_device(second[0], &attr));
  rdma_free_devices(second);
}

// These programs don't link the fronts but load them, so they run on their own.
int run_with_library_path(const std::string& command) {
  return std::system(("LD_LIBRARY_PATH=" LIBRARY_DIR " " + command).c_str());
}

TEST(Fronts, LoadedApartShareOneCore) { EXPECT_EQ(0, run_with_library_path(TWO_FRONTS)); }

TEST(Fronts, ServeAProgramThatFindsThemAsNcclDoes) {
  EXPECT_EQ(0, run_with_library_path(NCCL_CLIENT " devices"));
}

// Not under sanitizers: AddressSanitizer takes the frames that a cancelled thread left for live ones, and
// both make frames many times as large.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Programs end their event threads so.
TEST_F(Device, ThreadThatWaitsForEventsCanBeCancelled) {
  pthread_t thread;
  ASSERT_EQ(0, pthread_create(
                   &thread, nullptr,
                   [](void* opened) -> void* {
                     ibv_async_event event;
                     ibv_get_async_event(static_cast<ibv_context*>(opened), &event);
                     return nullptr;
                   },
                   context));
  usleep(50'000);
  ASSERT_EQ(0, pthread_cancel(thread));
  void* result = nullptr;
  ASSERT_EQ(0, pthread_join(thread, &result));
  EXPECT_EQ(PTHREAD_CANCELED, result);
}

TEST_F(Device, OpensOnASmallStack) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  ASSERT_EQ(0, pthread_attr_setstacksize(&small, 128 * 1024));
  pthread_t thread;
  ASSERT_EQ(0, pthread_create(
                   &thread, &small,
                   [](void*) -> void* {
                     ibv_device** list = ibv_get_device_list(nullptr);
                     ibv_context* own = list != nullptr ? ibv_open_device(list[0]) : nullptr;
                     if (list != nullptr) ibv_free_device_list(list);
                     if (own != nullptr) ibv_close_device(own);
                     return own;
                   },
                   nullptr));
  void* opened = nullptr;
  ASSERT_EQ(0, pthread_join(thread, &opened));
  EXPECT_NE(nullptr, opened);
}
#endif

// fork() takes our locks; a thread that lists devices through RDMA CM takes them, too.
TEST_F(Device, ForkingWhileDevicesAreListedDoesNotHang) {
  std::atomic<bool> stop = false;
  std::thread lister([&] {
    while (!stop) rdma_free_devices(rdma_get_devices(nullptr));
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    ASSERT_EQ(child, waitpid(child, nullptr, 0));
  }
  stop = true;
  lister.join();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  verbena::support::isolate();
  return RUN_ALL_TESTS();
}
