#include "core/streams.h"

namespace replay_buffer {

bool Streams::far_across(const Place& from, std::uint64_t distance, std::uint64_t& slot,
                         std::uint64_t& id) const {
  if (distance == 0) return false;
  const Blocks& blocks = ring_.blocks;
  std::uint64_t sequence = sequence_of(from);
  std::uint64_t offset = from.slot % block_rows_ + distance;
  for (;;) {
    // Where the writer went on is asked first: how many rows it left behind is certain then.
    std::uint64_t on = sequence;
    const bool left = blocks.after(on);
    const std::uint64_t all = blocks.rows_in(sequence % blocks.block_count());
    const std::uint64_t rows = left ? rows_of(sequence) : all;
    if (offset < rows) {
      locate(sequence, offset, slot, id);
      return true;
    }
    if (!left || rows == 0) return false;
    offset -= rows;
    sequence = on;
  }
}

bool Streams::previous_block(const Place& from, std::uint64_t distance, Place& to) const {
  const Blocks& blocks = ring_.blocks;
  std::uint64_t sequence = sequence_of(from);
  std::uint64_t offset = from.slot % block_rows_;
  while (distance > offset) {
    if (!blocks.before(sequence)) return false;
    const std::uint64_t rows = rows_of(sequence);
    if (rows == 0) return false;
    offset += rows;
  }
  std::uint64_t slot = 0;
  std::uint64_t id = 0;
  locate(sequence, offset - distance, slot, id);
  return found(slot, id, to);
}

}  // namespace replay_buffer
