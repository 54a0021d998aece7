// What a buffer keeps and how it draws: the options fixed when a buffer is created.
#pragma once

#include <cstddef>
#include <cstdint>

namespace replay_buffer {

// Stored in segments: append, never renumber.
enum class SamplingStrategy : std::uint32_t {
  Uniform = 0,
  // Proportional, P(i) = (p_i + epsilon)^alpha / sum, stratified. A positive power is kept between
  // 2^-126 and 2^(127 - b), where b is the number of bits of the capacity.
  Prioritized = 1,
  Rank = 2,                // P(i) = 1 / rank(i)^alpha
  WithoutReplacement = 3,  // epochs: every stored row once, then again
  Fifo = 4,                // a queue: each row at most max_times_sampled times, oldest first
  Lifo = 5,                // the newest rows, newest first
};

// What a row is. Stored in segments: append, never renumber.
enum class Storage : std::uint32_t {
  Transitions = 0,  // a whole transition: any order, any writer
  Steps = 1,        // one step of a stream; what comes after it is in the stream's next row
};

// How importance weights (N P(i))^-beta are scaled.
enum class WeightScale : std::uint32_t {
  BatchMax = 0,   // the largest weight of the batch is 1
  GlobalMax = 1,  // the largest weight any stored row could have is 1
  None = 2,       // as the formula gives them
};

// The first five, in this order, are what most programs set.
struct BufferConfig {
  std::size_t capacity = 0;  // rows kept; older ones are overwritten
  SamplingStrategy strategy = SamplingStrategy::Uniform;
  float alpha = 0.6F;  // priority exponent
  float beta = 0.4F;   // importance-weight exponent
  // Columns whose values take more than 1 KiB, or have any length, get LZ4, unless they have a
  // codec of their own. Throws kInvalidArgument where the library was built without blosc2.
  bool enable_compression = false;

  Storage storage = Storage::Transitions;
  float epsilon = 1e-6F;  // added to every priority before the exponent
  WeightScale weights = WeightScale::BatchMax;
  bool cer = false;                     // the newest row is in every batch
  std::uint32_t max_times_sampled = 1;  // Fifo only
  std::uint64_t seed = 0;
  // Rows a writer takes at a time; 0 chooses from the capacity. Each handle that writes needs such
  // a block: smaller ones make room for more of them.
  std::uint64_t block_rows = 0;

  // Rate limiter: draws wait until min_size rows are there, and draws and adds for each other so
  // that samples_per_insert rows are drawn for each row added, give or take `tolerance` rows drawn.
  std::uint64_t min_size = 0;
  double samples_per_insert = 0;  // 0: no limit
  double tolerance = 0;

  bool durable = false;  // files: a checksum for each row, checked after a power cut
  // Mean number of items in values of any length, by which memory is planned. 0: 64; and in private
  // memory, which is only reserved, as many as have 64 KiB.
  std::uint32_t expected = 0;
  std::uint64_t arena_bytes = 0;  // of a block, for values that vary in size; 0 chooses
  float beta_end = 0.4F;          // what beta becomes ...
  std::uint64_t beta_steps = 0;   // ... in so many draws; 0: it stays
};

}  // namespace replay_buffer
