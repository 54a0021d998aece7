#include "core/recent.h"

#include <algorithm>

namespace replay_buffer {
namespace {

// 0 for a row that is not committed, and for one whose id belongs to no lap of this slot.
std::uint32_t committed_lap(const Ring& ring, std::size_t slot) {
  const std::uint64_t word = ring.rows.word(slot).load(std::memory_order_relaxed);
  if (!ring.blocks.live(word)) return 0;
  if (row_id(word) % ring.rows.capacity() != slot) return 0;
  return ring.blocks.lap_of_id(row_id(word));
}

// Rows that blocks claimed since `head - count` hold of that claim's lap: block after block back
// from the head, and in each back from the row written last.
void walk_last_lap(const Ring& ring, std::uint64_t head, std::size_t n, std::vector<Recent>& rows) {
  const Blocks& blocks = ring.blocks;
  const std::uint64_t reach = std::min<std::uint64_t>(head - blocks.era(), blocks.block_count());
  for (std::uint64_t s = head; s-- > head - reach && rows.size() < n;) {
    const std::size_t first = s % blocks.block_count() * blocks.block_rows();
    for (std::size_t row = blocks.written(s); row-- > 0 && rows.size() < n;) {
      if (committed_lap(ring, first + row) == blocks.lap_of(s))
        rows.push_back({first + row, blocks.lap_of(s)});
    }
  }
}

// What a block holds of laps before its newest claim: rows not yet overwritten, or of a writer that
// keeps its block while the others go round.
void add_older(const Ring& ring, std::uint64_t head, std::size_t n, std::vector<Recent>& rows) {
  const Blocks& blocks = ring.blocks;
  const std::size_t found = rows.size();
  for (std::size_t b = 0; b < blocks.block_count(); ++b) {
    if (blocks.fill(b).committed == 0) continue;
    // The last sequence number of this block before the head, and its lap.
    const std::uint64_t lap =
        head / blocks.block_count() + (b < head % blocks.block_count() ? 1 : 0);
    for (std::size_t row = 0; row < blocks.rows_in(b); ++row) {
      const std::uint32_t held = committed_lap(ring, b * blocks.block_rows() + row);
      if (held != 0 && held < lap) rows.push_back({b * blocks.block_rows() + row, held});
    }
  }
  const auto newer = [](const Recent& x, const Recent& y) {
    return x.lap != y.lap ? x.lap > y.lap : x.slot > y.slot;
  };
  std::sort(rows.begin() + static_cast<std::ptrdiff_t>(found), rows.end(), newer);
  if (rows.size() > n) rows.resize(n);
}

}  // namespace

std::vector<Recent> newest_rows(const Ring& ring, std::size_t n) {
  constexpr int kTries = 100;
  std::vector<Recent> rows;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::uint64_t head = ring.blocks.claimed();
    rows.clear();
    walk_last_lap(ring, head, n, rows);
    if (rows.size() < n) add_older(ring, head, n, rows);
    // Short because the ring was lapped on the way: look again from where the head is now.
    if (rows.size() >= n || ring.blocks.claimed() == head) break;
  }
  return rows;
}

}  // namespace replay_buffer
