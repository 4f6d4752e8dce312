// Protection domains: who may use whose memory. Later objects (MR, MW, QP, SRQ, AH) hold their domain.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace verbena::verbs {

class ProtectionDomain {
 public:
  ProtectionDomain(std::string device, uint32_t handle) : device_(std::move(device)), handle_(handle) {}

  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] uint32_t handle() const { return handle_; }

  // An object in the domain holds it, so that it can't be deallocated under the object. False: it was
  // already.
  [[nodiscard]] bool hold();
  void release();
  // No object holds it, and none will. EBUSY; ENOENT: it was closed before.
  [[nodiscard]] base::Result<void> close();

 private:
  static constexpr uint32_t kClosed = UINT32_MAX;

  std::string device_;  // domains of different devices never mix
  uint32_t handle_;     // what ibv_pd shows, and what ibv_import_pd takes
  std::atomic<uint32_t> users_ = 0;
};

// A process's domains by handle. Not synchronised: the caller holds its own lock.
class ProtectionDomains {
 public:
  // ENOMEM: kMaxPd exist already.
  [[nodiscard]] base::Result<std::shared_ptr<ProtectionDomain>> allocate(std::string_view device);
  // ENOENT: that device has no domain of that handle.
  [[nodiscard]] base::Result<std::shared_ptr<ProtectionDomain>> find(std::string_view device,
                                                                     uint32_t handle) const;
  // EBUSY while objects hold it; ENOENT when it was deallocated before, through another import.
  [[nodiscard]] base::Result<void> deallocate(ProtectionDomain& domain);

 private:
  uint32_t last_handle_ = 0;
  std::map<uint32_t, std::shared_ptr<ProtectionDomain>> by_handle_;
};

}  // namespace verbena::verbs
