// The process's one connection to the agent's connection manager: commands, each answered, and what has to be
// declared anew when the agent was restarted. Made with the first id or channel, left behind by fork().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "client/cm_channel.hpp"
#include "client/host_tie.hpp"
#include "ipc/channel.hpp"
#include "ipc/cm_messages.hpp"

namespace verbena::client {

class CmTie final : public DeviceListener {
 public:
  // Of this process: a child of fork() gets a new one. Never destroyed.
  [[nodiscard]] static std::shared_ptr<CmTie> instance();
  // False in a child of fork() for what its parent made: only this may be asked then.
  [[nodiscard]] bool current() const;

  // Attaches the process to its host, if it isn't, and opens the channel at the agent.
  [[nodiscard]] base::Result<std::shared_ptr<CmChannel>> open_channel();
  void close_channel(const std::shared_ptr<CmChannel>& channel);

  // The calls below are the commands of ipc/cm_messages.hpp and fail as those do. ECONNRESET: the agent was
  // restarted, and the new one can't know this connection.
  [[nodiscard]] base::Result<uint32_t> create(const std::shared_ptr<CmChannel>& channel,
                                              ipc::CmPortSpace space, void* owner);
  // Nothing of the id is found from here on; its events are gone.
  void destroy(uint32_t id);
  // Events of it that wait go along.
  [[nodiscard]] base::Result<void> migrate(uint32_t id, const std::shared_ptr<CmChannel>& channel);
  [[nodiscard]] base::Result<uint16_t> bind(const ipc::CmBind& wanted);
  [[nodiscard]] base::Result<void> listen(const ipc::CmListen& wanted);
  [[nodiscard]] base::Result<void> connect(const ipc::CmConnect& wanted);
  [[nodiscard]] base::Result<void> accept(const ipc::CmAccept& wanted);
  [[nodiscard]] base::Result<void> establish(uint32_t id);
  [[nodiscard]] base::Result<void> reject(const ipc::CmReject& wanted);
  [[nodiscard]] base::Result<void> disconnect(uint32_t id);
  [[nodiscard]] base::Result<void> notify(uint32_t id);

  // What a request that came in made: an id that the agent named. False: its listener is gone.
  [[nodiscard]] bool adopt(const ipc::CmEvent& request, void* owner);
  // Remembers what an event says of its id, for the next agent.
  void note(const ipc::CmEvent& event);
  // The owner of an id, to which `hold` is done before anybody else can destroy it; nullptr: no such id.
  [[nodiscard]] void* find(uint32_t id, void (*hold)(void* owner));
  // Leaves an event of the process's own, on the channel that the id has now.
  void leave(const ipc::CmEvent& event);

  void on_devices_changed(const arena::DeviceTable&, const arena::DeviceTable&) override {}
  void on_slot_lost(const base::Error& error) override;
  void on_agent_changed(const ipc::Waiting& waiting) override;

 private:
  enum class Phase : uint8_t {
    kIdle,        // nothing of a connection yet
    kConnecting,  // asked, not answered
    kIncoming,    // asked by the peer, not answered by us
    kAccepted,    // answered by us
    kAnswered,    // answered by the peer
    kConnected,
    kOver,
  };
  // What the agent knows of an id, and the next one has to be told.
  struct Declared {
    void* owner = nullptr;
    std::shared_ptr<CmChannel> channel;
    ipc::CmPortSpace space{};
    Phase phase = Phase::kIdle;
    bool bound = false;
    bool listens = false;
    bool resumed = false;        // at an agent that takes it for established
    bool disconnecting = false;  // the program asked for its end, which hasn't come yet
    ipc::CmBind bind;
    ipc::CmListen listen;
    ipc::CmResume resume;
  };

  CmTie() = default;
  [[nodiscard]] base::Result<void> attach();
  template <typename M>
  [[nodiscard]] base::Result<ipc::Message> ask(const M& command, std::span<const int> fds = {});
  template <typename M>
  [[nodiscard]] base::Result<void> tell(const M& command, std::span<const int> fds = {});
  template <typename Change>
  void change(uint32_t id, Change&& change) {
    const std::lock_guard lock(mutex_);
    if (const auto found = ids_.find(id); found != ids_.end()) change(found->second);
  }
  static void note_event(Declared& declared, const ipc::CmEvent& event);

  // cm_renewal.cpp; with command_mutex_ held.
  [[nodiscard]] base::Result<void> ensure_open(const ipc::Waiting& waiting);
  [[nodiscard]] base::Result<void> open(const ipc::Waiting& waiting);
  [[nodiscard]] base::Result<base::UniqueFd> open_once(const ipc::Waiting& waiting, base::Instant deadline);
  void declare_all(int socket, const ipc::Waiting& waiting);
  void declare(int socket, uint32_t id, const Declared& declared, const ipc::Waiting& waiting);
  [[nodiscard]] int socket() const;
  void drop_socket();
  void renew_if_stale();  // without it

  void abandon_in_child();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();

  // In this order, where more than one is held.
  std::mutex command_mutex_;           // one command at a time; held while the agent is waited for
  mutable std::mutex mutex_;           // all below; never held over a wait or a call elsewhere
  bool attached_ = false;              // holds the process's slot, for as long as the process lives
  std::atomic<bool> renewal_ = false;  // the agent changed: the connection is to be looked at
  base::GuardedFd socket_;
  std::map<uint32_t, std::shared_ptr<CmChannel>> channels_;
  std::map<uint32_t, Declared> ids_;
  uint32_t last_number_ = 0;
};

}  // namespace verbena::client
