#include "core/recent.h"

namespace replay_buffer {

Recent::Recent(const Ring& ring) : ring_(ring), sequence_(ring.blocks.head() + 1) {
  // A block that a live writer keeps open over a lap still holds rows of the lap before.
  const std::uint64_t reach = 3 * ring.blocks.count();
  const std::uint64_t head = ring.blocks.head();
  const std::uint64_t era = ring.blocks.era();
  oldest_ = head - era > reach ? head - reach : era;
}

bool Recent::enter_block() {
  if (sequence_ <= oldest_ + 1) return false;
  --sequence_;
  const std::uint64_t s = sequence_ - 1;
  // The blocks of the last lap are filled so far; of an older one every row may still be there.
  const bool filling = ring_.blocks.head() - s <= ring_.blocks.count();
  rows_left_ = filling ? ring_.blocks.written(s) : ring_.blocks.rows_in(s % ring_.blocks.count());
  return true;
}

bool Recent::next(std::size_t& slot, std::uint32_t& lap) {
  for (;;) {
    while (rows_left_ == 0) {
      if (!enter_block()) return false;
    }
    --rows_left_;
    const std::uint64_t s = sequence_ - 1;
    const std::size_t at = (s % ring_.blocks.count()) * ring_.blocks.block_rows() + rows_left_;
    const std::uint32_t wanted = ring_.blocks.lap_of(s);
    const std::uint64_t word = ring_.rows.word(at).load(std::memory_order_acquire);
    if (!row_committed(word) || row_id(word) / ring_.rows.capacity() + 1 != wanted) continue;
    slot = at;
    lap = wanted;
    return true;
  }
}

}  // namespace replay_buffer
