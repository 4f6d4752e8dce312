#include "net/udp_link.hpp"

namespace verbena::net {

void UdpLink::visit_counters(const CounterVisitor& visit) const {
  const UdpReceiveCounters& in = received();
  visit("received_packets", in.packets);
  visit("received_bytes", in.bytes);
  visit("received_merged", in.merged);
  visit("kernel_drops", in.kernel_drops);
  visit("receive_failed", in.truncated + in.no_destination + in.closed + in.failed);
  visit("receive_buffer", in.receive_buffer_bytes);
  const UdpSendCounters& out = sent();
  visit("sent_packets", out.packets);
  visit("sent_bytes", out.bytes);
  visit("segmented_sends", out.segmented_runs);
  visit("split_sends", out.split_runs);
  visit("send_no_room", out.no_room);
  visit("send_too_long", out.too_long);
  visit("send_unreachable", out.unreachable);
  visit("send_failed", out.forbidden + out.closed + out.no_socket + out.failed);
}

}  // namespace verbena::net
