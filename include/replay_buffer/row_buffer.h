// What every typed buffer has, whatever its rows are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replay_buffer/config.h"
#include "replay_buffer/stats.h"
#include "replay_buffer/store.h"

namespace replay_buffer {

// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error (error.h).
class RowBuffer {
 public:
  // Sets raw priorities. All or nothing: throws kInvalidArgument, before any write, when the
  // strategy is neither Prioritized nor Rank, a value is NaN, infinite or negative, an id was never
  // given to a row, or the lengths differ. Rows that are gone are skipped. Returns how many were
  // updated.
  std::size_t update_priorities(const std::vector<std::size_t>& indices,
                                const std::vector<float>& priorities) {
    return store_.update_priorities(indices, priorities);
  }
  std::size_t update_priorities(std::span<const std::size_t> indices,
                                std::span<const float> priorities) {
    return store_.update_priorities(indices, priorities);
  }

  // Ids of the newest n rows, oldest first.
  std::vector<std::size_t> latest(std::size_t n) const {
    std::vector<std::size_t> ids(std::min(n, capacity()));
    ids.resize(store_.latest(ids.size(), ids.data()));
    return ids;
  }

  std::size_t size() const { return store_.size(); }
  std::size_t capacity() const { return store_.capacity(); }
  // Whether rows that are added now take the room of others.
  bool is_full() const { return store_.is_full(); }
  void clear() { store_.clear(); }
  BufferConfig config() const { return store_.config(); }
  Stats stats() const { return store_.stats(); }

  // Saves everything in the directory `path`, while others write: see Store::checkpoint.
  CheckpointResult checkpoint(const std::string& path) const { return store_.checkpoint(path); }

 protected:
  explicit RowBuffer(Store store) : store_(std::move(store)) {}

  // Whether rows have priorities.
  static bool weighted(const BufferConfig& config) {
    return config.strategy == SamplingStrategy::Prioritized ||
           config.strategy == SamplingStrategy::Rank;
  }

  Store store_;
};

}  // namespace replay_buffer
