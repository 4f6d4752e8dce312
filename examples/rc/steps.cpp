#include "rc/steps.hpp"

#include <algorithm>

namespace examples {
namespace {

constexpr uint64_t kReadWork = 3;
constexpr uint64_t kWriteWork = 4;

/// Waits for particular completions and keeps those that come before their turn: the two queues aren't
/// ordered.
class Completions {
 public:
  explicit Completions(const NextCompletion& next) : next_(next) {}

  ibv_wc of(uint64_t wr_id) {
    while (true) {
      const auto found = std::ranges::find(early_, wr_id, &ibv_wc::wr_id);
      if (found != early_.end()) {
        const ibv_wc completion = *found;
        early_.erase(found);
        return completion;
      }
      early_.push_back(next_());
      check_completion(early_.back());
    }
  }

 private:
  const NextCompletion& next_;
  std::vector<ibv_wc> early_;
};

/// READ or WRITE, between `buffer` and the peer's memory.
void post_one_sided(ibv_qp* qp, ibv_wr_opcode opcode, uint64_t wr_id, Buffer& buffer, const Region& remote) {
  ibv_send_wr request = {};
  request.wr_id = wr_id;
  request.sg_list = buffer.sges().data();
  request.num_sge = static_cast<int>(buffer.sges().size());
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote.address;
  request.wr.rdma.rkey = remote.rkey;
  post(qp, request, opcode == IBV_WR_RDMA_READ ? "ibv_post_send, READ" : "ibv_post_send, WRITE");
}

void post_empty_send(ibv_qp* qp) {
  ibv_send_wr request = {};
  request.wr_id = kSendWork;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  post(qp, request, "ibv_post_send, no bytes");
}

void show(const std::string& name, const char* operation, uint64_t round, uint64_t size, bool verified) {
  fmt::print("{}: round {}: {}, {} bytes{}\n", name, round + 1, operation, size,
             verified ? ", verified" : "");
  std::fflush(stdout);
}

/// Three patterns a round.
enum Pattern : uint64_t { kSent, kRead, kWritten, kPatterns };
uint64_t seed(uint64_t round, Pattern pattern) { return round * kPatterns + pattern; }

}  // namespace

ServerBuffers::ServerBuffers(ibv_pd* pd, const Options& options)
    : outgoing(pd, options.size, 0, options.sges),
      readable(pd, options.size, IBV_ACCESS_REMOTE_READ, options.sges),
      writable(pd, options.size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, options.sges) {}

Regions ServerBuffers::regions() const {
  return {{readable.address(), readable.rkey()}, {writable.address(), writable.rkey()}};
}

// On iWARP, and only there, the sink of a READ needs REMOTE_WRITE as well.
ClientSideBuffers::ClientSideBuffers(ibv_pd* pd, const Options& options)
    : incoming(pd, options.size, IBV_ACCESS_LOCAL_WRITE, options.sges),
      sink(pd, options.size,
           pd->context->device->transport_type == IBV_TRANSPORT_IWARP
               ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
               : IBV_ACCESS_LOCAL_WRITE,
           options.sges),
      source(pd, options.size, 0, options.sges) {}

Regions::Wire Regions::to_wire() const {
  Wire wire;
  const auto rest = std::ranges::copy(readable.to_wire(), wire.begin()).out;
  std::ranges::copy(writable.to_wire(), rest);
  return wire;
}

std::optional<Regions> Regions::from_wire(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Wire)) return std::nullopt;
  return Regions{*Region::from_wire(bytes), *Region::from_wire(bytes.subspan(sizeof(Region::Wire)))};
}

void post_first_receive_of_server(ibv_qp* qp) {
  ibv_recv_wr request = {};
  request.wr_id = kReceiveWork;
  ibv_recv_wr* bad = nullptr;
  check("ibv_post_recv, no bytes", ibv_post_recv(qp, &request, &bad));
}

void post_first_receive_of_client(ibv_qp* qp, ClientSideBuffers& buffers) {
  post_receive(qp, buffers.incoming);
}

void play_server(ibv_qp* qp, ServerBuffers& buffers, const Options& options, const NextCompletion& next,
                 const std::string& name) {
  Completions completions(next);
  for (uint64_t round = 0; round < options.count; ++round) {
    fill_pattern(buffers.outgoing.bytes(), seed(round, kSent));
    fill_pattern(buffers.readable.bytes(), seed(round, kRead));
    clear(buffers.writable.bytes());
    post_send(qp, buffers.outgoing);
    completions.of(kSendWork);
    // Of what the client READs and WRITEs no completion tells us. But its SEND is behind its WRITE in one
    // queue: when that has come, the bytes are there.
    check_length(completions.of(kReceiveWork), 0);
    if (round + 1 < options.count) post_first_receive_of_server(qp);
    if (options.verify) verify_pattern(buffers.writable.bytes(), seed(round, kWritten));
    show(name, "WRITE was here", round, options.size, options.verify);
  }
}

void play_client(ibv_qp* qp, ClientSideBuffers& buffers, const Regions& server, const Options& options,
                 const NextCompletion& next, const std::string& name) {
  Completions completions(next);
  for (uint64_t round = 0; round < options.count; ++round) {
    check_length(completions.of(kReceiveWork), options.size);
    if (options.verify) verify_pattern(buffers.incoming.bytes(), seed(round, kSent));
    show(name, "RECV", round, options.size, options.verify);
    clear(buffers.incoming.bytes());
    if (round + 1 < options.count) post_receive(qp, buffers.incoming);

    clear(buffers.sink.bytes());
    post_one_sided(qp, IBV_WR_RDMA_READ, kReadWork, buffers.sink, server.readable);
    completions.of(kReadWork);
    if (options.verify) verify_pattern(buffers.sink.bytes(), seed(round, kRead));
    show(name, "READ", round, options.size, options.verify);

    fill_pattern(buffers.source.bytes(), seed(round, kWritten));
    post_one_sided(qp, IBV_WR_RDMA_WRITE, kWriteWork, buffers.source, server.writable);
    post_empty_send(qp);
    completions.of(kWriteWork);
    completions.of(kSendWork);
    show(name, "WRITE", round, options.size, false);  // the server sees whether it is right
  }
}

}  // namespace examples
