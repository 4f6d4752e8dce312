// Memory windows of an end.
#include <cerrno>

#include "endpoint.hpp"

namespace verbena::rc {

Window Endpoint::add_window(ibv_mw_type type, bool other_domain) {
  ibv_mw* made = ibv_alloc_mw(other_domain ? other_pd_ : pd_, type);
  if (made == nullptr) return {.error = errno};
  windows_[++last_window_] = made;
  return {.id = last_window_, .rkey = made->rkey};
}

Window Endpoint::bind(const BindOrder& order) {
  ibv_mw* window = windows_.at(order.window);
  const ibv_mw_bind_info info{.mr = order.buffer != 0 ? buffers_.at(order.buffer).mr : nullptr,
                              .addr = order.address,
                              .length = order.length,
                              .mw_access_flags = order.access};
  Window bound{.id = order.window, .rkey = order.rkey != 0 ? order.rkey : ibv_inc_rkey(window->rkey)};
  if ((window->type == IBV_MW_TYPE_1) != order.other_verb) {
    ibv_mw_bind bind{.wr_id = order.wr_id, .send_flags = order.flags, .bind_info = info};
    bound.error = ibv_bind_mw(qp_, window, &bind);
    if (bound.error == 0) bound.rkey = window->rkey;
    return bound;
  }
  ibv_send_wr request{};
  request.wr_id = order.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = order.flags;
  request.bind_mw.mw = window;
  request.bind_mw.rkey = bound.rkey;
  request.bind_mw.bind_info = info;
  ibv_send_wr* bad = nullptr;
  bound.error = ibv_post_send(qp_, &request, &bad);
  if (bound.error == 0) window->rkey = bound.rkey;  // a type 2 window's key is the program's to keep
  return bound;
}

int Endpoint::remove_window(uint32_t id) {
  const int error = ibv_dealloc_mw(windows_.at(id));
  if (error == 0) windows_.erase(id);
  return error;
}

}  // namespace verbena::rc
