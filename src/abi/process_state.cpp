#include "abi/process_state.hpp"

#include <pthread.h>

namespace verbena::abi {
namespace {

ProcessState* make_state() {
  // Never destroyed: threads may still be in our calls while the program's main returns.
  auto* made = new ProcessState;
  pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                 [] { state().mutex.unlock(); });
  return made;
}

}  // namespace

ProcessState& state() {
  static ProcessState* const process_state = make_state();
  return *process_state;
}

}  // namespace verbena::abi
