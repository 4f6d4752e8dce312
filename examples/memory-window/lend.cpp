#include "memory-window/lend.hpp"

#include <algorithm>

namespace examples {
namespace {

constexpr uint64_t kParts = 4;
constexpr uint64_t kBindWork = 3;
constexpr uint64_t kWriteWork = 4;

ibv_send_wr write_request(Buffer& data, const Region& window) {
  ibv_send_wr request = {};
  request.wr_id = kWriteWork;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = data.sges().data();
  request.num_sge = static_cast<int>(data.sges().size());
  request.wr.rdma.remote_addr = window.address;
  request.wr.rdma.rkey = window.rkey;
  return request;
}

}  // namespace

Lender::Lender(ibv_pd* pd, const Options& options)
    : memory_(pd, kParts * options.size, IBV_ACCESS_LOCAL_WRITE),
      message_(pd, sizeof(Region::Wire), 0),
      returned_(pd, 1, IBV_ACCESS_LOCAL_WRITE),
      mr_(check_new("ibv_reg_mr", ibv_reg_mr(pd, memory_.bytes().data(), memory_.bytes().size(),
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND))),
      window_(check_new("ibv_alloc_mw", ibv_alloc_mw(pd, IBV_MW_TYPE_2))),
      rkey_(window_->rkey) {}

void Lender::expect_return(ibv_qp* qp) { post_receive(qp, returned_); }

/// No system call, no registration: a request as any other. The low 8 bits of the key are the program's, and
/// must change with each bind, so that the last borrower's key opens nothing.
void Lender::bind(ibv_qp* qp, uint64_t part, uint64_t size) {
  rkey_ = ibv_inc_rkey(rkey_);
  ibv_send_wr request = {};
  request.wr_id = kBindWork;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = IBV_SEND_SIGNALED;
  request.bind_mw.mw = window_.get();
  request.bind_mw.rkey = rkey_;
  request.bind_mw.bind_info = {.mr = mr_.get(),
                               .addr = memory_.address() + part * size,
                               .length = size,
                               .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  post(qp, request, "ibv_post_send, BIND_MW");
}

void Lender::await_return(const NextCompletion& next) const {
  for (bool returned = false; !returned;) {
    const ibv_wc completion = next();
    check_completion(completion);
    returned = completion.wr_id == kReceiveWork;
    if (returned && ((completion.wc_flags & IBV_WC_WITH_INV) == 0 || completion.invalidated_rkey != rkey_))
      throw Failure("the client's message didn't give the window back");
  }
}

void Lender::lend(ibv_qp* qp, const Options& options, const NextCompletion& next) {
  for (uint64_t step = 0; step < options.count; ++step) {
    const uint64_t part = step % kParts;
    bind(qp, part, options.size);
    const auto wire = Region{memory_.address() + part * options.size, rkey_}.to_wire();
    std::ranges::copy(wire, message_.bytes().begin());
    post_send(qp, message_);  // behind the bind: the client can't have the key too early
    await_return(next);
    // From here on the client can't write any more, so nothing changes under our eyes.
    if (options.verify) verify_pattern(memory_.bytes().subspan(part * options.size, options.size), step);
    if (step + 1 < options.count) expect_return(qp);
  }
}

Borrower::Borrower(ibv_pd* pd, const Options& options)
    : data_(pd, options.size, 0), message_(pd, sizeof(Region::Wire), IBV_ACCESS_LOCAL_WRITE) {}

void Borrower::expect_loan(ibv_qp* qp) { post_receive(qp, message_); }

Region Borrower::borrow(ibv_qp* qp, const Options& options, const NextCompletion& next,
                        Statistics& statistics) {
  using Clock = std::chrono::steady_clock;
  Region window{};
  statistics.start();
  for (uint64_t step = 0; step < options.count; ++step) {
    const auto begin = Clock::now();
    ibv_wc completion = next();
    check_completion(completion);
    const auto region = Region::from_wire(message_.bytes());
    if (completion.wr_id != kReceiveWork || !region) throw Failure("the server lends nothing");
    window = *region;
    if (step + 1 < options.count) expect_loan(qp);
    if (options.verify) fill_pattern(data_.bytes(), step);
    ibv_send_wr data = write_request(data_, window);
    post(qp, data, "ibv_post_send, WRITE");
    ibv_send_wr end = {};
    end.wr_id = kSendWork;
    end.opcode = IBV_WR_SEND_WITH_INV;
    end.send_flags = IBV_SEND_SIGNALED;
    end.invalidate_rkey = window.rkey;
    post(qp, end, "ibv_post_send, SEND_WITH_INV");
    for (int done = 0; done < 2; ++done) check_completion(completion = next());
    statistics.latency.add(Clock::now() - begin);
  }
  statistics.stop();
  statistics.messages = options.count;
  statistics.bytes = options.count * options.size;
  statistics.latency_of = "one loan";
  return window;
}

ibv_wc_status Borrower::write_late(ibv_qp* qp, const Region& window, const NextCompletion& next) {
  ibv_send_wr request = write_request(data_, window);
  post(qp, request, "ibv_post_send, WRITE");
  return next().status;
}

}  // namespace examples
