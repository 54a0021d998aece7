#if defined(__linux__)

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "os/futex.h"

namespace replay_buffer::os::futex {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 &&
              std::atomic<std::uint32_t>::is_always_lock_free);

// Without FUTEX_PRIVATE_FLAG: the kernel then finds the word by file and offset.
Result wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::chrono::nanoseconds timeout) noexcept {
  if (word.load(std::memory_order_acquire) != expected) return Result::kWoken;
  if (timeout.count() <= 0) return Result::kTimeout;
  timespec relative;
  relative.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000);
  relative.tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000);
  if (::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0) == 0) {
    return Result::kWoken;
  }
  if (errno == ETIMEDOUT) return Result::kTimeout;
  if (errno == EINTR) return Result::kInterrupted;
  return Result::kWoken;  // EAGAIN: the word changed
}

void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace replay_buffer::os::futex

#endif
