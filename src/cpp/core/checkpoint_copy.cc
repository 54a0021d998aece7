#include "core/checkpoint_copy.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <span>

#include "os/cpu.h"
#include "segment/checksum.h"

namespace replay_buffer::checkpoint {
namespace {

// How often a row is looked at again that somebody is writing. A writer takes microseconds; one
// that takes longer is stopped or dead, and its row was never acknowledged.
constexpr int kPatience = 20'000;

std::uint64_t digest_of(const std::vector<std::uint64_t>& words) {
  return long_checksum64(std::as_bytes(std::span(words)));
}

bool settled(std::uint64_t word) {
  return (word & 3) != static_cast<std::uint64_t>(RowState::kWriting);
}

}  // namespace

BlockCopier::BlockCopier(const Ring& ring)
    : ring_(ring), owners_(*ring.segment), shape_(ring.layout()) {}

// Rows of the block up to the last that anybody ever began to write.
std::size_t BlockCopier::written_rows(std::size_t block) const {
  const std::size_t first = block * ring_.blocks.block_rows();
  std::size_t n = ring_.blocks.rows_in(block);
  while (n > 0 && ring_.rows.word(first + n - 1).load(std::memory_order_relaxed) == 0) --n;
  return n;
}

void BlockCopier::load_words(std::size_t first, std::size_t n) {
  words_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    words_[i] = ring_.rows.word(first + i).load(std::memory_order_acquire);
  }
}

// Rows of an era past stay behind when the checkpoint is restored.
void BlockCopier::count_live() {
  live_ = static_cast<std::uint64_t>(std::count_if(
      words_.begin(), words_.end(), [&](std::uint64_t word) { return ring_.blocks.live(word); }));
}

bool BlockCopier::same_words(std::size_t first, std::size_t n) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  for (std::size_t i = 0; i < n; ++i) {
    if (ring_.rows.word(first + i).load(std::memory_order_relaxed) != words_[i]) return false;
  }
  return true;
}

// The priority of a row whose word is known. False when the row has none: it is on its way, or the
// row is gone.
bool BlockCopier::weighed(std::size_t slot, std::uint64_t word, float& raw) const {
  raw = 0;
  if (ring_.layout().is_queue()) {
    const auto seen =
        GivenBack::unpack(ring_.segment->given_back()[slot].load(std::memory_order_relaxed));
    if (row_committed(word) && seen.lap == lap_of(word)) raw = std::bit_cast<float>(seen.draws);
    return true;
  }
  if (!ring_.priorities || !row_weighed(word)) return true;
  const PriorityWord priority = ring_.priorities->of(slot);
  if (priority.lap != lap_of(word)) return false;
  raw = priority.raw;
  return true;
}

// Whether a live writer is about to write over the row: it takes the priority away first. Where
// that writer is dead the row stays, and is mended with the largest priority.
bool BlockCopier::being_overwritten(std::size_t slot, std::uint64_t word) const {
  const Block& block = ring_.segment->blocks()[slot / ring_.blocks.block_rows()];
  const BlockWord held = BlockWord::unpack(block.word.load(std::memory_order_acquire));
  return held.state == BlockState::kOpen && held.lap > lap_of(word) &&
         !owners_.dead({held.owner, held.epoch});
}

bool BlockCopier::unchanged(std::size_t block, const BlockEntry& last) {
  const std::size_t first = block * ring_.blocks.block_rows();
  const std::size_t n = written_rows(block);
  if (n != last.rows) return false;
  load_words(first, n);
  if (n != 0 && digest_of(words_) != last.digest) return false;
  raws_.assign(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (!weighed(first + i, words_[i], raws_[i])) return false;
  }
  count_live();
  return same_words(first, n);
}

BlockEntry BlockCopier::copy(std::size_t block, const Room& room, const Done& done) {
  const std::size_t first = block * ring_.blocks.block_rows();
  BlockEntry entry{};
  entry.rows = written_rows(block);
  load_words(first, entry.rows);
  raws_.assign(entry.rows, 0);
  live_ = 0;
  if (entry.rows == 0) return entry;
  // A block that was cleared has nothing to tell but which ids were given.
  const bool empty = std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) {
    return settled(word) && !row_committed(word);
  });
  if (empty && same_words(first, entry.rows)) {
    const std::size_t bytes = entry.rows * sizeof(std::uint64_t);
    std::memcpy(room(bytes), words_.data(), bytes);
    done(bytes);
    entry.kind = BlockKind::kWords;
  } else if (ring_.rows.has_arenas()) {
    copy_whole(block, entry.rows, room, done);
    entry.kind = BlockKind::kRows;
  } else {
    for (std::size_t at = 0; at < entry.rows; at += shape_.chunk_rows) {
      const std::size_t n = std::min<std::size_t>(shape_.chunk_rows, entry.rows - at);
      std::byte* to = room(n * shape_.row_bytes);
      copy_chunk(first + at, n, at, to);
      done(n * shape_.row_bytes);
    }
    entry.kind = BlockKind::kRows;
  }
  entry.digest = digest_of(words_);
  count_live();
  return entry;
}

// A block with an arena: rows and arena are copied together, and kept are the rows that were there
// all the time. Those have their bytes side by side in the arena, as they have in the copy. A row
// that was written or overwritten meanwhile need not be in a checkpoint.
void BlockCopier::copy_whole(std::size_t block, std::size_t n, const Room& room, const Done& done) {
  const std::size_t first = block * ring_.blocks.block_rows();
  rows_.resize(n * shape_.row_bytes);
  const auto each_chunk = [&](auto&& visit) {
    for (std::size_t at = 0; at < n; at += shape_.chunk_rows) {
      visit(at, std::min<std::size_t>(shape_.chunk_rows, n - at),
            rows_.data() + at * shape_.row_bytes);
    }
  };
  load_words(first, n);
  each_chunk([&](std::size_t at, std::size_t some, std::byte* to) {
    copy_sections(first + at, 0, some, some, to);
  });
  std::uint32_t used = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (row_committed(words_[i])) used = std::max(used, ring_.rows.extent(first + i).second);
  }
  arena_.resize(used);
  copy_shared(arena_.data(), ring_.segment->arena(block), used);
  for (std::size_t i = 0; i < n; ++i) {
    const bool own = settled(words_[i]) && settle_priority(first + i, words_[i], raws_[i]);
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
    if (own && ring_.rows.word(first + i).load(std::memory_order_relaxed) == words_[i]) continue;
    words_[i] = row_word(row_id(words_[i]), RowState::kEmpty);
    raws_[i] = 0;
  }
  each_chunk([&](std::size_t at, std::size_t some, std::byte* from) {
    for (std::size_t i = 0; i < some; ++i) {
      std::memcpy(from + i * shape_.sections[0].stride, &words_[at + i], sizeof(std::uint64_t));
    }
    const std::size_t bytes = some * shape_.row_bytes;
    std::memcpy(room(bytes), from, bytes);
    done(bytes);
  });
  if (used == 0) return;
  std::memcpy(room(used), arena_.data(), used);
  done(used);
}

// The priority of a row, when it has one or will have, however long that takes a live writer. False
// when the row is about to be overwritten, or was.
bool BlockCopier::settle_priority(std::size_t slot, std::uint64_t word, float& raw) const {
  for (int i = 0; i < kPatience; ++i) {
    if (weighed(slot, word, raw)) return true;
    if (ring_.rows.word(slot).load(std::memory_order_relaxed) != word) return false;
    os::cpu_relax();
  }
  if (being_overwritten(slot, word)) return false;
  raw = ring_.priorities->max_raw();
  return true;
}

// Rows [row, row + n) of a chunk of `rows`, which begins at `slot`.
void BlockCopier::copy_sections(std::size_t slot, std::size_t row, std::size_t n, std::size_t rows,
                                std::byte* to) const {
  for (const Section& section : shape_.sections) {
    copy_shared(to + row * section.stride,
                ring_.segment->base() + section.base + (slot + row) * section.stride,
                n * section.stride);
    to += rows * section.stride;
  }
}

// All rows at once; those that changed meanwhile, again by themselves.
void BlockCopier::copy_chunk(std::size_t slot, std::size_t n, std::size_t at, std::byte* to) {
  for (std::size_t i = 0; i < n; ++i) {
    words_[at + i] = ring_.rows.word(slot + i).load(std::memory_order_acquire);
  }
  copy_sections(slot, 0, n, n, to);
  std::vector<std::size_t> again;
  for (std::size_t i = 0; i < n; ++i) {
    if (!settled(words_[at + i]) || !weighed(slot + i, words_[at + i], raws_[at + i])) {
      again.push_back(i);
    }
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  for (std::size_t i = 0; i < n; ++i) {
    if (ring_.rows.word(slot + i).load(std::memory_order_relaxed) != words_[at + i]) {
      again.push_back(i);
    }
  }
  for (const std::size_t i : again) copy_row(slot, i, n, at, to);
  // In the piece stand the words that were accepted.
  const std::size_t stride = shape_.sections[0].stride;
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(to + i * stride, &words_[at + i], sizeof(std::uint64_t));
  }
}

void BlockCopier::copy_row(std::size_t slot, std::size_t row, std::size_t rows, std::size_t at,
                           std::byte* to) {
  const std::atomic<std::uint64_t>& word = ring_.rows.word(slot + row);
  std::uint64_t seen = 0;
  float raw = 0;
  for (int i = 0; i < kPatience; ++i) {
    seen = word.load(std::memory_order_acquire);
    if (settled(seen)) {
      copy_sections(slot, row, 1, rows, to);
      bool own = weighed(slot + row, seen, raw);
      if (!own && i + 1 == kPatience && !being_overwritten(slot + row, seen)) {
        raw = ring_.priorities->max_raw();
        own = true;
      }
      std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
      if (own && word.load(std::memory_order_relaxed) == seen) {
        words_[at + row] = seen;
        raws_[at + row] = raw;
        return;
      }
    }
    os::cpu_relax();
  }
  words_[at + row] = row_word(row_id(seen), RowState::kEmpty);
  raws_[at + row] = 0;
}

// A claim changes the block's word first and its fill last. While both keep their laps, what lies
// between does not change, or its claim has stopped in the middle and is completed here.
void BlockCopier::describe(std::size_t b, BlockEntry& entry) const {
  const Block& block = ring_.segment->blocks()[b];
  const auto lap = [&](std::memory_order order) {
    return BlockWord::unpack(block.word.load(order)).lap;
  };
  Fill fill{};
  do {
    entry.lap = lap(std::memory_order_acquire);
    fill = ring_.blocks.fill(b);
    entry.before = block.before.load(std::memory_order_relaxed);
    for (std::size_t l = 0; l < 2; ++l) {
      // Pairs with the release in begin_lap(): a lap's links are not those of another.
      entry.taken[l] = block.laps[l].taken.load(std::memory_order_acquire);
      entry.back[l] = block.laps[l].back.load(std::memory_order_relaxed);
      entry.on[l] = block.laps[l].on.load(std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Blocks::claim
  } while (lap(std::memory_order_relaxed) != entry.lap || ring_.blocks.fill(b).lap != fill.lap);
  if (fill.lap == static_cast<std::uint16_t>(entry.lap)) return;
  // What Blocks::begin_lap() has not done yet.
  const auto ago = static_cast<std::uint16_t>(entry.lap - fill.lap);
  entry.before = (std::uint64_t{entry.lap - ago} << 32) | fill.written;
  if (entry.taken[0] >> 32 == entry.lap || entry.taken[1] >> 32 == entry.lap) return;
  const std::size_t older = entry.taken[0] > entry.taken[1] ? 1 : 0;
  entry.back[older] = entry.on[older] = entry.taken[older] = std::uint64_t{entry.lap} << 32;
}

}  // namespace replay_buffer::checkpoint
