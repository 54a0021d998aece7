// Compiled for aarch64-macos, but never run there.
#if defined(__APPLE__)

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "os/futex.h"

// Of <os/os_sync_wait_on_address.h> and <os/clock.h> in the SDK of macOS 14.4. Declared here,
// weakly, so that the library builds with an older SDK and loads on an older system, where they are
// null.
extern "C" {
int os_sync_wait_on_address_with_timeout(void* address, uint64_t value, size_t size, uint32_t flags,
                                         uint32_t clock, uint64_t timeout_ns)
    __attribute__((weak_import));
int os_sync_wake_by_address_all(void* address, size_t size, uint32_t flags)
    __attribute__((weak_import));
}

namespace replay_buffer::os::futex {

namespace {

constexpr uint32_t kShared = 1;             // OS_SYNC_WAIT_ON_ADDRESS_SHARED, and of wake
constexpr uint32_t kMachAbsoluteTime = 32;  // OS_CLOCK_MACH_ABSOLUTE_TIME
constexpr std::chrono::nanoseconds kPollSlice = std::chrono::milliseconds(1);

// Before macOS 14.4: looks again after a slice; nobody needs to wake it.
Result poll(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::chrono::nanoseconds timeout) noexcept {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return Result::kTimeout;
    const timespec slice{0,
                         static_cast<long>(std::min<long long>(left.count(), kPollSlice.count()))};
    if (::nanosleep(&slice, nullptr) != 0) return Result::kInterrupted;
    if (word.load(std::memory_order_acquire) != expected) return Result::kWoken;
  }
}

void* address_of(const std::atomic<std::uint32_t>& word) {
  return const_cast<std::atomic<std::uint32_t>*>(&word);
}

}  // namespace

Result wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::chrono::nanoseconds timeout) noexcept {
  if (word.load(std::memory_order_acquire) != expected) return Result::kWoken;
  if (timeout.count() <= 0) return Result::kTimeout;
  if (os_sync_wait_on_address_with_timeout == nullptr) return poll(word, expected, timeout);
  if (os_sync_wait_on_address_with_timeout(address_of(word), expected, 4, kShared,
                                           kMachAbsoluteTime,
                                           static_cast<uint64_t>(timeout.count())) >= 0) {
    return Result::kWoken;
  }
  if (errno == ETIMEDOUT) return Result::kTimeout;
  if (errno == EINTR) return Result::kInterrupted;
  return poll(word, expected, timeout);
}

void wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  if (os_sync_wake_by_address_all == nullptr) return;
  os_sync_wake_by_address_all(address_of(word), 4, kShared);
}

}  // namespace replay_buffer::os::futex

#endif
