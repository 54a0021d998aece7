// Clocks, all in nanoseconds.
#pragma once

#include <time.h>

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

// The same with steps of a few milliseconds, in a quarter of the time that asking for it takes,
// where the system has such a clock.
inline std::uint64_t coarse_ns() noexcept {
#ifdef CLOCK_MONOTONIC_COARSE
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
#else
  return monotonic_ns();
#endif
}

// Time since 1970-01-01 00:00 UTC. May jump when the clock of the machine is set; only for display.
inline std::uint64_t wall_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace replay_buffer::os
