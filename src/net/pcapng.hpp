// A capture file in pcapng, as Wireshark reads it: raw IP packets with direction and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace verbena::net {

enum class Direction : uint8_t { kIn = 1, kOut = 2 };  // as pcapng numbers them

// On any thread; several links may share one. When the disk is full, a limit is reached or the program closed
// the file, the file ends there and says how many packets it lacks.
class Pcapng {
 public:
  // Makes the file, or empties it; its user alone may read it, for it holds what programs sent.
  [[nodiscard]] static base::Result<std::unique_ptr<Pcapng>> create(const std::string& path,
                                                                    uint64_t max_bytes = uint64_t{1} << 30);
  ~Pcapng() { flush(); }

  // A packet in two parts, IP first. `ns` since the epoch.
  void add(Direction direction, uint64_t ns, std::span<const std::byte> headers,
           std::span<const std::byte> rest);
  // Writes what was added. Called when a batch ends, so that a crash loses little.
  void flush();

  [[nodiscard]] uint64_t packets() const;
  [[nodiscard]] uint64_t missing() const;  // packets that came after the file's end

 private:
  Pcapng(base::UniqueFd file, uint64_t max_bytes) : file_(std::move(file)), max_bytes_(max_bytes) {}

  void write_heading();
  void put(uint32_t value);
  void put_bytes(std::span<const std::byte> bytes);  // and zeros up to a multiple of 4
  void put_option(uint16_t code, std::span<const std::byte> value);
  void write_out();

  mutable std::mutex mutex_;
  base::GuardedFd file_;
  const uint64_t max_bytes_;
  uint64_t written_ = 0;
  bool ended_ = false;
  std::vector<std::byte> pending_;
  uint64_t pending_packets_ = 0;
  uint64_t packets_ = 0;
  uint64_t missing_ = 0;
};

}  // namespace verbena::net
