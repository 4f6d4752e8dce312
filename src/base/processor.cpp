#include "base/processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

#include <array>
#include <cstring>
#endif

namespace verbena::base {

bool emulated() {
#if defined(__x86_64__)
  constexpr unsigned kGuest = 1u << 31;
  constexpr unsigned kHypervisorLeaf = 0x40000000;  // not among those whose number leaf 0 tells
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kGuest) == 0) return false;
  __cpuid(kHypervisorLeaf, eax, ebx, ecx, edx);
  const std::array<unsigned, 3> name{ebx, ecx, edx};
  return std::memcmp(name.data(), "TCGTCGTCGTCG", sizeof name) == 0;
#else
  return false;
#endif
}

}  // namespace verbena::base
