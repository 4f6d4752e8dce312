#include "multicast-ud/group.hpp"

namespace examples {

Group::Group(const Options& options, const std::string& from, CmEvents& events, Notify notify)
    : group_(address_of_server(options.server, options.port)),
      id_(create_id(events.channel(), RDMA_PS_UDP)),
      address_{} {
  AddressList source;
  if (!from.empty()) {
    source = address_of_server(from, "0");
    check("rdma_bind_addr", rdma_bind_addr(id_.get(), source->ai_addr));
  }
  // Finds the device, as for a connection.
  check("rdma_resolve_addr",
        rdma_resolve_addr(id_.get(), source ? source->ai_addr : nullptr, group_->ai_addr, 2000));
  events.await(RDMA_CM_EVENT_ADDR_RESOLVED);
  check_size(options.size);
  queues_ = std::make_unique<Queues>(id_.get(), options, notify, IBV_QPT_UD);
  // Attaches the queue pair to the group as well.
  check("rdma_join_multicast", rdma_join_multicast(id_.get(), group_->ai_addr, nullptr));
  address_ = events.await(RDMA_CM_EVENT_MULTICAST_JOIN).ud;
}

Group::~Group() {
  check_in_teardown("rdma_leave_multicast", rdma_leave_multicast(id_.get(), group_->ai_addr));
}

void Group::check_size(uint64_t size) const {
  ibv_port_attr port = {};
  check("ibv_query_port", ibv_query_port(id_->verbs, id_->port_num, &port));
  const auto mtu = uint64_t{128} << port.active_mtu;
  if (size > mtu)
    throw Failure(fmt::format("a UD message has at most the MTU's {} bytes, not {}", mtu, size));
}

}  // namespace examples
