// The GID and partition key tables.
#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "abi/entries.hpp"
#include "abi/objects.hpp"
#include "verbs/device_limits.hpp"

namespace verbena::abi {
namespace {

base::Result<arena::GidRecord> gid_at(ibv_context* context, uint32_t port_num, uint32_t index) {
  const Context& ours = Context::from(context);
  const auto port = ours.port(port_num);
  if (!port) return std::unexpected(port.error());
  if (index >= arena::kMaxGids)
    return base::fail(EINVAL, fmt::format("{} port {} has GID indices 0 to {}, not {}", ours.device->ibv.name,
                                          port_num, arena::kMaxGids - 1, index));
  return port->gids[index];
}

ibv_gid_entry entry_of(const arena::GidRecord& gid, uint32_t port_num, uint32_t index) {
  ibv_gid_entry entry{};
  std::memcpy(entry.gid.raw, gid.raw.data(), gid.raw.size());
  entry.gid_index = index;
  entry.port_num = port_num;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.ndev_ifindex = gid.ifindex;
  return entry;
}

// The caller's entry may be of another version of the struct, and then be shorter or longer.
void write_entry(void* to, const ibv_gid_entry& entry, size_t entry_size) {
  std::memset(to, 0, entry_size);
  std::memcpy(to, &entry, std::min(entry_size, sizeof entry));
}

// What both extended queries refuse: flags are for future use, and no version of the entry was ever shorter.
base::Result<void> check_request(uint32_t flags, size_t entry_size) {
  if (flags) return base::fail(EOPNOTSUPP, fmt::format("GID query flags {:#x} aren't known", flags));
  if (entry_size < sizeof(ibv_gid_entry)) return base::fail(EINVAL, "the GID entry is too short");
  return {};
}

base::Result<void> query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t index, void* entry,
                                uint32_t flags, size_t entry_size) {
  if (auto ok = check_request(flags, entry_size); !ok) return ok;
  const auto gid = gid_at(context, port_num, index);
  if (!gid) return std::unexpected(gid.error());
  if (!gid->used)
    return base::fail(ENODATA, fmt::format("GID index {} of port {} is empty", index, port_num));
  write_entry(entry, entry_of(*gid, port_num, index), entry_size);
  return {};
}

base::Result<ssize_t> query_gid_table(ibv_context* context, std::byte* entries, size_t max_entries,
                                      uint32_t flags, size_t entry_size) {
  if (auto ok = check_request(flags, entry_size); !ok) return std::unexpected(ok.error());
  const auto record = Context::from(context).record();
  if (!record) return std::unexpected(record.error());
  size_t count = 0;
  for (uint32_t port = 1; port <= std::min<uint32_t>(record->port_count, arena::kMaxPorts); ++port) {
    for (uint32_t index = 0; index < arena::kMaxGids; ++index) {
      const arena::GidRecord& gid = record->ports[port - 1].gids[index];
      if (!gid.used) continue;
      if (count == max_entries)
        return base::fail(EINVAL, fmt::format("the device has more GIDs than the {} asked for", max_entries));
      write_entry(entries + count++ * entry_size, entry_of(gid, port, index), entry_size);
    }
  }
  return static_cast<ssize_t>(count);
}

base::Result<void> query_pkey(ibv_context* context, uint8_t port_num, int index, __be16* pkey) {
  const Context& ours = Context::from(context);
  if (const auto port = ours.port(port_num); !port) return std::unexpected(port.error());
  if (index != 0)
    return base::fail(EINVAL, fmt::format("{} has one partition key, at index 0, none at {}",
                                          ours.device->ibv.name, index));
  *pkey = htobe16(verbs::kDefaultPkey);
  return {};
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

// An empty place below the table's length answers a zero GID, as the kernel does: UCX reads them all.
VERBENA_ENTRY int vb_ibv_query_gid(ibv_context* context, uint8_t port_num, int index, ibv_gid* gid) noexcept {
  const auto found =
      abi::guarded([&] { return abi::gid_at(context, port_num, static_cast<uint32_t>(index)); });
  if (!found) return abi::minus_one(found);
  const arena::RawGid raw = found->used ? found->raw : arena::RawGid{};
  std::memcpy(gid->raw, raw.data(), raw.size());
  return 0;
}
VERBENA_SAME_PROTOTYPE(ibv_query_gid);

VERBENA_ENTRY int vb__ibv_query_gid_ex(ibv_context* context, uint32_t port_num, uint32_t gid_index,
                                       ibv_gid_entry* entry, uint32_t flags, size_t entry_size) noexcept {
  return abi::errno_value(abi::guarded(
      [&] { return abi::query_gid_ex(context, port_num, gid_index, entry, flags, entry_size); }));
}
VERBENA_SAME_PROTOTYPE(_ibv_query_gid_ex);

VERBENA_ENTRY ssize_t vb__ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                              size_t max_entries, uint32_t flags,
                                              size_t entry_size) noexcept {
  const auto count = abi::guarded([&] {
    return abi::query_gid_table(context, reinterpret_cast<std::byte*>(entries), max_entries, flags,
                                entry_size);
  });
  return count ? *count : -abi::explained(count.error());
}
VERBENA_SAME_PROTOTYPE(_ibv_query_gid_table);

// For vendor drivers; sysfs knows two types only, 0 for IB and RoCE v1, 1 for RoCE v2, which all of ours are.
VERBENA_ENTRY int vb_ibv_query_gid_type(ibv_context* context, uint8_t port_num, unsigned int index,
                                        int* type) noexcept {
  const auto found = abi::guarded([&] { return abi::gid_at(context, port_num, index); });
  if (found) *type = 1;
  return abi::minus_one(found);
}

VERBENA_ENTRY int vb_ibv_query_pkey(ibv_context* context, uint8_t port_num, int index,
                                    __be16* pkey) noexcept {
  return abi::minus_one(abi::guarded([&] { return abi::query_pkey(context, port_num, index, pkey); }));
}
VERBENA_SAME_PROTOTYPE(ibv_query_pkey);

VERBENA_ENTRY int vb_ibv_get_pkey_index(ibv_context* context, uint8_t port_num, __be16 pkey) noexcept {
  __be16 ours = 0;
  if (vb_ibv_query_pkey(context, port_num, 0, &ours) != 0) return -1;
  if (pkey == ours) return 0;
  errno = EINVAL;
  return -1;
}
VERBENA_SAME_PROTOTYPE(ibv_get_pkey_index);
