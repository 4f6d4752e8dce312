#include "local/neighbour.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tuple>

#include "verbs/completion_channel.hpp"

namespace verbena::local {
namespace {

constexpr size_t kMostMapped = 256;  // regions of one peer's mapped here at the same time

void set_bit(arena::Shared<uint64_t>* words, unsigned bit) {
  words[bit / 64].atomic().fetch_or(uint64_t{1} << bit % 64);
}

}  // namespace

Neighbour::Neighbour(arena::ProcessArena arena, base::Slot theirs, uint32_t epoch, base::Slot ours)
    : QueueOwner(arena), slot_(theirs), epoch_(epoch), ours_(ours), inbox_(arena.inbox(ours)) {
  inbox_.resume();
  set_bit(arena.rings_head().hazard_users, ours.value);
}

bool Neighbour::send(const arena::Letter& letter) {
  {
    const std::lock_guard lock(inbox_lock_);
    if (!inbox_.write(letter)) return false;
    set_bit(arena().rings_head().letters, ours_.value);
  }
  wake_helper();
  return true;
}

bool Neighbour::begin_request() {
  if (requests_.fetch_add(1) < arena::kMostRequests) return true;
  requests_.fetch_sub(1);
  return false;
}

Peer::Peer(PeerDescription description, arena::Mapping tables, arena::Mapping rings, dev_t device,
           base::Slot ours)
    : Neighbour({tables.data(), rings.data()}, description.slot, description.epoch, ours),
      tables_(std::move(tables)),
      rings_(std::move(rings)),
      device_(device),
      pid_(description.pid),
      wake_(std::move(description.wake)),
      memory_(description.pid, std::move(description.memory)) {}

base::Result<std::shared_ptr<Peer>> Peer::open(PeerDescription description, base::Slot ours) {
  const auto check = [](int fd, arena::Sharing sharing, size_t size, const char* what) -> base::Result<void> {
    const auto actual = arena::check_sealed(fd, sharing, size);
    if (!actual) return base::fail(EPROTO, fmt::format("a peer's {}: {}", what, actual.error().sentence));
    if (*actual != size)
      return base::fail(EPROTO, fmt::format("a peer's {} have the size of another version", what));
    return {};
  };
  if (auto ok = check(description.tables.get(), arena::Sharing::kOwnerWrites, arena::kTablesSize, "tables");
      !ok)
    return std::unexpected(ok.error());
  if (auto ok = check(description.rings.get(), arena::Sharing::kPeersWrite, arena::kRingsSize, "rings"); !ok)
    return std::unexpected(ok.error());
  auto tables = arena::map(description.tables.get(), arena::kTablesSize, arena::Access::kRead);
  if (!tables) return std::unexpected(tables.error());
  auto rings = arena::map(description.rings.get(), arena::kRingsSize, arena::Access::kReadWrite);
  if (!rings) return std::unexpected(rings.error());
  const auto* head = reinterpret_cast<const arena::TablesHead*>(tables->data());
  if (head->magic != arena::kTablesMagic || head->layout != arena::kTablesLayout)
    return base::fail(EPROTO, "a peer's tables are of another version of Verbena; use the same on both ends");
  struct stat status {};
  if (::fstat(description.tables.get(), &status) != 0) return base::fail_errno("looking at a peer's tables");
  std::shared_ptr<Peer> peer(
      new Peer(std::move(description), std::move(*tables), std::move(*rings), status.st_dev, ours));
  // An address it surely has tells whether we may copy by pid.
  if (const uint64_t address =
          reinterpret_cast<const arena::TablesHead*>(peer->tables_.data())->own_address.load();
      address != 0)
    peer->memory_.probe(address);
  return peer;
}

void Peer::wake_helper() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  auto& sleeps = arena().rings_head().helper_sleeps;
  if (sleeps.get() == 0 || sleeps.atomic().exchange(0) == 0) return;
  const char token = 0;
  if (const int fd = wake_.get(); fd >= 0)
    std::ignore = ::send(fd, &token, sizeof token, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Opening a pipe of another process anew asks only for the right to look at it; the number might name
// something else by now, so the file must be the pipe that the peer's tables tell of. For reading, too: a
// pipe without a reader would raise SIGPIPE in our program when its owner dies.
int Peer::open_bell(int number, uint64_t inode) {
  const std::lock_guard lock(mutex_);
  for (const auto& bell : bells_)
    if (bell.number == number && bell.inode == inode) return bell.pipe.get();
  base::UniqueFd pipe(
      ::open(fmt::format("/proc/{}/fd/{}", pid_, number).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!pipe || ::fstat(pipe.get(), &status) != 0 || !S_ISFIFO(status.st_mode) || status.st_ino != inode)
    return -1;
  if (bells_.size() > 64) bells_.erase(bells_.begin());
  bells_.push_back({number, inode, base::GuardedFd(std::move(pipe))});
  return bells_.back().pipe.get();
}

void Peer::ring_channel(uint16_t cq) {
  const auto& entry = arena().cq(cq);
  const int number = entry.channel.acquire();
  if (number < 0) return;
  if (const int pipe = open_bell(number, entry.inode.get()); pipe >= 0)
    return verbs::CompletionChannel::ring(pipe, entry.token.get());
  arena().bell(cq).attention.atomic().fetch_or(arena::kRing);
  wake_helper();
}

verbs::HeldMemory Peer::mapped(uint32_t key, uint64_t address, uint64_t length) {
  const auto& entry = arena().mr(key >> 8);
  const uint64_t word = entry.word.acquire();
  const std::lock_guard lock(mutex_);
  if (regions_.size() > kMostMapped) std::erase_if(regions_, [&](const auto& r) { return r.first != key; });
  auto& region = regions_[key];
  if (region.word != word) {
    // What was deregistered since is let go of.
    std::erase_if(regions_, [&](const auto& r) {
      return r.first != key && arena().mr(r.first >> 8).word.get() != r.second.word;
    });
    region = {.word = word, .iova = entry.iova.get(), .mapping = nullptr};
    const verbs::Backing backing{.fd = entry.file.get(),
                                 .device = device_,
                                 .inode = entry.inode.get(),
                                 .offset = entry.file_offset.get(),
                                 .fixed_size = true};
    if (auto mapping = verbs::map_peer_file(pid_, backing, entry.length.get()))
      region.mapping = std::make_shared<verbs::PeerMapping>(std::move(*mapping));
  }
  if (!region.mapping) return nullptr;
  const uint64_t offset = address - region.iova;
  if (offset > region.mapping->size() || length > region.mapping->size() - offset) return nullptr;
  return {region.mapping, region.mapping->data() + offset};
}

verbs::HeldMemory Peer::atomic_target(const engine::AtomicRequest& request, const verbs::Region& region) {
  if (region.mode != arena::MrMode::kFile) return nullptr;
  return mapped(request.key, request.address, sizeof(uint64_t));
}

// By a word of our own: peers may write anything into the one that they go by.
void Self::wake_helper() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeps_.load() && sleeps_.exchange(false)) wake_();
}

void Self::set_helper_sleeps(bool sleeps) {
  sleeps_.store(sleeps);
  arena().rings_head().helper_sleeps.atomic().store(sleeps ? 1 : 0);
}

void Self::set_helper_rests() { arena().rings_head().helper_sleeps.atomic().store(1); }

void Self::ring_channel(uint16_t cq) {
  if (verbs::HeldBells::hold(*this, cq)) return;
  const auto& entry = arena().cq(cq);
  const std::lock_guard ringing(process_.ringing());
  verbs::CompletionChannel::ring(entry.channel.acquire(), entry.token.get());
}

verbs::HeldMemory Self::atomic_target(const engine::AtomicRequest&, const verbs::Region& region) {
  // Is it there and writable? Asked of the kernel: a store into a hole would be the program's end.
  const uint64_t page = region.address & ~uint64_t{4095};
  if (::madvise(reinterpret_cast<void*>(page), 4096, MADV_POPULATE_WRITE) != 0) return nullptr;
  return {std::shared_ptr<void>{}, reinterpret_cast<std::byte*>(region.address)};
}

}  // namespace verbena::local
