#include "common/program.hpp"

#include <cstdlib>

#include "common/trace.hpp"

namespace examples {

int run_program(int argc, char** argv, const Program& program,
                const std::function<void(const Options&)>& work, const Options& defaults) {
  const Options options = parse_options(argc, argv, program, defaults);
  try {
    work(options);
    return EXIT_SUCCESS;
  } catch (const std::exception& failure) {
    say(std::string(program.name) + ": " + failure.what());
    return EXIT_FAILURE;
  }
}

}  // namespace examples
