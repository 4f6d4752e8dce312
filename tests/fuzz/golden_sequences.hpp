// The captures of tests/golden as inputs of the engine's fuzz targets: one for each file and direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbena::fuzz {

struct Seed {
  std::string target;  // rc_requester, rc_responder, uc_responder, ud
  std::string name;
  std::vector<uint8_t> bytes;
};

[[nodiscard]] std::vector<Seed> golden_sequences();

}  // namespace verbena::fuzz
