// The two segments of every process that has a slot (DESIGN 2.3): where everything in them lies. Sizes are
// address space, not memory: a page exists once it is touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "arena/counter_table.hpp"
#include "arena/shared_word.hpp"

namespace verbena::arena {

inline constexpr size_t kTablesSize = size_t{512} << 20;
inline constexpr size_t kRingsSize = size_t{1024} << 20;
inline constexpr char kTablesName[] = "verbena-tables";
inline constexpr char kRingsName[] = "verbena-rings";

inline constexpr uint32_t kQpEntries = 1u << 16;  // indexed by the low 16 bits of a queue pair number
inline constexpr uint32_t kMrEntries = 1u << 20;  // indexed by the high 24 bits of a key
inline constexpr uint32_t kCqBells = 1u << 16;
inline constexpr uint32_t kSrqEntries = 1u << 16;  // indexed by the low 16 bits of an SRQ number

// ---- Tables: the owner writes, peers and the agent read. ----

struct TablesHead {
  uint64_t magic;
  uint32_t layout;
  std::atomic<uint32_t> slot;
  // How long packets for this process may still be under way after it died: the longest time-wait of a queue
  // pair it ever connected. 0: it never connected one, so its slot needs no quarantine.
  std::atomic<uint64_t> longest_timewait_ns;
  std::atomic<uint64_t> own_address;  // where the owner sees its tables: an address that it surely has
  std::atomic<uint32_t> wants_wire;   // 1: its queue pairs go by the network, even to processes of this host
  CounterTable counters;
};
static_assert(sizeof(TablesHead) <= 4096);

inline constexpr uint64_t kTablesMagic = 0x736c6261546e6256;  // "VbnTabls"
inline constexpr uint32_t kTablesLayout = 6;

// One word that says whether what a peer knows of a queue pair still holds.
struct QpWord {
  uint32_t incarnation = 0;  // one more with each RESET: another life, another connection
  uint32_t version = 0;      // 24 bits: one more with each change of an attribute
  uint8_t state = 0;         // an ibv_qp_state; kChanging while the entry is being written

  static constexpr uint8_t kChanging = 0xff;
  [[nodiscard]] uint64_t pack() const {
    return uint64_t{incarnation} << 32 | uint64_t{version & 0xffffff} << 8 | state;
  }
  static QpWord unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 8) & 0xffffff,
            static_cast<uint8_t>(word)};
  }
};

// What a peer must know of a queue pair to deliver to it. `word` publishes the rest of its first 128 bytes.
struct alignas(64) QpEntry {
  Shared<uint64_t> word;  // a QpWord; 0: no such queue pair
  Shared<uint64_t> peer_gid[2];
  Shared<uint64_t> own_gid[2];
  Shared<uint32_t> peer_qpn;
  Shared<uint32_t> rq_psn;
  Shared<uint32_t> domain;        // handle of its protection domain; XRC_RECV: its XRC domain
  Shared<uint32_t> access;        // ibv_access_flags for remote operations
  Shared<uint32_t> type_and_rnr;  // ibv_qp_type << 8 | min_rnr_timer
  Shared<uint32_t> cq;            // index of its receive CQ's bell
  // Its receive queue in the tables' heap.
  Shared<uint64_t> receives_at;
  Shared<uint32_t> receives_mask;    // a power of two, less one
  Shared<uint32_t> receives_stride;  // bytes from entry to entry
  // The ring in the rings' heap through which this peer delivers; 0: none yet.
  Shared<uint64_t> ring_at;
  Shared<uint32_t> ring_id;
  Shared<uint32_t> ring_slots;
  Shared<uint32_t> ring_payload;  // bytes
  Shared<uint32_t> reads;         // max_dest_rd_atomic: 0 allows no READ and no atomic operation
  Shared<uint32_t> srq_plus_one;  // index of its shared receive queue plus one; 0: it has receives of its own
  // The credit word: changes with every receive that is posted.
  alignas(64) Shared<uint32_t> posted;  // receives ever posted in this life
  // Every receive that waits takes at least this many bytes less one; 0: look at its entry.
  Shared<uint32_t> fits_plus_one;
};
static_assert(sizeof(QpEntry) == 192);

struct ReceivePiece {
  Shared<uint64_t> address;
  Shared<uint32_t> length;
  Shared<uint32_t> lkey;
};
// A posted receive; wr_id stays private to the owner. `count` pieces follow it.
struct ReceiveEntry {
  Shared<uint32_t> capacity;  // bytes in all
  Shared<uint16_t> count;
  Shared<uint16_t> next;  // in a shared receive queue: the entry that is, or will be, posted after it
  Shared<uint16_t> unused[4];
};
static_assert(sizeof(ReceiveEntry) == 16 && sizeof(ReceivePiece) == 16);

// A shared receive queue: many requesters take receives from it (shared_receives.hpp). Its entries lie in
// blocks, so that it can grow while they are in use: the first block holds `first`, each further one as many
// as all before it.
inline constexpr unsigned kSrqBlocks = 12;
inline constexpr uint32_t kSrqLeastFirst = 16;
struct alignas(64) SrqEntry {
  Shared<uint32_t> posted;  // receives ever posted, from a random number on
  Shared<uint32_t> limit;   // whoever leaves fewer than so many must wake the owner; 0: not armed
  alignas(64) Shared<uint64_t> claims_at;  // its SrqClaims in the rings' heap; 0: there is no such queue
  Shared<uint32_t> first;                  // a power of two
  Shared<uint32_t> stride;                 // bytes from entry to entry
  Shared<uint32_t> domain;                 // handle of its protection domain, which its receives' keys are in
  Shared<uint32_t> life;                   // another one with each queue that has this number; 0: none
  Shared<uint64_t> entries_at[kSrqBlocks];  // ReceiveEntries in the tables' heap; 0: no such block yet
  Shared<uint64_t> words_at[kSrqBlocks];    // a claim word for each, in the rings' heap
  // XRC: its domain, its completion queue, and the ring through which the keeper delivers there.
  Shared<uint32_t> xrcd;  // 0: it is no XRC queue
  Shared<uint32_t> cq;
  Shared<uint64_t> ring_at;
  Shared<uint32_t> ring_id;
  Shared<uint32_t> ring_slots;
  Shared<uint32_t> ring_payload;
};
static_assert(sizeof(SrqEntry) == 320);

// How a region's memory is reached by others.
enum class MrMode : uint32_t {
  kPrivate = 1,  // through the owner's address space
  kFile = 2,     // shared memory that a peer can map as well
  kNull = 3,     // none: reads give zeros, writes go nowhere; local use only
};
// In an entry's access flags: it is a memory window, whose key is good for peers only.
inline constexpr uint32_t kWindow = 1u << 31;

struct alignas(64) MrEntry {
  Shared<uint64_t> word;  // key tag in the low 8 bits, a version above; 0: not registered
  Shared<uint64_t> iova;
  Shared<uint64_t> length;
  Shared<uint64_t> address;
  Shared<uint32_t> domain;
  Shared<uint32_t> access;  // ibv_access_flags, kWindow
  // An MrMode in the low 8 bits; above, the one queue pair through which a window is open, 0: any.
  Shared<uint32_t> mode;
  // kFile: the owner's descriptor, and the file it must turn out to be. kNull: `inode` is where writes go.
  Shared<int32_t> file;
  Shared<uint64_t> inode;
  Shared<uint64_t> file_offset;  // of the region's first byte
};
static_assert(sizeof(MrEntry) == 64);

// What a peer must know of a completion queue to ring its channel: beside its bell, but not forgeable.
struct CqEntry {
  Shared<int32_t> channel;  // the owner's descriptor of the pipe's writing end; -1: no channel
  Shared<uint32_t> token;   // what to write into it
  Shared<uint64_t> inode;   // of that pipe
};

// ---- Rings: peers write. Every word is untrusted: copied out once, checked. ----

// The owner's thread that looks after what peers ask.
struct alignas(64) RingsHead {
  Shared<uint32_t> helper_sleeps;             // 1: whoever leaves a letter must wake the helper thread
  Shared<uint64_t> hazard_users[4];           // a bit for each slot that ever accessed our memory
  alignas(64) Shared<uint64_t> letters[4];    // a bit for each slot whose inbox isn't empty
  alignas(64) Shared<uint64_t> datagrams[4];  // the same for boxes of datagrams
};

struct alignas(64) CqBell {
  Shared<uint32_t> armed;      // a CqArm
  Shared<uint32_t> attention;  // CqAttention bits, for the helper thread
};
enum class CqArm : uint32_t { kNone = 0, kSolicited = 1, kAny = 2 };
enum CqAttention : uint32_t {
  kMerge = 1,  // take what is in the rings: one is full, or says that a queue pair fails
  kRing = 2,   // ring the channel: the peer can't
};

// Who is connected: written by the peer when it first delivers.
struct alignas(64) QpBinding {
  Shared<uint64_t> bound;    // slot of the peer and the incarnation of its queue pair; 0: nobody yet
  Shared<uint32_t> waiting;  // 1: the peer waits for a receive to be posted and sleeps
};

// Of a shared receive queue: where the next receive is taken, and who waits for one.
struct alignas(64) SrqClaims {
  Shared<uint64_t> head;      // number of the next receive << 32 | its entry
  Shared<uint32_t> waiting;   // 1: somebody waits for a receive to be posted and sleeps
  Shared<uint32_t> returned;  // 1: some claims were given back
};

// The regions of this process that a peer's thread is accessing right now (DESIGN 2.3, Deregistration).
inline constexpr unsigned kHazardLanes = 16;
inline constexpr unsigned kHazardsPerLane = 64;
struct alignas(64) HazardLane {
  Shared<uint32_t> regions[kHazardsPerLane];  // MR index plus one
};

// ---- Where things lie. ----

inline constexpr size_t kQpTableAt = 4096;
inline constexpr size_t kCqTableAt = kQpTableAt + kQpEntries * sizeof(QpEntry);
inline constexpr size_t kMrTableAt = kCqTableAt + kCqBells * sizeof(CqEntry);
inline constexpr size_t kSrqTableAt = kMrTableAt + kMrEntries * sizeof(MrEntry);
inline constexpr size_t kTablesHeapAt = kSrqTableAt + kSrqEntries * sizeof(SrqEntry);
static_assert(kTablesHeapAt < kTablesSize && kTablesHeapAt % 4096 == 0);

inline constexpr size_t kBellsAt = 4096;
inline constexpr size_t kBindingsAt = kBellsAt + kCqBells * sizeof(CqBell);
inline constexpr size_t kHazardsAt = kBindingsAt + kQpEntries * sizeof(QpBinding);
inline constexpr size_t kInboxSize = 16384;
inline constexpr size_t kInboxesAt = kHazardsAt + 256 * kHazardLanes * sizeof(HazardLane);
inline constexpr size_t kDatagramBoxSize = (128 << 10) + 4096;
inline constexpr size_t kDatagramBoxesAt = kInboxesAt + 256 * kInboxSize;
inline constexpr size_t kRingsHeapAt = kDatagramBoxesAt + 256 * kDatagramBoxSize;
static_assert(kRingsHeapAt < kRingsSize && kRingsHeapAt % 4096 == 0);

}  // namespace verbena::arena
