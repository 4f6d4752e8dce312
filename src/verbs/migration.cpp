// A queue pair whose connection may change its path (IBA 17.2.8). The path does it; this is what the program
// sees of it.
#include "verbs/queue_pair.hpp"

namespace verbena::verbs {

void QueuePair::change_migration(int mask, const ibv_qp_attr& wanted) {
  auto* migration = plan_.path ? plan_.path->migration() : nullptr;
  if (migration == nullptr || (mask & IBV_QP_PATH_MIG_STATE) == 0) return;
  if (wanted.path_mig_state == IBV_MIG_REARM)
    plan_.path->rearm();
  else if (migration->state() == IBV_MIG_ARMED)
    plan_.path->migrate();
  else
    migration->disarm();
  follow_migration();
}

// A path may have changed at any time, by a failure or by the peer's wish.
void QueuePair::follow_migration() {
  auto* migration = plan_.path ? plan_.path->migration() : nullptr;
  if (migration == nullptr) return;
  if (migration->times() != migrations_) {
    migrations_ = migration->times();
    take_alternate_path(attributes_);
    send_->set_rules(rules());
  }
  attributes_.attr.path_mig_state = migration->state();
}

void QueuePair::on_port_down(unsigned port) {
  const std::lock_guard lock(modify_mutex_);
  follow_migration();
  if (plan_.path == nullptr || attributes_.attr.port_num != port) return;
  plan_.path->migrate();
  follow_migration();
}

void QueuePair::on_migration_word(MigrationWord word, uint32_t life) {
  const std::lock_guard lock(modify_mutex_);
  if (plan_.path == nullptr || life != incarnation()) return;
  plan_.path->hear(word);
  follow_migration();
}

}  // namespace verbena::verbs
