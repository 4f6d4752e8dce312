#include "sim/plan.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "sim/pattern.hpp"
#include "sim/receive_pools.hpp"

namespace verbena::sim {

using engine::Request;
using engine::RequestStatus;

namespace {

class Planner {
 public:
  Planner(const PlanConfig& config, Random random)
      : config_(config), random_(random), model_(config.data_bytes) {
    fill_pattern(config.data_pattern, 0, model_);
    weights_ = random_.below(5);
    streams_ = !config.only && random_.percent(20);
    if (streams_) weights_ = kReads;
  }

  Planned next() {
    Planned planned;
    planned.pattern = random_.next();
    Request& request = planned.request;
    request.kind = kind();
    request.length = config_.only ? config_.longest : length();
    if (streams_ && request.kind == Request::Kind::kRead) request.length = streamed();
    request.fenced = !config_.only && random_.percent(5);
    request.solicited = random_.percent(20);
    switch (request.kind) {
      case Request::Kind::kSend:
        request.has_imm = !config_.only && random_.percent(30);
        break;
      case Request::Kind::kWrite:
        request.has_imm = !config_.only && random_.percent(30);
        plan_write(planned);
        break;
      case Request::Kind::kRead:
        plan_read(planned);
        break;
      default:
        plan_atomic(planned);
        break;
    }
    request.imm = request.has_imm ? static_cast<uint32_t>(random_.next()) : 0;
    planned.receive_bytes = request.kind == Request::Kind::kSend
                                ? request.length + (random_.percent(50) ? random_.below(100) : 0)
                                : 0;
    if (request.fenced && request.kind != Request::Kind::kRead) open_reads_.clear();
    name_queue(request);
    return planned;
  }

  void provoke(Planned& planned);
  void provoke_by_queue(Planned& planned);

 private:
  static constexpr uint64_t kReads = 3;  // the mix with most of them
  Request::Kind kind() {
    using enum Request::Kind;
    static constexpr Request::Kind kMixes[5][8] = {
        {kSend, kWrite, kRead, kCompareSwap, kFetchAdd, kSend, kWrite, kRead},
        {kSend, kSend, kSend, kSend, kSend, kSend, kSend, kWrite},
        {kWrite, kWrite, kWrite, kWrite, kWrite, kWrite, kWrite, kRead},
        {kRead, kRead, kRead, kRead, kRead, kRead, kWrite, kFetchAdd},
        {kFetchAdd, kFetchAdd, kCompareSwap, kFetchAdd, kSend, kWrite, kRead, kFetchAdd}};
    static_assert(kMixes[kReads][0] == kRead);
    return config_.only.value_or(kMixes[weights_][random_.below(8)]);
  }

  uint64_t length() {
    const uint64_t most = std::min({config_.longest, config_.data_bytes - region::kCellBytes, budget_left()});
    uint64_t chosen = random_.percent(5) ? 0 : random_.spread(1, std::max<uint64_t>(most, 1));
    // Lengths around a packet's are where errors by one hide.
    if (random_.percent(30)) chosen = random_.between(1, 4) * config_.mtu + random_.below(3) - 1;
    chosen = std::min(chosen, most);
    spent_ += chosen;
    return chosen;
  }
  // All of the region first, so that the peer is known to let us read it; then on and on.
  uint64_t streamed() {
    const uint64_t all = config_.data_bytes - region::kCellBytes;
    const uint64_t chosen =
        streamed_++ == 0 ? all : random_.between(1, 24) * config_.mtu + random_.below(3) - 1;
    return std::min(chosen, all);
  }
  uint64_t budget_left() const { return config_.total_bytes > spent_ ? config_.total_bytes - spent_ : 64; }

  // XRC: a queue, and the keys that are in its domain.
  void name_queue(Request& request) {
    if (config_.queues == 0) return;
    const auto queue = static_cast<uint32_t>(random_.below(config_.queues));
    request.srq = ReceivePoolsConfig::kFirstNumber + queue;
    if (request.key != 0) request.key += queue * region::kKeysOfQueue;
  }

  uint64_t place(uint64_t bytes) {
    return region::kCellBytes + random_.below(config_.data_bytes - region::kCellBytes - bytes + 1);
  }

  void plan_write(Planned& planned) {
    Request& request = planned.request;
    const uint64_t offset = place(request.length);
    request.key = config_.key_base + region::kData;
    request.address = region::kAddress + offset;
    // An earlier READ of the same bytes may still be answered: without a fence it might see these.
    for (const auto& [begin, end] : open_reads_)
      request.fenced = request.fenced || (offset < end && begin < offset + request.length);
    fill_pattern(planned.pattern, 0, std::span(model_).subspan(offset, request.length));
  }

  void plan_read(Planned& planned) {
    Request& request = planned.request;
    uint64_t offset = place(request.length);
    if (streams_ && read_until_ + request.length <= config_.data_bytes) offset = read_until_;
    read_until_ = offset + request.length;
    request.address = region::kAddress + offset;
    if (config_.only || streams_ || random_.percent(40)) {
      request.key = config_.key_base + region::kReadOnly;
      planned.from_read_only = true;
      return;
    }
    planned.answer.resize(request.length);
    request.key = config_.key_base + region::kData;
    std::ranges::copy(std::span(model_).subspan(offset, request.length), planned.answer.begin());
    if (request.fenced) open_reads_.clear();
    open_reads_.push_back({offset, offset + request.length});
  }

  void plan_atomic(Planned& planned) {
    Request& request = planned.request;
    request.length = 8;
    if (request.kind == Request::Kind::kFetchAdd && random_.percent(50)) {
      request.key = config_.counter_key;
      request.address = region::kAddress;
      request.compare_add = 1;
      planned.counts = true;
      return;
    }
    const uint64_t cell = random_.below(region::kCells) * 8;
    request.key = config_.key_base + region::kData;
    request.address = region::kAddress + cell;
    uint64_t value = 0;
    std::memcpy(&value, model_.data() + cell, sizeof value);
    planned.answer.resize(sizeof value);
    std::memcpy(planned.answer.data(), &value, sizeof value);
    if (request.kind == Request::Kind::kFetchAdd) {
      request.compare_add = random_.next();
      value += request.compare_add;
    } else {
      request.compare_add = random_.percent(70) ? value : random_.next();
      request.swap = random_.next();
      if (request.compare_add == value) value = request.swap;
    }
    std::memcpy(model_.data() + cell, &value, sizeof value);
  }

  const PlanConfig& config_;
  Random random_;
  std::vector<std::byte> model_;  // the peer's region as it will be
  std::vector<std::pair<uint64_t, uint64_t>> open_reads_;
  bool streams_ = false;  // reads much, and on where it has come to
  uint64_t streamed_ = 0;
  uint64_t read_until_ = region::kCellBytes;
  uint64_t weights_ = 0;
  uint64_t spent_ = 0;
};

// Makes of it a request that is at fault in one way.
void Planner::provoke(Planned& planned) {
  const uint64_t length = random_.spread(1, std::min<uint64_t>(config_.longest, 4 * config_.mtu));
  const auto pattern = planned.pattern;
  planned = {};
  planned.pattern = pattern;
  planned.provoked = RequestStatus::kRemoteAccess;
  Request& request = planned.request;
  request = {.kind = random_.percent(50) ? Request::Kind::kWrite : Request::Kind::kRead,
             .key = config_.key_base + region::kData,
             .address = region::kAddress + region::kCellBytes,
             .length = std::min(length, config_.data_bytes - region::kCellBytes)};
  if (config_.queues > 0 && random_.percent(30)) return provoke_by_queue(planned);
  switch (random_.below(config_.may_starve ? 12 : 11)) {
    case 0:
      request.key = config_.key_base + 77;
      break;
    case 1:
      request.address = region::kAddress + config_.data_bytes - request.length + random_.spread(1, 1 << 30);
      break;
    case 2:
      request.kind = Request::Kind::kWrite;
      request.key = config_.key_base + region::kReadOnly;
      break;
    case 3:
      request.key = config_.key_base + region::kForeign;
      break;
    case 4:
      request.kind = Request::Kind::kSend;
      planned.receive_bytes = random_.below(request.length);
      planned.provoked = RequestStatus::kRemoteInvalid;
      break;
    case 5:
      request.kind = Request::Kind::kFetchAdd;
      request.length = 8;
      request.address += random_.between(1, 7);
      planned.provoked = RequestStatus::kRemoteInvalid;
      break;
    case 6:
      request.kind = random_.percent(50) ? Request::Kind::kSend : Request::Kind::kWrite;
      planned.unreadable_from = random_.below(request.length);
      request.fenced = true;  // a part of it may arrive, and earlier READs mustn't see it
      planned.provoked = RequestStatus::kLocalProtection;
      planned.receive_bytes = request.length;
      break;
    case 7:
      request.kind = Request::Kind::kRead;
      planned.unwritable = true;
      planned.provoked = RequestStatus::kLocalProtection;
      break;
    case 8:
      request.kind = Request::Kind::kSend;
      request.invalidates = true;  // no host has windows
      planned.receive_bytes = request.length;
      planned.provoked = RequestStatus::kRemoteAccess;
      break;
    case 9:
      request.kind = Request::Kind::kFetchAdd;
      request.length = 8;
      request.key = config_.key_base + region::kReadOnly;
      break;
    case 10:
      request.kind = Request::Kind::kRead;
      request.key = config_.key_base + region::kFragile;
      break;
    default:
      request.kind = random_.percent(50) ? Request::Kind::kSend : Request::Kind::kWrite;
      request.has_imm = true;
      request.imm = static_cast<uint32_t>(random_.next());
      planned.starved = true;
      planned.provoked = RequestStatus::kRnrRetryExceeded;
      break;
  }
  name_queue(request);
}

// XRC: a queue that isn't there, or a key of another one's domain.
void Planner::provoke_by_queue(Planned& planned) {
  Request& request = planned.request;
  name_queue(request);
  if (random_.percent(40)) {
    request.key += region::kKeysOfQueue;
    return;
  }
  request.srq = ReceivePoolsConfig::kFirstNumber + config_.queues + static_cast<uint32_t>(random_.below(100));
  planned.provoked = RequestStatus::kRemoteInvalid;
  request.kind = static_cast<Request::Kind>(random_.below(5));
  if (request.returns_word()) request.length = 8;
  planned.receive_bytes = request.length;
}

}  // namespace

std::vector<Planned> make_plan(const PlanConfig& config, Random random) {
  const size_t faulty = config.provokes ? random.below(config.requests) : config.requests;
  Planner planner(config, random.fork());
  std::vector<Planned> plan;
  plan.reserve(config.requests);
  for (size_t i = 0; i < config.requests; ++i) {
    plan.push_back(planner.next());
    if (i == faulty) planner.provoke(plan.back());
  }
  return plan;
}

}  // namespace verbena::sim
