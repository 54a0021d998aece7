// Points at which the crash tests kill or stop the process. Compiled in with REPLAY_CRASH_POINTS
// only; otherwise they are nothing.
#pragma once

#if defined(REPLAY_CRASH_POINTS)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace replay_buffer::os::crash {

enum class Action : std::uint8_t { kKill, kStop };

// From now on the process gets SIGKILL (SIGSTOP) the `hit`-th time it comes to `point`, counted
// from 1. The environment variable REPLAY_CRASH_AT, "point:hit:kill" or "point:hit:stop", does the
// same for a process that is started. Not for several threads at once.
void arm(const std::string& point, unsigned hit, Action action);

// Forgets what was armed and counted.
void reset();

// How often each point was passed since reset().
std::vector<std::pair<std::string, unsigned>> passed();

// The names of all points in this program, passed or not.
std::vector<std::string> all();

void at(const char* point) noexcept;

// How a point makes itself known before main().
bool know(const char* point);
template <std::size_t kSize>
struct Name {
  constexpr Name(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }  // NOLINT: implicit
  char text[kSize];
};
template <Name kName>
struct Point {
  static inline const bool known = know(kName.text);
};

}  // namespace replay_buffer::os::crash

#define REPLAY_CRASH_POINT(name)                                      \
  (static_cast<void>(::replay_buffer::os::crash::Point<name>::known), \
   ::replay_buffer::os::crash::at(name))
#else
#define REPLAY_CRASH_POINT(name) static_cast<void>(0)
#endif
