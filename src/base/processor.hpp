// What this program runs on.
#pragma once

namespace verbena::base {

// By software, as QEMU does without the hardware's help: 20 times as slow as a processor, or more.
[[nodiscard]] bool emulated();

}  // namespace verbena::base
