// A libFuzzer target for the run of engine_input.hpp that FUZZ_RUN names.
#include "engine_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::FUZZ_RUN({data, size});
  return 0;
}
