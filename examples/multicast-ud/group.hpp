// Membership of a multicast group, by RDMA CM.
#pragma once

#include "common/address.hpp"
#include "common/cm_events.hpp"
#include "common/queues.hpp"

namespace examples {

class Group {
 public:
  /// Joins; `from` is the local address to do it with, empty: as the routes say. Throws if options.size
  /// doesn't fit into one packet, for UD has no longer messages.
  Group(const Options& options, const std::string& from, CmEvents& events, Notify notify);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const Queues& queues() const { return *queues_; }
  /// How to address the group: what rdma_join_multicast found out.
  [[nodiscard]] const rdma_ud_param& address() const { return address_; }

 private:
  void check_size(uint64_t size) const;

  AddressList group_;
  CmId id_;
  std::unique_ptr<Queues> queues_;
  rdma_ud_param address_;
};

}  // namespace examples
