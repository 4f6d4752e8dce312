/* Finds the verbs as NCCL does: dlopen("libibverbs.so") and dlvsym, without linking to us. With the argument
 * "devices" it also opens the first device. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static void* library;

static void* find(const char* name, const char* version) {
  void* function = dlvsym(library, name, version);
  if (!function) fprintf(stderr, "no %s@%s: %s\n", name, version, dlerror());
  return function;
}

static int open_first(void) {
  struct ibv_device** (*get_list)(int*) = find("ibv_get_device_list", "IBVERBS_1.1");
  void (*free_list)(struct ibv_device**) = find("ibv_free_device_list", "IBVERBS_1.1");
  struct ibv_context* (*open_device)(struct ibv_device*) = find("ibv_open_device", "IBVERBS_1.1");
  int (*close_device)(struct ibv_context*) = find("ibv_close_device", "IBVERBS_1.1");
  int (*query_device)(struct ibv_context*, struct ibv_device_attr*) = find("ibv_query_device", "IBVERBS_1.1");

  int count = 0;
  struct ibv_device** list = get_list(&count);
  if (!list || count < 1) return 2;
  struct ibv_context* context = open_device(list[0]);
  free_list(list);
  if (!context) return 3;
  struct ibv_device_attr attr;
  memset(&attr, 0xff, sizeof attr);
  if (query_device(context, &attr) != 0 || attr.phys_port_cnt < 1) return 4;
  return close_device(context) == 0 ? 0 : 5;
}

int main(int argc, char** argv) {
  static const char* const k_names[] = {
      "ibv_get_device_list", "ibv_free_device_list", "ibv_get_device_name", "ibv_open_device",
      "ibv_close_device",    "ibv_get_async_event",  "ibv_ack_async_event", "ibv_query_device",
      "ibv_query_port",      "ibv_query_gid",        "ibv_query_qp",        "ibv_alloc_pd",
      "ibv_dealloc_pd",      "ibv_reg_mr",           "ibv_dereg_mr",        "ibv_create_cq",
      "ibv_destroy_cq",      "ibv_create_qp",        "ibv_modify_qp",       "ibv_destroy_qp",
      "ibv_fork_init",       "ibv_event_type_str",
  };
  library = dlopen("libibverbs.so", RTLD_NOW);
  if (!library) library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int missing = 0;
  for (size_t i = 0; i < sizeof k_names / sizeof *k_names; ++i) missing += !find(k_names[i], "IBVERBS_1.1");
  missing += !find("ibv_reg_mr_iova2", "IBVERBS_1.8");
  missing += !find("ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  if (missing) return 1;

  int (*fork_init)(void) = find("ibv_fork_init", "IBVERBS_1.1");
  const char* (*event_name)(enum ibv_event_type) = find("ibv_event_type_str", "IBVERBS_1.1");
  if (fork_init() != 0 || strcmp(event_name(IBV_EVENT_PORT_ACTIVE), "port active") != 0) return 1;
  return argc > 1 && strcmp(argv[1], "devices") == 0 ? open_first() : 0;
}
