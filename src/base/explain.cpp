#include "base/explain.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace verbena::base {

void explain(std::string_view sentence) {
  const char* wanted = std::getenv("VERBENA_EXPLAIN");
  if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "0") == 0) return;
  // One writev, so that lines of several threads and processes don't mix.
  constexpr std::string_view kPrefix = "verbena: ";
  constexpr std::string_view kEnd = "\n";
  const iovec parts[] = {{const_cast<char*>(kPrefix.data()), kPrefix.size()},
                         {const_cast<char*>(sentence.data()), sentence.size()},
                         {const_cast<char*>(kEnd.data()), kEnd.size()}};
  [[maybe_unused]] const auto written = ::writev(STDERR_FILENO, parts, 3);
}

}  // namespace verbena::base
