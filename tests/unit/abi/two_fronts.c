/* Loads both fronts by dlopen, apart from each other and without linking to either, three times over: they
 * meet in one core, which outlives them. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

static struct ibv_context*
    kept; /* of the first round: librdmacm's devices stay open for as long as the process lives */

static int round_trip(void) {
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  void* cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!verbs || !cm) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  struct ibv_device** (*get_list)(int*) = dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");
  void (*free_list)(struct ibv_device**) = dlvsym(verbs, "ibv_free_device_list", "IBVERBS_1.1");
  struct ibv_context** (*get_devices)(int*) = dlvsym(cm, "rdma_get_devices", "RDMACM_1.0");
  void (*free_devices)(struct ibv_context**) = dlvsym(cm, "rdma_free_devices", "RDMACM_1.0");
  if (!get_list || !free_list || !get_devices || !free_devices) return 2;

  struct ibv_device** devices = get_list(NULL);
  struct ibv_context** contexts = get_devices(NULL);
  if (!devices || !devices[0] || !contexts || !contexts[0]) return 3;
  if (contexts[0]->device != devices[0]) return 4; /* two cores would have two device tables */
  if (kept && kept != contexts[0]) return 5;
  kept = contexts[0];
  free_list(devices);
  free_devices(contexts);

  if (dlclose(verbs) != 0 || dlclose(cm) != 0) return 6;
  if (dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD)) return 7;
  return dlopen("libverbena-core.so", RTLD_NOW | RTLD_NOLOAD) ? 0 : 8;
}

int main(void) {
  for (int round = 0; round < 3; ++round) {
    const int failed = round_trip();
    if (failed) {
      fprintf(stderr, "round %d failed at step %d\n", round, failed);
      return failed;
    }
  }
  return 0;
}
