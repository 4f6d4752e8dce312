// What takes seconds takes minutes under a sanitizer.
#pragma once

namespace verbena::sim {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace verbena::sim
