// The contiguous memory of one buffer, and typed access to its sections.
//
// A segment does not know what is done with it, and nothing above it knows how it was mapped.
// Thread safety: the accessors are const and safe; what they return is shared memory whose rules
// stand in layout.h and in the core classes that own each section.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "os/memory.h"
#include "segment/layout.h"

namespace replay_buffer {

class Segment {
 public:
  // Private memory of this process: reserved, and used as rows are written.
  static std::unique_ptr<Segment> create_heap(const BufferConfig& config, const Schema& schema);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The private, checked copy of the header's facts. Never read again from shared memory.
  const Layout& layout() const { return layout_; }

  std::byte* base() const { return mapping_.data(); }
  Counters& counters() const { return at<Header>(0)->counters; }
  Owner* owners() const { return at<Owner>(layout_.owners_at); }
  Block* blocks() const { return at<Block>(layout_.blocks_at); }
  std::atomic<std::uint64_t>* fills() const {
    return at<std::atomic<std::uint64_t>>(layout_.fills_at);
  }
  std::atomic<std::uint64_t>* priorities() const {
    return at<std::atomic<std::uint64_t>>(layout_.priorities_at);
  }
  std::atomic<float>* weights() const { return at<std::atomic<float>>(layout_.weights_at); }
  std::atomic<std::uint64_t>* sums() const {
    return at<std::atomic<std::uint64_t>>(layout_.sums_at);
  }
  std::atomic<std::uint64_t>* lows() const {
    return at<std::atomic<std::uint64_t>>(layout_.lows_at);
  }
  std::byte* words() const { return base() + layout_.words_at; }
  std::byte* records() const { return base() + layout_.records_at; }

  // Bytes of physical memory behind the segment now.
  std::size_t resident_bytes() const { return mapping_.resident_bytes(); }

 private:
  Segment(os::Mapping mapping, Layout layout)
      : mapping_(std::move(mapping)), layout_(std::move(layout)) {}

  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(mapping_.data() + offset);
  }

  os::Mapping mapping_;
  Layout layout_;
};

}  // namespace replay_buffer
