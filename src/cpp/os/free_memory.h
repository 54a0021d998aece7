// How much memory could still be had.
#pragma once

#include <cstdint>

namespace replay_buffer::os {

// Bytes that could be allocated before the system has to kill a process: what the machine can free,
// or what the control groups of this process allow, whichever is less. An estimate, as the system
// gives it; the greatest number when it gives none.
std::uint64_t free_memory();

}  // namespace replay_buffer::os
