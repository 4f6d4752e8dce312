// devices: the RDMA devices of this host, as rdma_get_devices lists them and ibv_query_device describes them.
#include <endian.h>
#include <rdma/rdma_cma.h>

#include <memory>

#include "common/program.hpp"
#include "common/trace.hpp"

namespace {

using namespace examples;

constexpr const char* kName = "devices";

struct FreeDevices {
  void operator()(ibv_context** list) const {
    rdma_free_devices(list);  // the contexts stay open: they belong to librdmacm
    trace("rdma_free_devices: done");
  }
};

std::string guid_text(__be64 guid) {
  const uint64_t number = be64toh(guid);
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", number >> 48, number >> 32 & 0xffff,
                     number >> 16 & 0xffff, number & 0xffff);
}

void print_limits(const ibv_device_attr& limits) {
  const auto line = [](const char* what, auto value) { fmt::print("  {:<34}{}\n", what, value); };
  line("largest memory region, bytes", limits.max_mr_size);
  line("memory regions", limits.max_mr);
  line("protection domains", limits.max_pd);
  line("queue pairs", limits.max_qp);
  line("work requests in a queue", limits.max_qp_wr);
  line("SGEs of a work request", limits.max_sge);
  line("completion queues", limits.max_cq);
  line("completions in a queue", limits.max_cqe);
  line("READs and atomics served by a QP", limits.max_qp_rd_atom);
  line("shared receive queues", limits.max_srq);
  line("address handles", limits.max_ah);
  line("multicast groups", limits.max_mcast_grp);
  const bool atomic = limits.atomic_cap != IBV_ATOMIC_NONE;
  line("atomics", atomic ? limits.atomic_cap == IBV_ATOMIC_GLOB ? "with the processor's, too" : "yes" : "no");
}

void print_device(ibv_context* context) {
  ibv_device_attr attributes = {};
  check("ibv_query_device", ibv_query_device(context, &attributes));
  ibv_device* const device = context->device;
  fmt::print("{}: {}, transport {}, {} port{}\n", ibv_get_device_name(device),
             ibv_node_type_str(device->node_type), static_cast<int>(device->transport_type),
             attributes.phys_port_cnt, attributes.phys_port_cnt == 1 ? "" : "s");
  fmt::print("  {:<34}{}\n", "node GUID", guid_text(attributes.node_guid));
  fmt::print("  {:<34}{}\n", "firmware", attributes.fw_ver);
  fmt::print("  {:<34}{:#x}, part {}\n", "vendor", attributes.vendor_id, attributes.vendor_part_id);
  print_limits(attributes);
}

void run(const Options&) {
  int count = 0;
  const std::unique_ptr<ibv_context*, FreeDevices> list(
      check_new("rdma_get_devices", rdma_get_devices(&count)));
  fmt::print("{}: {} device{}\n", kName, count, count == 1 ? "" : "s");
  if (count == 0) throw Failure("there is no RDMA device here");
  for (int i = 0; i < count; ++i) print_device(list.get()[i]);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {kName, "Lists the RDMA devices of this host.", Role::kAlone}, run);
}
