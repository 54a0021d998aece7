#include "core/room.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>

#include "core/buffer.h"

namespace replay_buffer {

std::vector<Room> open_room(const Ring& ring, const Owners& owners) {
  const Blocks& blocks = ring.blocks;
  std::vector<Room> open;
  for (std::size_t b = 0; b < blocks.block_count(); ++b) {
    const BlockWord held =
        BlockWord::unpack(ring.segment->blocks()[b].word.load(std::memory_order_acquire));
    if (held.state != BlockState::kOpen || held.lap == 0) continue;
    if (owners.dead({held.owner, held.epoch})) continue;
    open.push_back({(std::uint64_t{held.lap} - 1) * blocks.block_count() + b, 1});
  }
  std::sort(open.begin(), open.end(), [](Room a, Room b) { return a.claim < b.claim; });
  return open;
}

std::size_t streams_before(const Ring& ring, std::uint64_t sequence) {
  const Blocks& blocks = ring.blocks;
  constexpr std::uint64_t kFarthest = std::numeric_limits<decltype(Link::ahead)>::max();
  std::size_t needed = 0;
  std::uint64_t back = 0;  // rows from where the new writer begins
  for (std::size_t rows = blocks.written(sequence); rows != 0;) {
    const std::size_t b = sequence % blocks.block_count();
    const std::size_t first = b * blocks.block_rows();
    while (rows-- > 0 && ++back <= kFarthest) {
      const std::uint64_t word = ring.rows.word(first + rows).load(std::memory_order_relaxed);
      if (!row_committed(word) || blocks.lap_of_id(row_id(word)) != blocks.lap_of(sequence))
        continue;
      const std::uint64_t ahead = ring.rows.link(first + rows).ahead;
      if (ahead >= back) needed = std::max<std::size_t>(needed, ahead - back + 1);
    }
    if (back > kFarthest || !blocks.before(sequence)) break;
    rows = blocks.left_after(sequence);
  }
  return needed;
}

std::vector<Room> Buffer::room() {
  if (layout().has_steps()) return unfilled_.all();
  const std::lock_guard guard(lock_);
  const std::optional<std::uint64_t> own = writer_.unfilled();
  if (!own || generation_ != os::fork_generation()) return {};
  return {{*own, 1}};
}

void Buffer::resume(std::span<const Room> room) {
  check_writable();
  if (layout().has_steps()) {
    for (const Room& one : room) unfilled_.put(one, streams_before(ring_, one.claim));
    return;
  }
  const std::lock_guard guard(lock_);
  if (!writer_.unfilled() && !room.empty()) writer_.resume(room.back());
}

}  // namespace replay_buffer
