// What a thread holds while it is in the core, and others may be waiting for: Python's lock.
//
// Calls from Python keep that lock, because getting it back costs milliseconds. When a call turns
// out to wait, or to take long, the core says so here, and whoever made the call lets go of what it
// holds until the call is over. Decision 0018 has the reasons.
#pragma once

#include <atomic>
#include <cstddef>

namespace replay_buffer::os {

// Something to let go of. Getting it back is not the core's business: it happens when the call
// returns, with no lock of the core held.
class Holding {
 public:
  virtual void let_go() noexcept = 0;

 protected:
  ~Holding() = default;
};

// What this thread holds; null: nothing.
extern constinit thread_local Holding* holding;

inline void let_go() noexcept {
  if (holding != nullptr) holding->let_go();
}

// Work is measured in bytes that are copied one after the other. More than this is long: it takes
// about as long as getting Python's lock back from a thread that runs Python code. Tests set it.
extern std::atomic<std::size_t> long_work;
inline bool is_long(std::size_t work) noexcept {
  return work > long_work.load(std::memory_order_relaxed);
}

// To find something at a random place, such as a row or a priority, is as much work as to copy so
// many bytes; to look at one of many in a row, as these.
inline constexpr std::size_t kFindWork = 256;
inline constexpr std::size_t kLookWork = 64;

}  // namespace replay_buffer::os
