// Where sentences go (P9). Inside a user's process nothing is printed unless VERBENA_EXPLAIN=1 asks for it.
#pragma once

#include <string_view>

#include "base/result.hpp"

namespace verbena::base {

// One line on stderr, "verbena: SENTENCE", when VERBENA_EXPLAIN is set to something other than 0.
void explain(std::string_view sentence);
inline void explain(const Error& error) { explain(error.sentence); }

}  // namespace verbena::base
