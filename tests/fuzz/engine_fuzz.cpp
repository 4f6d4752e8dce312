// A libFuzzer target for one of the runs of engine_input.hpp, which FUZZ_RUN names.
#include "engine_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::FUZZ_RUN({data, size});
  return 0;
}
