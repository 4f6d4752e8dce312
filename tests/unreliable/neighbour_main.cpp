// A process with one datagram queue pair: takes what it is told to take, and answers it.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "end.hpp"

int main() {
  using namespace verbena::unreliable;
  constexpr uint32_t kRoom = 4200;
  End end(IBV_QPT_UD);
  end.ready_datagrams();
  for (uint64_t i = 0; i < 200; ++i) end.receive(i, i * kRoom, kRoom);
  std::printf("%u\n", end.number());
  std::fflush(stdout);
  unsigned count = 0;
  char word[16];
  while (std::scanf("%15s %u", word, &count) == 2) {
    unsigned taken = 0;
    ibv_wc completion{};
    while (taken < count && end.next(completion, std::chrono::milliseconds(2000))) {
      if ((completion.opcode & IBV_WC_RECV) == 0) continue;
      ++taken;
      const size_t at = completion.wr_id * kRoom;
      if (std::strcmp(word, "answer") == 0) {
        auto* grh = reinterpret_cast<ibv_grh*>(end.bytes() + at);
        ibv_ah* back = ibv_create_ah_from_wc(end.pd(), &completion, grh, 1);
        (void)end.post({.wr_id = 1000,
                        .at = at + 40,
                        .length = completion.byte_len - 40,
                        .ah = back,
                        .target = completion.src_qp});
        if (back != nullptr) ibv_destroy_ah(back);
      }
      end.receive(completion.wr_id, at, kRoom);
    }
    std::printf("%u\n", taken);
    std::fflush(stdout);
  }
}
