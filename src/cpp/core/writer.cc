#include "core/writer.h"

#include <algorithm>

#include "os/crash_point.h"

namespace replay_buffer {

void Writer::append(std::size_t n, const std::byte* const* columns, const float* raws,
                    std::int64_t* ids, const Mark* marks, const Packed* packed) {
  if (ring_.rows.has_arenas()) [[unlikely]] {
    Packed own;
    if (packed == nullptr) own.pack(ring_.layout(), n, columns);
    append_packed(n, columns, raws, ids, marks, packed != nullptr ? *packed : own);
  } else {
    for (std::size_t done = 0; done < n;) {
      begin();
      const std::size_t run = std::min(n - done, claim_.rows - cursor_);
      write_run<false>(run, columns, done, raws, ids, marks, nullptr);
      done += run;
      if (cursor_ == claim_.rows) seal();  // nobody has to go around a block that is full
    }
  }
  // clear() may have passed by before the last priorities were there.
  if (ring_.priorities && open_ && ring_.blocks.latest_era() != era_) close();
}

void Writer::append_packed(std::size_t n, const std::byte* const* columns, const float* raws,
                           std::int64_t* ids, const Mark* marks, const Packed& packed) {
  for (std::size_t done = 0; done < n;) {
    begin();
    const std::size_t most = std::min(n - done, claim_.rows - cursor_);
    const std::size_t run = fitting(most, done, packed);
    if (run != 0) write_run<true>(run, columns, done, raws, ids, marks, &packed);
    done += run;
    if (run == most && cursor_ < claim_.rows) continue;
    if (cursor_ < claim_.rows) ring_.blocks.leave(claim_, static_cast<std::uint32_t>(cursor_));
    seal();
  }
  if (packed.bytes_in() == 0) return;
  ring_.counters().bytes_in.fetch_add(packed.bytes_in(), std::memory_order_relaxed);
  ring_.counters().bytes_kept.fetch_add(packed.bytes_kept(), std::memory_order_relaxed);
}

// How many of n rows the block's arena has room for.
std::size_t Writer::fitting(std::size_t n, std::size_t from, const Packed& packed) const {
  std::size_t left = ring_.rows.arena_bytes() - used_;
  std::size_t fit = 0;
  while (fit < n && packed.bytes(from + fit) <= left) left -= packed.bytes(from + fit++);
  return fit;
}

// Before a row is written: takes out the rows behind it, of laps before, that have any of the bytes
// it will get. Rows lie in the arena in the order of their slots. Whoever sees the bytes also sees
// that those rows are gone, through the fence in Rows::write. Returns how many there were.
std::uint32_t Writer::make_room(std::size_t row, std::uint32_t bytes) {
  std::uint32_t gone = 0;
  for (taken_ = std::max(taken_, row + 1); taken_ < claim_.rows; ++taken_) {
    const std::size_t slot = claim_.first_slot + taken_;
    std::atomic<std::uint64_t>& word = ring_.rows.word(slot);
    const std::uint64_t seen = word.load(std::memory_order_relaxed);
    if (!row_committed(seen)) continue;
    if (ring_.rows.extent(slot).first >= used_ + bytes) break;
    if (ring_.priorities) ring_.priorities->drop(slot);
    REPLAY_CRASH_POINT("row.priority_taken");
    word.store(row_word(row_id(seen), RowState::kEmpty), std::memory_order_relaxed);
    REPLAY_CRASH_POINT("row.taken");
    ++gone;
  }
  return gone;
}

void Writer::begin() {
  if (!open_ || cursor_ == claim_.rows || era_ != ring_.blocks.era() ||
      ring_.blocks.too_old(claim_.sequence)) {
    claim();
  }
}

// Rows [from, from + n) of the input, all into the open block.
template <bool kPacked>
void Writer::write_run(std::size_t n, const std::byte* const* columns, std::size_t from,
                       const float* raws, std::int64_t* ids, const Mark* marks,
                       const Packed* packed) {
  const std::size_t first = claim_.first_slot + cursor_;
  const std::uint64_t first_id = claim_.id(cursor_, ring_.rows.capacity());
  std::uint32_t fresh = 0;  // rows that take the place of none
  std::uint32_t gone = 0;   // rows further on whose bytes were needed
  const float most = ring_.priorities && raws == nullptr ? ring_.priorities->max_raw() : 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Mark mark = marks != nullptr ? marks[from + i] : Mark{first_ ? row_flag::kFirst : 0, {}};
    first_ = false;
    if (ring_.priorities) {
      if ((mark.flags & row_flag::kFinal) == 0) {
        ring_.priorities->retire(first + i);
      } else {
        ring_.priorities->drop(first + i);
      }
    }
    REPLAY_CRASH_POINT("row.retired");
    ArenaRoom room;
    if constexpr (kPacked) {
      gone += make_room(cursor_ + i, packed->bytes(from + i));
      room = {packed->values(from + i), used_};
      used_ += packed->bytes(from + i);
    }
    const std::uint64_t before =
        ring_.rows.write(first + i, first_id + i, columns, from + i, mark, room);
    REPLAY_CRASH_POINT("row.committed");
    if (ring_.priorities && (mark.flags & row_flag::kFinal) == 0) {
      ring_.priorities->commit(first + i, claim_.lap, raws != nullptr ? raws[from + i] : most);
    }
    if (!row_committed(before)) ++fresh;
    if (ids != nullptr) ids[from + i] = static_cast<std::int64_t>(first_id + i);
  }
  cursor_ += n;
  REPLAY_CRASH_POINT("row.weighed");
  if constexpr (kPacked) {
    ring_.blocks.count(claim_.block, static_cast<std::uint32_t>(n), fresh, gone);
  } else {
    ring_.blocks.count(claim_.block, static_cast<std::uint32_t>(n), fresh);
  }
  // Writers of steps share their owner's line; the writer of add() is alone in it.
  std::atomic<std::uint64_t>& added = ring_.segment->owners()[me_.owner].rows_added;
  if (marks != nullptr) {
    added.fetch_add(n, std::memory_order_relaxed);
  } else {
    added.store(added.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  REPLAY_CRASH_POINT("row.counted");
  if (ring_.priorities) {
    const std::size_t changed = std::max(first + n, gone != 0 ? claim_.first_slot + taken_ : 0);
    ring_.priorities->tree().refresh_range(first, changed - first);
  }
  REPLAY_CRASH_POINT("row.done");
}

void Writer::claim() {
  const std::uint64_t last = claim_.sequence;
  if (era_ != ring_.blocks.era()) {
    close();
  } else {
    seal();
  }
  era_ = ring_.blocks.era();
  claim_ = ring_.blocks.claim(me_, reaper_);
  cursor_ = taken_ = 0;
  used_ = 0;
  open_ = true;
  if (linked_) {
    ring_.blocks.link(last, claim_);
  } else {
    ++chain_;
    linked_ = first_ = true;
  }
  if (era_ != 0 && reaper_ != nullptr && ring_.blocks.outdated(claim_.block)) {
    reaper_->renew(claim_.block, claim_.lap);
  }
  if (ring_.rows.has_links()) forget_older_laps();
}

// A block knows the way from its rows of two laps. Where the lap before this one was not filled,
// rows of the lap before that are left, which nobody could go on from.
void Writer::forget_older_laps() {
  const std::uint64_t before =
      ring_.segment->blocks()[claim_.block].before.load(std::memory_order_relaxed);
  const std::uint64_t oldest = before >> 32;
  if (oldest == 0 || (before & 0xffffffff) >= claim_.rows) return;
  Fill fill = ring_.blocks.fill(claim_.block);
  for (std::size_t slot = claim_.first_slot; slot < claim_.first_slot + claim_.rows; ++slot) {
    std::atomic<std::uint64_t>& word = ring_.rows.word(slot);
    const std::uint64_t seen = word.load(std::memory_order_relaxed);
    if (!row_committed(seen) || row_id(seen) / ring_.rows.capacity() + 1 >= oldest) continue;
    if (ring_.priorities) ring_.priorities->drop(slot);
    word.store(row_word(row_id(seen), RowState::kEmpty), std::memory_order_relaxed);
    --fill.committed;
  }
  ring_.blocks.set_fill(claim_.block, fill);
  if (ring_.priorities) {
    ring_.priorities->tree().refresh_range(claim_.first_slot, claim_.rows);
  }
}

bool Writer::resume(const Room& room) {
  era_ = ring_.blocks.era();
  const std::optional<Claim> claim = ring_.blocks.reclaim(room.claim, me_, room.open != 0);
  if (!claim) return false;
  claim_ = *claim;
  open_ = true;
  // One that its writer left early may be linked to another of that writer any time.
  if (ring_.rows.has_arenas() && ring_.blocks.left_after(room.claim) != claim_.rows) {
    seal();
    return false;
  }
  cursor_ = taken_ = ring_.blocks.written(claim_.sequence);
  used_ = 0;
  for (std::size_t row = 0; row < cursor_ && ring_.rows.has_arenas(); ++row) {
    const std::uint64_t word =
        ring_.rows.word(claim_.first_slot + row).load(std::memory_order_relaxed);
    if (!row_committed(word)) continue;
    used_ = std::max(used_, ring_.rows.extent(claim_.first_slot + row).second);
  }
  linked_ = first_ = true;
  ++chain_;
  return true;
}

void Writer::close() {
  seal();
  linked_ = false;
}

void Writer::seal() {
  if (!open_) return;
  open_ = false;
  ring_.blocks.seal(claim_);
  // clear() left this block to us.
  if (ring_.blocks.latest_era() != era_ && reaper_ != nullptr) {
    reaper_->renew_sealed(claim_.block, me_);
  }
}

}  // namespace replay_buffer
