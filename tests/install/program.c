/* A user's program, linked natively: opens the first device and prints its name. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

int main(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL || count == 0) return 1;
  struct ibv_context* context = ibv_open_device(list[0]);
  if (context == NULL) return 2;
  printf("%s %s\n", ibv_get_device_name(list[0]), rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
  ibv_free_device_list(list);
  return ibv_close_device(context);
}
