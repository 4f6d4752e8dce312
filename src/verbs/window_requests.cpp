// Binding and invalidating memory windows: requests that the send queue carries out by itself, in their turn.
#include "verbs/memory_windows.hpp"
#include "verbs/process.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/send_queue.hpp"

namespace verbena::verbs {
namespace {

// LOCAL_WRITE says nothing of a window, but programs give it.
constexpr unsigned kBindAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;

}  // namespace

int SendQueue::prepare_here(const ibv_send_wr& from, SendRequest& request, ibv_mw_type windows) {
  if ((from.send_flags & IBV_SEND_INLINE) != 0) return EINVAL;
  request = {.wr_id = from.wr_id, .opcode = from.opcode, .flags = from.send_flags};
  if (from.opcode == IBV_WR_LOCAL_INV) {
    request.imm = from.invalidate_rkey;
    return 0;
  }
  const ibv_mw* window = from.bind_mw.mw;
  const ibv_mw_bind_info& info = from.bind_mw.bind_info;
  if (window == nullptr || window->type != windows || from.bind_mw.rkey >> 8 != window->rkey >> 8)
    return EINVAL;
  if ((info.mw_access_flags & ~kBindAccess) != 0 || (info.mr == nullptr && info.length != 0)) return EINVAL;
  request.imm = windows;
  request.rkey = from.bind_mw.rkey;
  request.remote_address = info.addr;
  request.compare_add = info.length;
  request.swap = uint64_t{info.mr != nullptr ? info.mr->lkey : 0} << 32 | info.mw_access_flags;
  return 0;
}

SendOutcome SendQueue::carry_out_here(const SendRequest& request) const {
  auto& windows = owner_->process().windows();
  const WindowUser user{owner_->number(), owner_->config().domain->handle()};
  const auto verdict = request.opcode == IBV_WR_LOCAL_INV
                           ? windows.invalidate(request.imm, user)
                           : windows.bind({.type = static_cast<ibv_mw_type>(request.imm),
                                           .key = request.rkey,
                                           .region = static_cast<uint32_t>(request.swap >> 32),
                                           .access = static_cast<uint32_t>(request.swap),
                                           .address = request.remote_address,
                                           .length = request.compare_add},
                                          user);
  if (verdict == engine::Verdict::kDone) return {};
  return {SendOutcome::Kind::kFailed, IBV_WC_MW_BIND_ERR, verdict};
}

}  // namespace verbena::verbs
