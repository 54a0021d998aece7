// How many rows a batch can have, and memory for them.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace replay_buffer::detail {

// kInvalidArgument, kOutOfSpace. Apart, so that callers stay short.
[[noreturn]] void refuse_batch_size(std::size_t n);
[[noreturn]] void refuse_memory(std::size_t n);

// Throws kInvalidArgument.
inline void check_batch_size(std::size_t n) {
  constexpr std::size_t kEnd = std::size_t{1} << 31;
  if (n - 1 >= kEnd - 1) [[unlikely]]
    refuse_batch_size(n);
}

// Makes room for n rows of `each` values, which become `value`. Throws kOutOfSpace.
template <typename T, typename... Value>
void make_room(std::vector<T>& values, std::size_t n, std::size_t each = 1, const Value&... value) {
  if (n > values.max_size() / each) [[unlikely]]
    refuse_memory(n);
  try {
    values.resize(n * each, value...);
  } catch (const std::bad_alloc&) {
    refuse_memory(n);
  }
}

}  // namespace replay_buffer::detail
