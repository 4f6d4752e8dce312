#include "client/wire_link.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "net/capture_link.hpp"
#include "net/fault_link.hpp"
#include "net/pcapng.hpp"
#include "net/trace_link.hpp"
#include "net/udp_link.hpp"

namespace verbena::client {
namespace {

// A number and what follows it.
std::optional<double> number(std::string_view text, std::string_view& unit) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value >= 0)) return {};
  unit = text.substr(static_cast<size_t>(end - text.data()));
  return value;
}

bool probability(std::string_view text, double& into) {
  std::string_view unit;
  const auto value = number(text, unit);
  if (!value || (!unit.empty() && unit != "%")) return false;
  into = unit.empty() ? *value : *value / 100;
  return into <= 1;
}

bool duration(std::string_view text, base::Duration& into) {
  std::string_view unit;
  const auto value = number(text, unit);
  const double scale = unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : 0;
  if (!value || scale == 0 || *value * scale > 60e9) return false;
  into = base::Duration(static_cast<int64_t>(*value * scale));
  return true;
}

bool set_fault(std::string_view key, std::string_view value, WishedFaults& into) {
  auto& faults = into.faults;
  if (key == "loss") return probability(value, faults.loss);
  if (key == "duplicate") return probability(value, faults.duplication);
  if (key == "reorder") return probability(value, faults.reordering);
  if (key == "corrupt") return probability(value, faults.corruption);
  if (key == "delay" || key == "jitter") {
    faults.delaying = 1;
    return duration(value, key == "delay" ? faults.delay : faults.jitter);
  }
  if (key == "seed") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), into.seed);
    return error == std::errc{} && end == value.data() + value.size();
  }
  return key == "partition" && value.empty() && (faults.partition = true);
}

// The links of a process, outermost last, all alive as long as the whole.
class LinkStack final : public net::Link {
 public:
  explicit LinkStack(std::unique_ptr<net::UdpLink> bottom)
      : bottom_(std::move(bottom)), top_(bottom_.get()) {}

  void add_faults(const WishedFaults& wished) {
    faults_ = std::make_unique<net::FaultLink>(*top_, wished.seed ^ static_cast<uint64_t>(::getpid()));
    faults_->set_incoming(wished.faults);
    top_ = faults_.get();
  }
  void add_capture(std::unique_ptr<net::Pcapng> file) {
    file_ = std::move(file);
    capture_ = std::make_unique<net::CaptureLink>(*top_, *file_);
    bottom_->tell_hops();
    top_ = capture_.get();
  }
  void add_trace() {
    trace_ = std::make_unique<net::TraceLink>(
        *top_, [](std::string_view line) { fmt::print(stderr, "verbena: {}\n", line); });
    top_ = trace_.get();
  }

  bool send(const net::Run& run) override { return top_->send(run); }
  [[nodiscard]] uint16_t source_port(const net::Route& route) override { return top_->source_port(route); }
  size_t receive(net::Sink& sink, size_t budget) override { return top_->receive(sink, budget); }
  void tell_hops() override { bottom_->tell_hops(); }
  [[nodiscard]] int fd() const override { return top_->fd(); }
  void visit_counters(const net::CounterVisitor& visit) const override { bottom_->visit_counters(visit); }
  [[nodiscard]] std::optional<base::Instant> next_deadline() const override {
    return faults_ ? faults_->next_deadline() : std::nullopt;
  }

 private:
  std::unique_ptr<net::UdpLink> bottom_;
  std::unique_ptr<net::FaultLink> faults_;
  std::unique_ptr<net::Pcapng> file_;
  std::unique_ptr<net::CaptureLink> capture_;
  std::unique_ptr<net::TraceLink> trace_;
  net::Link* top_;
};

// %p becomes the process id: the two ends of a connection often have the same environment.
std::string capture_path(std::string_view given) {
  std::string path(given);
  if (const auto at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(::getpid()));
  return path;
}

}  // namespace

base::Result<WishedFaults> parse_faults(std::string_view text) {
  WishedFaults wished;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto equals = word.find('=');
    const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
    if (!set_fault(word.substr(0, equals), value, wished))
      return base::fail(
          EINVAL, fmt::format("VERBENA_FAULTS: \"{}\" isn't understood; known are loss, duplicate, reorder "
                              "and corrupt (as 0.01 or 1%), delay and jitter (as 10ms), seed, partition",
                              word));
  }
  return wished;
}

base::Result<int> parse_receive_buffer(std::string_view text) {
  int bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  // More than the sockets of all but odd machines may have; and the kernel doubles it.
  if (error != std::errc{} || end != text.data() + text.size() || bytes <= 0 || bytes > 1 << 30)
    return base::fail(EINVAL, fmt::format("VERBENA_RECEIVE_BUFFER=\"{}\" isn't understood; it is a number of "
                                          "bytes, at most 1 GiB, as 212992",
                                          text));
  return bytes;
}

base::Result<std::unique_ptr<net::Link>> make_wire_link(base::UniqueFd slot_socket) {
  net::UdpBuffers buffers;
  if (const char* wished = ::secure_getenv("VERBENA_RECEIVE_BUFFER"); wished != nullptr) {
    const auto bytes = parse_receive_buffer(wished);
    if (!bytes) return std::unexpected(bytes.error());
    buffers.receive_bytes = *bytes;
  }
  auto bottom = net::UdpLink::create(std::move(slot_socket), buffers);
  if (!bottom) return std::unexpected(bottom.error());
  const char* faults = ::secure_getenv("VERBENA_FAULTS");
  const char* capture = ::secure_getenv("VERBENA_CAPTURE");
  const char* trace = ::secure_getenv("VERBENA_TRACE");
  if (faults == nullptr && capture == nullptr && trace == nullptr) return std::move(*bottom);

  auto stack = std::make_unique<LinkStack>(std::move(*bottom));
  if (faults != nullptr) {
    const auto wished = parse_faults(faults);
    if (!wished) return std::unexpected(wished.error());
    stack->add_faults(*wished);
  }
  if (capture != nullptr) {
    auto file = net::Pcapng::create(capture_path(capture));
    if (!file) return base::fail(file.error().code, "VERBENA_CAPTURE: " + file.error().sentence);
    stack->add_capture(std::move(*file));
  }
  if (trace != nullptr && std::string_view(trace) != "0") stack->add_trace();
  return stack;
}

}  // namespace verbena::client
