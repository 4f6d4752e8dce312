#include "verbs/request_memory.hpp"

#include <algorithm>

#include "verbs/key_check.hpp"

namespace verbena::verbs {

using engine::Verdict;

Verdict slice_request(const arena::ProcessArena& arena, uint32_t domain, const SendRequest& request,
                      uint64_t offset, uint64_t length, uint32_t access, RequestSlice& out) {
  if (request.inline_data != nullptr) {
    out.pieces[0] = {const_cast<std::byte*>(request.inline_data) + offset, length};
    out.count = length > 0 ? 1 : 0;
    return Verdict::kDone;
  }
  const bool unchecked = (request.flags & IBV_SEND_INLINE) != 0;  // being posted: any readable memory will do
  uint64_t begin = 0;
  for (unsigned i = 0; i < request.piece_count; ++i) {
    const ibv_sge& piece = request.pieces[i];
    const uint64_t first = std::max(begin, offset);
    const uint64_t last = std::min<uint64_t>(begin + piece.length, offset + length);
    if (first < last) {
      Region region{.address = piece.addr + (first - begin)};
      const KeyUse use{piece.lkey, piece.addr + (first - begin), last - first, domain, access};
      if (!unchecked && check_key(arena, use, region) != Verdict::kDone) return Verdict::kFaultHere;
      out.pieces[out.count++] = {reinterpret_cast<void*>(region.address), last - first};
      out.end =
          out.count == 1 && begin + piece.length > last ? region.address + (begin + piece.length - first) : 0;
    }
    begin += piece.length;
  }
  return Verdict::kDone;
}

bool guard_request(HazardGuard& guard, const SendRequest& request) {
  if (request.inline_data == nullptr)
    for (unsigned i = 0; i < request.piece_count; ++i)
      if (!guard.add(request.pieces[i].lkey)) return false;
  guard.seal();
  return true;
}

}  // namespace verbena::verbs
