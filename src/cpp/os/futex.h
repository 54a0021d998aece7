// Sleeping on a word of shared memory, across processes.
//
// The word may be in any mapping of the same file, at any address. Waiting and waking need only
// read access: a watcher with a read-only mapping of a file can wait (checked on Linux by a test;
// macOS polls there if its kernel refuses).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace replay_buffer::os::futex {

enum class Result : std::uint8_t {
  kWoken,        // by wake_all(), or the word was not `expected`, or for no reason: look again
  kTimeout,      // the time is over
  kInterrupted,  // a signal handler ran in this thread
};

// Sleeps while `word` is `expected`, for `timeout` at most (0 or less: does not sleep). Looking at
// the word and going to sleep are one step: a change of the word followed by wake_all() is never
// missed. Never throws.
Result wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
            std::chrono::nanoseconds timeout) noexcept;

// Wakes all who sleep on the word, in all processes. Costs a system call: callers keep a count of
// those who wait and do without when there are none.
void wake_all(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace replay_buffer::os::futex
