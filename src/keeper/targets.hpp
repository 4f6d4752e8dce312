// XRC domains and target queue pairs, and who holds them. One thread calls.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "client/data_path.hpp"
#include "client/devices.hpp"
#include "ipc/xrc_messages.hpp"
#include "verbs/queue_pair.hpp"

namespace verbena::keeper {

// What one connection holds, and how often.
struct Holdings {
  std::map<uint32_t, unsigned> domains;
  std::map<uint32_t, unsigned> targets;
};

struct Device {
  std::unique_ptr<client::OpenDevice> open;
  std::shared_ptr<verbs::CompletionQueue> completions;  // nothing completes here: failures are told by it
};

class Targets {
 public:
  ~Targets();
  [[nodiscard]] base::Result<ipc::XrcDomain> open_domain(Holdings& holder, const ipc::XrcOpenDomain& wanted);
  [[nodiscard]] base::Result<void> close_domain(Holdings& holder, uint32_t id);
  [[nodiscard]] base::Result<void> serve(const Holdings& holder, const ipc::XrcServe& wanted);
  [[nodiscard]] base::Result<ipc::XrcTarget> create(Holdings& holder, const ipc::XrcCreate& wanted);
  [[nodiscard]] base::Result<ipc::XrcTarget> open(Holdings& holder, const ipc::XrcOpen& wanted);
  [[nodiscard]] base::Result<void> release(Holdings& holder, uint32_t qpn);
  [[nodiscard]] base::Result<ipc::XrcAttributes> modify(const Holdings& holder, const ipc::XrcModify& wanted);
  [[nodiscard]] base::Result<ipc::XrcAttributes> query(const Holdings& holder, const ipc::XrcQuery& wanted);
  // The connection ended.
  void release_all(Holdings& holder);

  [[nodiscard]] const std::map<std::string, Device>& devices() const { return devices_; }
  // The queue pair that an event of a device names; 0: none.
  [[nodiscard]] uint32_t named(uint64_t element) const;

 private:
  struct File {
    uint64_t device = 0;
    uint64_t inode = 0;
    bool operator==(const File&) const = default;
  };
  struct Domain {
    std::optional<File> file;  // none: private
    unsigned holders = 0;
  };
  struct Target {
    std::shared_ptr<verbs::QueuePair> queue_pair;
    uint32_t domain = 0;
    unsigned holders = 0;
  };
  [[nodiscard]] base::Result<Device*> device(const std::string& name);
  // ENOENT: the connection doesn't hold it.
  [[nodiscard]] base::Result<void> check_domain(const Holdings& holder, uint32_t id) const;
  [[nodiscard]] base::Result<Target*> target(const Holdings& holder, uint32_t qpn);
  void drop_domain(uint32_t id, unsigned times);
  void drop_target(uint32_t qpn, unsigned times);

  std::shared_ptr<client::DataPath> data_;  // once a device is open
  std::map<std::string, Device> devices_;
  std::shared_ptr<verbs::ProtectionDomain> nobody_ = std::make_shared<verbs::ProtectionDomain>("", 0);
  std::map<uint32_t, Domain> domains_;
  std::map<uint32_t, Target> targets_;  // by number
  uint32_t last_domain_ = 0;
};

}  // namespace verbena::keeper
