#include "wire/lanes.hpp"

#include <algorithm>

namespace verbena::wire {
namespace {

// As long as the network's pacing waits for an answer.
constexpr base::Duration kPatience = base::milliseconds(5);
// Who had no lane is asked about again now and then: another process may have the slot by now.
constexpr base::Duration kAskAgain = base::milliseconds(100);
constexpr int kAskingShare = 20;  // and for no more than a twentieth of the time

}  // namespace

void Lane::aim(const verbs::Datagram& datagram, base::Instant now) {
  vector_ = &datagram.vector;
  now_ = now;
  nobody_ = !takes_datagrams(datagram.target);
}

bool Lane::takes_datagrams(base::Qpn target) const {
  const auto& entry = owner_->arena().qp(static_cast<uint16_t>(target.value));
  const uint8_t state = arena::QpWord::unpack(entry.word.acquire()).state;
  // One that is being changed was there before.
  const bool answers = (state >= IBV_QPS_RTR && state <= IBV_QPS_SQE) || state == arena::QpWord::kChanging;
  return answers && entry.type_and_rnr.get() >> 8 == IBV_QPT_UD;
}

bool Lane::ready() {
  if (nobody_) return true;
  if (writer_.has_room()) {
    full_since_ = {};
    return true;
  }
  const uint32_t consumed = writer_.consumed();
  if (full_since_ == base::Instant{} || consumed != full_at_) {
    full_since_ = now_;
    full_at_ = consumed;
  }
  nobody_ = now_ - full_since_ >= kPatience;
  return nobody_;
}

std::span<std::byte> Lane::room(uint8_t, size_t payload_bytes) {
  return nobody_ ? std::span(lost_bytes_).first(std::min(payload_bytes, lost_bytes_.size()))
                 : writer_.room(payload_bytes);
}

void Lane::commit(const roce::Packet& packet) {
  if (nobody_) {
    ++counters_.lost;
    return;
  }
  ++counters_.sent;
  arena::DatagramHeader header{
      .length = static_cast<uint16_t>(packet.payload.size()),
      .target = packet.bth.destination.value,
      .source = packet.deth.source.value,
      .qkey = packet.deth.qkey,
      .imm = packet.imm,
      .pkey = packet.bth.pkey,
      .flags = static_cast<uint8_t>((packet.bth.solicited ? arena::kDatagramSolicited : 0) |
                                    (packet.info().imm ? arena::kDatagramImm : 0)),
      .traffic_class = vector_->traffic_class,
      .hop_limit = vector_->hop_limit != 0 ? vector_->hop_limit : uint8_t{64},
      .from = vector_->own_gid,
      .to = vector_->peer_gid};
  writer_.publish(header);
  // Content first, then the bit, then a look at whether anybody is awake.
  owner_->arena().rings_head().datagrams[ours_.value / 64].atomic().fetch_or(uint64_t{1} << ours_.value % 64);
  owner_->wake_helper();
}

std::unique_ptr<Lane> Lanes::introduce(base::Slot to) {
  auto& again = ask_again_[to.value];
  const base::Instant now = base::now();
  if (!meet_ || now.ns < again.load(std::memory_order_relaxed)) return nullptr;
  auto owner = meet_(to);
  const base::Instant then = base::now();
  if (!owner) {
    again.store((then + std::max<base::Duration>(kAskAgain, (then - now) * kAskingShare)).ns,
                std::memory_order_relaxed);
    return nullptr;
  }
  return std::make_unique<Lane>(std::move(owner), ours_, counters_);
}

void Lanes::part(base::Slot slot) {
  lanes_[slot.value].reset();
  ask_again_[slot.value].store(0, std::memory_order_relaxed);
}

arena::DatagramReader& Lanes::reader_of(base::Slot from) {
  auto& reader = readers_[from.value];
  if (!reader) reader = std::make_unique<arena::DatagramReader>(own_.datagram_box(from));
  return *reader;
}

}  // namespace verbena::wire
