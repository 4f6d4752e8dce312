// ibv_cq_ex: completions that are read field by field, with timestamps; and ibv_modify_cq.
#include <fmt/format.h>

#include <ctime>

#include "abi/cq.hpp"
#include "abi/entries.hpp"
#include "abi/refusals.hpp"
#include "base/time.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

constexpr uint64_t kStamps =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kKnownFields = IBV_WC_STANDARD_FLAGS | kStamps;
constexpr uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
constexpr uint32_t kKnownFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

// ---- Polling. Each call takes one completion, so that ibv_poll_cq finds all others whenever it is called.
// ----

int take_next(Cq& cq) {
  const int taken = cq.queue->poll(1, &cq.current, &cq.current_stamp_ns);
  if (taken == 0) return ENOENT;
  if (taken < 0) return EIO;  // it overflowed
  cq.ex.status = cq.current.status;
  cq.ex.wr_id = cq.current.wr_id;
  return 0;
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) noexcept {
  Cq& cq = Cq::from(ex);
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  if (!cq.data->usable()) return refused_as_stale(ex->context);
  if (!cq.one_thread) cq.polling.lock();
  const int error = take_next(cq);
  // Without a first completion ibv_end_poll isn't called.
  if (error != 0 && !cq.one_thread) cq.polling.unlock();
  return error;
}

int next_poll(ibv_cq_ex* ex) noexcept { return take_next(Cq::from(ex)); }

void end_poll(ibv_cq_ex* ex) noexcept {
  if (Cq& cq = Cq::from(ex); !cq.one_thread) cq.polling.unlock();
}

// The completion that start_poll or next_poll took.
const ibv_wc& current(ibv_cq_ex* ex) { return Cq::from(ex).current; }

// The wall clock when the monotonic one showed the stamp, as well as both can be read together now.
uint64_t wall_clock_of(uint64_t stamp_ns) {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const auto wall_ns =
      static_cast<uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(wall.tv_nsec);
  return wall_ns - (static_cast<uint64_t>(base::now().ns) - stamp_ns);
}

void fill_functions(ibv_cq_ex& ex) {
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = [](ibv_cq_ex* cq) { return current(cq).opcode; };
  ex.read_vendor_err = [](ibv_cq_ex* cq) { return current(cq).vendor_err; };
  ex.read_byte_len = [](ibv_cq_ex* cq) { return current(cq).byte_len; };
  ex.read_imm_data = [](ibv_cq_ex* cq) { return current(cq).imm_data; };
  ex.read_qp_num = [](ibv_cq_ex* cq) { return current(cq).qp_num; };
  ex.read_src_qp = [](ibv_cq_ex* cq) { return current(cq).src_qp; };
  ex.read_wc_flags = [](ibv_cq_ex* cq) { return current(cq).wc_flags; };
  ex.read_slid = [](ibv_cq_ex* cq) { return uint32_t{current(cq).slid}; };
  ex.read_sl = [](ibv_cq_ex* cq) { return current(cq).sl; };
  ex.read_dlid_path_bits = [](ibv_cq_ex* cq) { return current(cq).dlid_path_bits; };
  ex.read_completion_ts = [](ibv_cq_ex* cq) { return Cq::from(cq).current_stamp_ns; };
  ex.read_completion_wallclock_ns = [](ibv_cq_ex* cq) {
    return wall_clock_of(Cq::from(cq).current_stamp_ns);
  };
  // Nobody can ask for these, and no program may fall over them.
  ex.read_cvlan = [](ibv_cq_ex*) { return uint16_t{0}; };
  ex.read_flow_tag = [](ibv_cq_ex*) { return uint32_t{0}; };
  ex.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

// ---- Making one. ----

base::Result<void> check(const ibv_cq_init_attr_ex& attr) {
  if ((attr.wc_flags & ~kKnownFields) != 0)
    return base::fail(
        EOPNOTSUPP, fmt::format("completions have no field for wc_flags 0x{:x}: VLANs, flow tags and tags of "
                                "messages belong to adapters that see Ethernet frames or match tags",
                                attr.wc_flags & ~kKnownFields));
  if ((attr.comp_mask & ~kKnownMask) != 0)
    return base::fail(EOPNOTSUPP,
                      fmt::format("comp_mask 0x{:x} has bits without a meaning here", attr.comp_mask));
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr.flags & ~kKnownFlags) != 0)
    return base::fail(EOPNOTSUPP, fmt::format("flags 0x{:x} have bits without a meaning here", attr.flags));
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
      (attr.parent_domain == nullptr || Pd::from(attr.parent_domain).parent == nullptr))
    return base::fail(EINVAL, "IBV_CQ_INIT_ATTR_MASK_PD needs a domain from ibv_alloc_parent_domain");
  return {};
}

base::Result<ibv_cq_ex*> create(ibv_context* context, const ibv_cq_init_attr_ex& attr) {
  if (auto ok = check(attr); !ok) return std::unexpected(ok.error());
  const uint32_t flags = (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attr.flags : 0;
  CqWish wish{.cqe = attr.cqe,
              .cq_context = attr.cq_context,
              .channel = attr.channel,
              .vector = attr.comp_vector,
              .stamps = (attr.wc_flags & kStamps) != 0,
              .ignores_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0};
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    wish.domain = Pd::from(attr.parent_domain).domain;
    wish.parent = Pd::from(attr.parent_domain).parent;
  }
  auto made = create_cq(context, wish);
  if (!made) return std::unexpected(made.error());
  (*made)->one_thread = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  fill_functions((*made)->ex);
  return &(*made)->ex;
}

base::Result<void> modify(ibv_cq* ibv, const ibv_modify_cq_attr& attr) {
  if (auto ok = Context::from(ibv->context).usable(); !ok) return ok;
  if (attr.attr_mask != IBV_CQ_ATTR_MODERATE)
    return base::fail(EINVAL, fmt::format("ibv_modify_cq changes the moderation of events and nothing else: "
                                          "attr_mask 0x{:x} isn't IBV_CQ_ATTR_MODERATE",
                                          attr.attr_mask));
  Cq::from(ibv).queue->moderate(attr.moderate.cq_count, std::chrono::microseconds(attr.moderate.cq_period));
  return {};
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept {
  return or_null(guarded([&] { return create(context, *attr); }));
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept {
  return errno_value(guarded([&] { return modify(cq, *attr); }));
}

}  // namespace verbena::abi
