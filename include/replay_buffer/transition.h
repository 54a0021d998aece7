// What a row of a typed buffer holds, and how its types are stored.
//
// Observations and actions are numbers, std::arrays of them (nested too), any trivially copyable
// struct, or std::vectors of these, whose length may differ from row to row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "replay_buffer/schema.h"

namespace replay_buffer {

template <typename Observation, typename Action>
struct Transition {
  Observation observation{};
  Action action{};
  float reward = 0;
  Observation next_observation{};
  bool done = false;
  // Raw priority. Given to add(): below 0 means "the largest so far". In a batch: the row's own,
  // NaN when the row was overwritten meanwhile.
  float priority = -1;
};

namespace detail {

// A number is stored as itself, an array as its elements, a struct as whole words of its alignment,
// so that it can be read in place.
template <typename T>
struct ElementOf {
  static constexpr bool kVaries = false;
  static constexpr bool kNumber = std::is_arithmetic_v<T>;
  static_assert(std::is_trivially_copyable_v<T>, "rows are copied as bytes");
  static_assert(alignof(T) <= 8, "rows are aligned to 8 bytes");
  static constexpr std::size_t kWidth = kNumber ? sizeof(T) : alignof(T);

  static constexpr DType dtype() {
    if constexpr (std::is_same_v<T, bool>) {
      return DType::kBool;
    } else if constexpr (std::is_floating_point_v<T>) {
      return kWidth == 4 ? DType::kFloat32 : DType::kFloat64;
    } else {
      constexpr DType kSigned[] = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
      constexpr DType kUnsigned[] = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64};
      constexpr std::size_t kLog = kWidth == 1 ? 0 : kWidth == 2 ? 1 : kWidth == 4 ? 2 : 3;
      return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
    }
  }
  static void shape(std::vector<std::uint64_t>& dims) {
    if constexpr (!kNumber) dims.push_back(sizeof(T) / kWidth);
  }
};

template <typename T, std::size_t N>
struct ElementOf<std::array<T, N>> {
  static constexpr bool kVaries = false;
  static constexpr DType dtype() { return ElementOf<T>::dtype(); }
  static void shape(std::vector<std::uint64_t>& dims) {
    dims.push_back(N);
    ElementOf<T>::shape(dims);
  }
};

template <typename T, typename Allocator>
struct ElementOf<std::vector<T, Allocator>> {
  static constexpr bool kVaries = true;
  static_assert(!ElementOf<T>::kVaries, "only the outermost length may differ from row to row");
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> holds no bools");
  static constexpr DType dtype() { return ElementOf<T>::dtype(); }
  static void shape(std::vector<std::uint64_t>& dims) {
    dims.push_back(0);
    ElementOf<T>::shape(dims);
  }
};

template <typename T>
inline constexpr bool kVaries = ElementOf<T>::kVaries;

template <typename T>
Column column_of(const char* name) {
  Column column{name, ElementOf<T>::dtype(), {}, 0};
  ElementOf<T>::shape(column.shape);
  return column;
}

template <typename T>
bool aligned(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(T) == 0;
}

// A value as a store takes it.
template <typename T>
class Given {
 public:
  explicit Given(const T& value) : value_(&value) {}
  const void* at() const { return value_; }

 private:
  const T* value_;
};

template <typename T, typename Allocator>
class Given<std::vector<T, Allocator>> {
 public:
  explicit Given(const std::vector<T, Allocator>& value)
      : offsets_{0, static_cast<std::int64_t>(value.size())}, ragged_{value.data(), offsets_} {}
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;
  const void* at() const { return &ragged_; }

 private:
  std::int64_t offsets_[2];
  Ragged ragged_;
};

// The values of many rows as a store takes them: one after the other. value(i) is that of row i.
template <typename T>
class GivenMany {
 public:
  template <typename Value>
  GivenMany(std::size_t n, const Value& value) {
    if (n == 1) {
      at_ = &value(0);
      return;
    }
    copies_ = std::make_unique_for_overwrite<T[]>(n);
    for (std::size_t i = 0; i < n; ++i) copies_[i] = value(i);
    at_ = copies_.get();
  }
  const std::byte* at() const { return reinterpret_cast<const std::byte*>(at_); }

 private:
  const T* at_;
  std::unique_ptr<T[]> copies_;
};

template <typename T, typename Allocator>
class GivenMany<std::vector<T, Allocator>> {
 public:
  template <typename Value>
  GivenMany(std::size_t n, const Value& value) : offsets_(1) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::vector<T, Allocator>& items = value(i);
      items_.insert(items_.end(), items.begin(), items.end());
      offsets_.push_back(static_cast<std::int64_t>(items_.size()));
    }
    ragged_ = {items_.data(), offsets_.data()};
  }
  GivenMany(const GivenMany&) = delete;
  GivenMany& operator=(const GivenMany&) = delete;
  const std::byte* at() const { return reinterpret_cast<const std::byte*>(&ragged_); }

 private:
  std::vector<T> items_;
  std::vector<std::int64_t> offsets_;
  Ragged ragged_;
};

// Where a store puts values: the first of them, and `step` bytes further each of the others.
template <typename T>
class Taken {
 public:
  Taken(T* first, std::size_t) : first_(first) {}
  void* at() { return first_; }

 private:
  T* first_;
};

template <typename T, typename Allocator>
class Taken<std::vector<T, Allocator>> final : public Pieces {
  using Vector = std::vector<T, Allocator>;

 public:
  Taken(Vector* first, std::size_t step)
      : first_(reinterpret_cast<std::byte*>(first)), step_(step) {}
  void* at() { return static_cast<Pieces*>(this); }

  std::byte* room(std::size_t row, std::size_t bytes) override {
    Vector& value = *reinterpret_cast<Vector*>(first_ + row * step_);
    value.resize(bytes / sizeof(T));
    return reinterpret_cast<std::byte*>(value.data());
  }

 private:
  std::byte* first_;
  std::size_t step_;
};

}  // namespace detail
}  // namespace replay_buffer
