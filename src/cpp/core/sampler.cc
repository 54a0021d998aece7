#include "core/sampler.h"

#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer {

std::unique_ptr<Sampler> make_sampler(const Ring& ring) {
  switch (static_cast<SamplingStrategy>(ring.settings().strategy)) {
    case SamplingStrategy::Prioritized:
      return make_prioritized_sampler(ring);
    case SamplingStrategy::Rank:
      return make_rank_sampler(ring);
    case SamplingStrategy::WithoutReplacement:
      return make_epoch_sampler(ring);
    case SamplingStrategy::Fifo:
      return make_fifo_sampler(ring);
    case SamplingStrategy::Lifo:
      return make_lifo_sampler(ring);
    case SamplingStrategy::Uniform:
      break;
  }
  return make_uniform_sampler(ring);
}

bool Sampler::redraw_many(Random& random, std::span<Pick> picks) {
  for (Pick& pick : picks) {
    pick = {0, Pick::kAny, 1};
    if (!redraw(random, pick, 1)) return false;
  }
  return true;
}

void throw_not_enough(std::size_t wanted, std::size_t there) {
  const std::string held = there == 0 ? "the buffer is empty" : "it holds " + std::to_string(there);
  throw Error(ErrorCode::kNotEnoughRows,
              "cannot sample " + std::to_string(wanted) + " rows: " + held);
}

bool draw_by_count(const Ring& ring, Random& random, Pick& pick) {
  const Blocks& blocks = ring.blocks;
  const std::size_t total = blocks.live_rows();
  if (total == 0) return false;
  std::size_t rank = random.below(total);
  for (std::size_t b = 0; b < blocks.block_count(); ++b) {
    const std::size_t here = blocks.fill(b).committed;
    if (rank >= here) {
      rank -= here;
      continue;
    }
    const std::size_t first = b * blocks.block_rows();
    for (std::size_t slot = first; slot < first + blocks.rows_in(b); ++slot) {
      if (!blocks.live(ring.rows.word(slot).load(std::memory_order_relaxed))) continue;
      if (rank-- == 0) {
        pick = {slot, Pick::kAny, pick.mass};
        return true;
      }
    }
    break;  // rows went while they were counted; the caller tries again
  }
  return true;
}

bool draw_by_scan(const Ring& ring, Random& random, Pick& pick) {
  const Blocks& blocks = ring.blocks;
  const std::size_t capacity = ring.rows.capacity();
  const std::size_t from = random.below(capacity);
  bool writing = false;
  for (std::size_t i = 0; i < capacity; ++i) {
    const std::size_t slot = from + i < capacity ? from + i : from + i - capacity;
    const std::uint64_t word = ring.rows.word(slot).load(std::memory_order_relaxed);
    if (blocks.live(word)) {
      // The queue gives out what it took: there it is the sampler that goes on.
      if (ring.settings().strategy != static_cast<std::uint32_t>(SamplingStrategy::Fifo)) {
        pick = {slot, Pick::kAny, 1};
      }
      return true;
    }
    const bool begun = (word & 3) == static_cast<std::uint64_t>(RowState::kWriting);
    writing |= begun && blocks.open(slot / blocks.block_rows());
  }
  return writing;
}

}  // namespace replay_buffer
