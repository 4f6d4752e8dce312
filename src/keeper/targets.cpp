#include "keeper/targets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.hpp"
#include "client/host_tie.hpp"

namespace verbena::keeper {
namespace {

constexpr size_t kMostDomains = 65536;

ipc::XrcTarget shown(const verbs::QueuePair& queue_pair) {
  return {.qpn = queue_pair.number().value, .state = static_cast<uint32_t>(queue_pair.state())};
}

ipc::XrcAttributes attributes_of(verbs::QueuePair& queue_pair) {
  ipc::XrcAttributes answer{.qpn = queue_pair.number().value};
  ibv_qp_attr attributes{};
  queue_pair.query(attributes);
  static_assert(sizeof attributes <= sizeof answer.attributes);
  std::memcpy(answer.attributes, &attributes, sizeof attributes);
  return answer;
}

// True: that was the last.
bool give_up(std::map<uint32_t, unsigned>& held, uint32_t id) {
  const auto found = held.find(id);
  if (found == held.end()) return false;
  if (--found->second == 0) held.erase(found);
  return true;
}

}  // namespace

Targets::~Targets() {
  targets_.clear();
  for (auto& [name, device] : devices_) device.completions.reset();
}

base::Result<Device*> Targets::device(const std::string& name) {
  if (const auto known = devices_.find(name); known != devices_.end()) return &known->second;
  auto open = client::OpenDevice::open(name);
  if (!open) return std::unexpected(open.error());
  auto data = client::DataPath::current();
  if (!data) return std::unexpected(data.error());
  data_ = *data;
  auto completions = verbs::CompletionQueue::create(
      data_->process(), {.cqe = 64, .events = &(*open)->events(), .ignores_overrun = true});
  if (!completions) return std::unexpected(completions.error());
  return &(devices_[name] = {std::move(*open), std::move(*completions)});
}

base::Result<ipc::XrcDomain> Targets::open_domain(Holdings& holder, const ipc::XrcOpenDomain& wanted) {
  // Its slot is the domain's address, so it must have one.
  if (!data_) {
    const auto table = client::list_devices();
    if (!table) return std::unexpected(table.error());
    if ((*table)->device_count == 0) return base::fail(ENODEV, "there is no device");
    if (auto first = device(std::string(arena::text((*table)->devices[0].name))); !first)
      return std::unexpected(first.error());
  }
  const File file{wanted.device, wanted.inode};
  auto found = domains_.end();
  if (wanted.named != 0) {
    found = std::ranges::find_if(domains_, [&](const auto& known) { return known.second.file == file; });
    if (found == domains_.end() && wanted.create == 0)
      return base::fail(EAGAIN, "no XRC domain belongs to this file: add O_CREAT to oflags to make one");
    if (found != domains_.end() && wanted.exclusive != 0)
      return base::fail(EINVAL, "an XRC domain belongs to this file already, and oflags have O_EXCL");
  }
  if (found == domains_.end()) {
    if (domains_.size() >= kMostDomains) return base::fail(ENOMEM, "there are too many XRC domains");
    // At random: who holds a number of an earlier keeper's finds nothing.
    do last_domain_ = static_cast<uint32_t>(base::random_u64());
    while (last_domain_ == 0 || domains_.contains(last_domain_));
    found = domains_.emplace(last_domain_, Domain{}).first;
    if (wanted.named != 0) found->second.file = file;
  }
  ++found->second.holders;
  ++holder.domains[found->first];
  return ipc::XrcDomain{.id = found->first, .slot = data_->process().slot().value};
}

base::Result<void> Targets::check_domain(const Holdings& holder, uint32_t id) const {
  if (!holder.domains.contains(id))
    return base::fail(ENOENT, fmt::format("this process has no XRC domain 0x{:x}", id));
  return {};
}

base::Result<void> Targets::close_domain(Holdings& holder, uint32_t id) {
  if (auto ok = check_domain(holder, id); !ok) return ok;
  (void)give_up(holder.domains, id);
  drop_domain(id, 1);
  return {};
}

void Targets::drop_domain(uint32_t id, unsigned times) {
  const auto found = domains_.find(id);
  if (found == domains_.end()) return;
  found->second.holders -= std::min(found->second.holders, times);
  if (found->second.holders == 0) domains_.erase(found);
}

base::Result<void> Targets::serve(const Holdings& holder, const ipc::XrcServe& wanted) {
  if (auto ok = check_domain(holder, wanted.domain); !ok) return ok;
  const auto owner = data_->meet(base::Qpn{wanted.srq}.slot());
  if (!owner) return std::unexpected(owner.error());
  return {};
}

base::Result<ipc::XrcTarget> Targets::create(Holdings& holder, const ipc::XrcCreate& wanted) {
  if (auto ok = check_domain(holder, wanted.domain); !ok) return std::unexpected(ok.error());
  const auto where = device(std::string(ipc::text(wanted.device)));
  if (!where) return std::unexpected(where.error());
  Target made{.domain = wanted.domain, .holders = 1};
  auto queue_pair = verbs::QueuePair::create(
      data_->process(), {.domain = nobody_,
                         .send_cq = (*where)->completions,
                         .recv_cq = (*where)->completions,
                         .type = IBV_QPT_XRC_RECV,
                         .paths = std::make_shared<client::DevicePaths>(data_, *(*where)->open),
                         .events = &(*where)->open->events(),
                         .xrcd = wanted.domain});
  if (!queue_pair) return std::unexpected(queue_pair.error());
  made.queue_pair = std::move(*queue_pair);
  const uint32_t qpn = made.queue_pair->number().value;
  ++holder.targets[qpn];
  const auto answer = shown(*made.queue_pair);
  targets_[qpn] = std::move(made);
  return answer;
}

base::Result<ipc::XrcTarget> Targets::open(Holdings& holder, const ipc::XrcOpen& wanted) {
  if (auto ok = check_domain(holder, wanted.domain); !ok) return std::unexpected(ok.error());
  const auto found = targets_.find(wanted.qpn);
  if (found == targets_.end() || found->second.domain != wanted.domain)
    return base::fail(EINVAL, fmt::format("the XRC domain has no target queue pair 0x{:06x}; its holders may "
                                          "all have destroyed it, or ended",
                                          wanted.qpn));
  ++found->second.holders;
  ++holder.targets[wanted.qpn];
  return shown(*found->second.queue_pair);
}

base::Result<Targets::Target*> Targets::target(const Holdings& holder, uint32_t qpn) {
  const auto found = targets_.find(qpn);
  if (!holder.targets.contains(qpn) || found == targets_.end())
    return base::fail(EINVAL, fmt::format("this process holds no XRC target queue pair 0x{:06x}", qpn));
  return &found->second;
}

base::Result<void> Targets::release(Holdings& holder, uint32_t qpn) {
  if (auto held = target(holder, qpn); !held) return std::unexpected(held.error());
  (void)give_up(holder.targets, qpn);
  drop_target(qpn, 1);
  return {};
}

void Targets::drop_target(uint32_t qpn, unsigned times) {
  const auto found = targets_.find(qpn);
  if (found == targets_.end()) return;
  found->second.holders -= std::min(found->second.holders, times);
  if (found->second.holders == 0) targets_.erase(found);
}

base::Result<ipc::XrcAttributes> Targets::modify(const Holdings& holder, const ipc::XrcModify& wanted) {
  auto held = target(holder, wanted.qpn);
  if (!held) return std::unexpected(held.error());
  ibv_qp_attr attributes{};
  std::memcpy(&attributes, wanted.attributes, sizeof attributes);
  const auto done = (*held)->queue_pair->modify(attributes, wanted.mask);
  // Nobody polls here: the helper thread watches the network, once it knows that there is something to watch.
  client::HostTie::instance()->wake_helper();
  auto answer = attributes_of(*(*held)->queue_pair);
  if (!done) {
    answer.code = done.error().code;
    ipc::set_text(answer.sentence, done.error().sentence);
  }
  return answer;
}

base::Result<ipc::XrcAttributes> Targets::query(const Holdings& holder, const ipc::XrcQuery& wanted) {
  auto held = target(holder, wanted.qpn);
  if (!held) return std::unexpected(held.error());
  return attributes_of(*(*held)->queue_pair);
}

void Targets::release_all(Holdings& holder) {
  for (const auto& [qpn, times] : holder.targets) drop_target(qpn, times);
  for (const auto& [id, times] : holder.domains) drop_domain(id, times);
  holder = {};
}

uint32_t Targets::named(uint64_t element) const {
  return targets_.contains(static_cast<uint32_t>(element)) ? static_cast<uint32_t>(element) : 0;
}

}  // namespace verbena::keeper
