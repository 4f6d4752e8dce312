// An initiator and a target of one process, connected.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include "party.hpp"

namespace verbena::xrc {

struct Pair {
  Party party{-1};
  ibv_qp* initiator = nullptr;
  ibv_qp* target = nullptr;

  // False: something couldn't be made.
  [[nodiscard]] bool connect() {
    if (party.srq() == nullptr) return false;
    initiator = party.make_initiator();
    target = party.make_target();
    return initiator != nullptr && target != nullptr && party.connect(target, initiator->qp_num) == 0 &&
           party.connect(initiator, target->qp_num) == 0;
  }
  // One message there; the first status that isn't good, of the initiator's end, then the queue's.
  [[nodiscard]] ibv_wc_status send() {
    if (party.post_receive(7, kBytes / 2, 64) != 0) return kNothing;
    if (party.post(initiator, 1, {.srq = party.srq_number()}) != 0) return kNothing;
    const ibv_wc_status status = party.sent().status;
    return status == IBV_WC_SUCCESS ? party.received().status : status;
  }
  [[nodiscard]] uint64_t address(uint32_t offset) {
    return reinterpret_cast<uint64_t>(party.bytes().data()) + offset;
  }
};

// Takes and acknowledges the next event of a context; event_type IBV_EVENT_DEVICE_FATAL: none came.
inline ibv_async_event next_event(ibv_context* context, int milliseconds = 8000) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  pollfd wait{.fd = context->async_fd, .events = POLLIN, .revents = 0};
  if (::poll(&wait, 1, milliseconds) != 1 || ibv_get_async_event(context, &event) != 0) return event;
  ibv_ack_async_event(&event);
  return event;
}

}  // namespace verbena::xrc
