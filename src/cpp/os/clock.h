// Two clocks, both in nanoseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace replay_buffer::os {

// Never goes backwards. All processes of one machine read the same clock, so values may be compared
// across processes; they mean nothing after a reboot, on another machine or in another time
// namespace.
inline std::uint64_t monotonic_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Time since 1970-01-01 00:00 UTC. May jump when the clock of the machine is set; only for display.
inline std::uint64_t wall_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace replay_buffer::os
