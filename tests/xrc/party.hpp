// One process's share of an XRC conversation: a domain, a shared receive queue with its completion queue,
// initiators and targets.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace verbena::xrc {

inline constexpr uint32_t kPsn = 0x1234;
inline constexpr uint32_t kBytes = 64 << 10;
inline constexpr ibv_wc_status kNothing =
    IBV_WC_INV_EECN_ERR;  // no completion came: a status of no use today

class Party {
 public:
  // `fd` names the domain; -1: a private one.
  explicit Party(int fd);
  ~Party();
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  [[nodiscard]] ibv_xrcd* domain() const { return domain_; }
  [[nodiscard]] ibv_srq* srq() const { return srq_; }
  [[nodiscard]] uint32_t srq_number() const;
  [[nodiscard]] std::vector<uint8_t>& bytes() { return bytes_; }
  [[nodiscard]] ibv_mr* mr() const { return mr_; }

  // Null, with errno.
  [[nodiscard]] ibv_qp* make_initiator();
  [[nodiscard]] ibv_qp* make_target();
  [[nodiscard]] ibv_qp* open_target(uint32_t number);
  // To RTS. 0, or an errno.
  [[nodiscard]] int connect(ibv_qp* qp, uint32_t peer) const;

  // A receive of `length` bytes at `offset`.
  [[nodiscard]] int post_receive(uint64_t id, uint32_t offset, uint32_t length);
  struct Request {
    ibv_wr_opcode opcode = IBV_WR_SEND;
    uint32_t offset = 0;
    uint32_t length = 64;
    uint32_t srq = 0;
    uint32_t rkey = 0;
    uint64_t address = 0;
    uint64_t add = 0;
  };
  [[nodiscard]] int post(ibv_qp* qp, uint64_t id, const Request& request);
  // The next completion of the initiators, or of the shared queue; kNothing: none for so long.
  [[nodiscard]] ibv_wc sent(int milliseconds = 8000);
  [[nodiscard]] ibv_wc received(int milliseconds = 8000);

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_xrcd* domain_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  std::vector<uint8_t> bytes_;
  std::vector<ibv_qp*> queue_pairs_;
};

}  // namespace verbena::xrc
