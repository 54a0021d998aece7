// What a buffer says of itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace replay_buffer {

// Counters are those of all processes since the buffer was made.
struct Stats {
  std::size_t size = 0;      // rows in the buffer
  std::size_t capacity = 0;  // rows it can hold
  std::size_t block_rows = 0;

  std::size_t row_bytes = 0;       // what the columns of one row need
  std::size_t raw_bytes = 0;       // the same of a full buffer
  std::size_t segment_bytes = 0;   // what it takes with everything around them
  std::size_t resident_bytes = 0;  // what of it is in memory now

  std::uint64_t rows_added = 0;
  std::uint64_t rows_sampled = 0;
  std::uint64_t samples = 0;          // batches drawn
  std::uint64_t updates_applied = 0;  // priorities
  std::uint64_t updates_stale = 0;    // those of rows that were gone

  // Bytes of values that were compressed, before and after.
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_kept = 0;

  // Rate limiter: samples_per_insert times the rows added, less the rows drawn.
  double balance = 0;

  // Steps: episodes that ended, their steps and returns.
  std::uint64_t episodes = 0;
  std::uint64_t episode_steps = 0;
  double return_sum = 0;
};

struct CheckpointResult {
  std::uint64_t rows = 0;           // in the checkpoint
  std::uint64_t bytes = 0;          // of it on the disk
  std::uint64_t bytes_written = 0;  // by this call
};

}  // namespace replay_buffer
