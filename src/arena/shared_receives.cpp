#include "arena/shared_receives.hpp"

namespace verbena::arena {
namespace {

constexpr uint32_t kMostEntries = kSrqLeastFirst << (kSrqBlocks - 1);
constexpr int kPatience = 1000;

}  // namespace

SharedReceives::Place SharedReceives::place_of(uint32_t first, uint16_t number) {
  if (number < first) return {0, number, first};
  const auto block = static_cast<unsigned>(std::bit_width(number / first));
  const uint32_t before = first << (block - 1);
  return {block, number - before, before};
}

bool SharedReceives::sane() const {
  const uint32_t first = entry_->first.get();
  const uint32_t stride = entry_->stride.get();
  return std::has_single_bit(first) && first >= kSrqLeastFirst && first <= kMostEntries &&
         stride >= sizeof(ReceiveEntry) && stride % 16 == 0 && stride <= 65536 && claims() != nullptr;
}

ReceiveEntry* SharedReceives::entry(uint16_t number) const {
  const uint32_t first = entry_->first.get();
  if (!std::has_single_bit(first)) return nullptr;
  const Place place = place_of(first, number);
  if (place.block >= kSrqBlocks) return nullptr;
  const uint64_t stride = entry_->stride.get();
  std::byte* block =
      arena_.in_tables_heap(entry_->entries_at[place.block].acquire(), stride * place.block_entries);
  return block == nullptr ? nullptr : reinterpret_cast<ReceiveEntry*>(block + stride * place.at);
}

Shared<uint64_t>* SharedReceives::word(uint16_t number) const {
  const uint32_t first = entry_->first.get();
  if (!std::has_single_bit(first)) return nullptr;
  const Place place = place_of(first, number);
  if (place.block >= kSrqBlocks) return nullptr;
  std::byte* block = arena_.in_rings_heap(entry_->words_at[place.block].acquire(),
                                          sizeof(uint64_t) * uint64_t{place.block_entries});
  return block == nullptr ? nullptr : reinterpret_cast<Shared<uint64_t>*>(block) + place.at;
}

bool SharedReceives::any_posted() const {
  SrqClaims* shared = claims();
  if (shared == nullptr) return false;
  return SrqHead::unpack(shared->head.acquire()).number != entry_->posted.acquire();
}

SharedReceives::Claimed SharedReceives::claim(uint16_t qp, base::Slot ours, Claim& out) const {
  SrqClaims* shared = claims();
  if (shared == nullptr) return Claimed::kCorrupt;
  for (int tries = 0; tries < kPatience; ++tries) {
    const SrqHead head = SrqHead::unpack(shared->head.acquire());
    const uint32_t left = entry_->posted.acquire() - head.number;
    if (left == 0) return Claimed::kNone;
    if (left > kMostEntries) continue;  // others were faster than our two looks, or the head is a lie
    const ReceiveEntry* receive = entry(head.entry);
    Shared<uint64_t>* where = word(head.entry);
    if (receive == nullptr || where == nullptr) return Claimed::kCorrupt;
    const uint16_t next = receive->next.get();
    uint64_t seen = ClaimWord{head.number, 0, 0, ClaimWord::State::kPosted}.pack();
    const uint64_t mine = ClaimWord{head.number, qp, ours.value, ClaimWord::State::kClaimed}.pack();
    if (where->atomic().compare_exchange_strong(seen, mine)) {
      help(head, next);
      const uint32_t limit = entry_->limit.get();
      out = {head.entry, mine, limit != 0 && left - 1 < limit};
      return Claimed::kYes;
    }
    if (ClaimWord::unpack(seen).number == head.number) help(head, next);
  }
  return Claimed::kBusy;
}

void SharedReceives::help(const SrqHead& head, uint16_t next) const {
  uint64_t before = head.pack();
  if (SrqClaims* shared = claims(); shared != nullptr)
    shared->head.atomic().compare_exchange_strong(before, SrqHead{head.number + 1, next}.pack());
}

void SharedReceives::give_back(const Claim& claim) const {
  Shared<uint64_t>* where = word(claim.entry);
  SrqClaims* shared = claims();
  if (where == nullptr || shared == nullptr) return;
  ClaimWord returned = ClaimWord::unpack(claim.word);
  returned.state = ClaimWord::State::kReturned;
  uint64_t before = claim.word;
  if (where->atomic().compare_exchange_strong(before, returned.pack())) shared->returned.atomic().store(1);
}

}  // namespace verbena::arena
