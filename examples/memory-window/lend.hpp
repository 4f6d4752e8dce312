// How a server lends a part of its memory to a client, and gets it back.
#pragma once

#include "common/options.hpp"
#include "common/region.hpp"
#include "common/work.hpp"

namespace examples {

struct DeallocMw {
  void operator()(ibv_mw* mw) const { check_in_teardown("ibv_dealloc_mw", ibv_dealloc_mw(mw)); }
};
using Mw = std::unique_ptr<ibv_mw, DeallocMw>;

/// The server's side: memory that is registered once, and a window that opens one part of it at a time.
class Lender {
 public:
  Lender(ibv_pd* pd, const Options& options);

  /// Before the client may send anything.
  void expect_return(ibv_qp* qp);
  /// options.count times: binds the window to a part, tells the client its key, waits until the client gives
  /// it back, looks at what was written.
  void lend(ibv_qp* qp, const Options& options, const NextCompletion& next);

 private:
  void bind(ibv_qp* qp, uint64_t part, uint64_t size);
  void await_return(const NextCompletion& next) const;

  Buffer memory_;   ///< no peer can reach it but through the window
  Buffer message_;  ///< address and key of what is lent
  Buffer returned_;
  Mr mr_;
  Mw window_;
  uint32_t rkey_ = 0;  ///< of the window as it is bound now
};

/// The client's side. Returns the last window it had, which is closed by then.
class Borrower {
 public:
  Borrower(ibv_pd* pd, const Options& options);

  void expect_loan(ibv_qp* qp);
  Region borrow(ibv_qp* qp, const Options& options, const NextCompletion& next, Statistics& statistics);
  /// One WRITE more, through a window that was given back: how it ends.
  ibv_wc_status write_late(ibv_qp* qp, const Region& window, const NextCompletion& next);

 private:
  Buffer data_;
  Buffer message_;
};

}  // namespace examples
