// The ring: one segment seen as rows, blocks and priorities. Writers and samplers work on it.
// Copies share the segment.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/blocks.h"
#include "core/priorities.h"
#include "core/rows.h"
#include "segment/segment.h"

namespace replay_buffer {

struct Ring {
  explicit Ring(std::shared_ptr<Segment> s)
      : segment(std::move(s)), rows(*segment), blocks(*segment) {
    if (segment->layout().has_priorities()) priorities.emplace(*segment);
  }

  const Layout& layout() const { return segment->layout(); }
  const Settings& settings() const { return segment->layout().settings; }
  Counters& counters() const { return segment->counters(); }

  // Rows ever added, by all owners.
  std::uint64_t rows_added() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kOwnerCount; ++i) {
      sum += segment->owners()[i].rows_added.load(std::memory_order_relaxed);
    }
    return sum;
  }
  float alpha() const {
    return std::bit_cast<float>(counters().alpha_bits.load(std::memory_order_relaxed));
  }

  // For who reads a row in place. Asked before, whether the row is there; asked again after,
  // whether it was there all the time: then what was read of it is whole.
  bool holds(std::int64_t id) const {
    if (id < 0) return false;
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
    const std::uint64_t word =
        rows.word(static_cast<std::uint64_t>(id) % rows.capacity()).load(std::memory_order_acquire);
    return blocks.live(word) && row_id(word) == static_cast<std::uint64_t>(id);
  }

  std::shared_ptr<Segment> segment;
  Rows rows;
  Blocks blocks;
  std::optional<Priorities> priorities;  // of prioritized and rank-based buffers
};

}  // namespace replay_buffer
