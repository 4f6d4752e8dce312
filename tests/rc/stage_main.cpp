// The helper process: performs calls from its stdin until that ends.
#include <unistd.h>

#include "stage.hpp"
#include "transfer.hpp"

int main() {
  verbena::rc::Stage stage;
  while (const auto call = verbena::rc::receive_bytes(STDIN_FILENO, -1))
    if (!verbena::rc::send_bytes(STDOUT_FILENO, stage.perform(*call))) return 1;
  return 0;
}
