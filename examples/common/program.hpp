// What main() of each program is made of.
#pragma once

#include <functional>

#include "common/options.hpp"

namespace examples {

/// Parses the options and does the work; the exit status is 0 if that ended well, 1 if it threw a Failure
/// (which is printed), 2 if the command line was wrong.
int run_program(int argc, char** argv, const Program& program,
                const std::function<void(const Options&)>& work, const Options& defaults = {});

}  // namespace examples
