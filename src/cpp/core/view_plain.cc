// Transitions of n steps, many at once: of all of them the next row is found before of any the one
// after that, so that the rows of one step are on their way into the cache together.
#include <algorithm>
#include <cstring>

#include "core/view.h"

namespace replay_buffer {

struct View::Run {
  std::size_t n = 0;
  Place* rows = nullptr;      // n for each step: rows[t * n + i]
  std::uint64_t ends[kRun];   // of the blocks of the last rows found
  std::uint32_t count[kRun];  // steps taken
  bool terminated[kRun];
  bool easy[kRun];  // the rows found are ordinary steps
  std::size_t active = 0;
  std::uint32_t items[kRun];  // those that are taken on one by one

  Place& row(std::size_t t, std::size_t i) const { return rows[t * n + i]; }
};

// Finds row `t + 1` of an item where that is not in the block of row `t`.
__attribute__((noinline)) bool View::cross(Run& run, std::size_t t, std::size_t i) const {
  const Place& row = run.row(t, i);
  Place& to = run.row(t + 1, i);
  std::uint64_t id = 0;
  if (!streams_.across(row, streams_.link(row).ahead, to.slot, id)) return false;
  to.word = row_word(id, RowState::kCommitted);
  run.ends[i] = streams_.block_end(to.slot);
  return true;
}

void View::begin(Run& run, std::span<const Pick> picks) const {
  const Rows::Heads heads = ring_.rows.heads();
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  const std::uint64_t capacity = ring_.rows.capacity();
  for (std::size_t i = 0; i < run.n; ++i) {
    const std::uint64_t slot = picks[i].slot;
    const std::uint64_t word = heads.word(slot, std::memory_order_acquire);
    const Place start{slot, picks[i].is(word, oldest, capacity) ? word : 0};
    run.rows[i] = start;
    run.count[i] = 0;
    run.terminated[i] = false;
    run.ends[i] = streams_.block_end(slot);
    run.easy[i] = start.word != 0 && !start.has(row_flag::kFinal | row_flag::kEnded);
  }
}

// Takes items all the way where that is easy: every row but the start is an ordinary step. The
// others become active.
void View::leap(Run& run) const {
  const Rows rows = ring_.rows;
  const Rows::Heads heads = rows.heads();
  const std::size_t n = run.n;
  std::size_t left = n;
  std::size_t t = 0;
  for (; t < longest_ && left > 0; ++t) {
    const Place* const from = run.rows + t * n;
    Place* const to = run.rows + (t + 1) * n;
    left = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t slot = from[i].slot;
      const std::uint64_t word = from[i].word;
      // What a row says counts if it was there before it was read.
      const bool there = t == 0 || heads.word(slot, std::memory_order_acquire) == word;
      const std::uint64_t distance = heads.link(slot).ahead;
      const std::uint64_t next = slot + distance;
      bool easy = there && distance != 0 && run.easy[i];
      to[i] = {next, row_word(row_id(word) + distance, RowState::kCommitted)};
      if (next >= run.ends[i]) [[unlikely]]
        easy = easy && cross(run, t, i);
      if (!easy) [[unlikely]]
        to[i].slot = slot;
      run.easy[i] = easy;
      left += easy ? 1 : 0;
      rows.prefetch(to[i].slot);
    }
  }
  const Place* const last = run.rows + t * n;
  for (std::size_t i = 0; i < n; ++i) {
    if (run.easy[i] && heads.word(last[i].slot, std::memory_order_acquire) == last[i].word)
        [[likely]] {
      run.count[i] = static_cast<std::uint32_t>(longest_);
    } else {
      run.items[run.active++] = static_cast<std::uint32_t>(i);
    }
  }
}

// Takes the active items on from their start, as far as they go.
template <bool steps>
void View::advance(Run& run) const {
  for (std::size_t t = 0; t < longest_ && run.active > 0; ++t) {
    std::size_t going = 0;
    for (std::size_t a = 0; a < run.active; ++a) {
      const std::uint32_t i = run.items[a];
      const Place& row = run.row(t, i);
      Place to{};
      bool terminated = false;
      if (row.word == 0 || row.has(row_flag::kFinal)) continue;  // no start
      const bool end = ended(row, terminated);
      if (!steps) {  // the row has what came after it
        ++run.count[i];
        run.terminated[i] = terminated;
        if (end || run.count[i] == spec_.steps) continue;
      }
      if (!streams_.next(row, to) || to.has(row_flag::kFirst)) continue;
      run.row(t + 1, i) = to;
      if (steps) {
        ++run.count[i];
        run.terminated[i] = terminated;
        if (end || to.has(row_flag::kFinal)) continue;
      }
      run.items[going++] = i;
    }
    run.active = going;
  }
}

void View::make_plain(std::span<const Pick> picks, const ViewBatch& batch, std::size_t at,
                      Window& window, std::uint8_t* failed) const {
  Run run;
  run.n = picks.size();
  window.rows.resize((longest_ + 1) * run.n);
  run.rows = window.rows.data();
  begin(run, picks);
  const bool steps = ring_.layout().has_steps();
  if (steps) leap(run);
  for (std::size_t i = 0; i < run.n && !steps; ++i) {
    run.items[run.active++] = static_cast<std::uint32_t>(i);
  }
  steps ? advance<true>(run) : advance<false>(run);
  copy_plain(run, batch, at);
  check(run, failed);
}

// Whether all rows of items were whole while they were read.
void View::check(const Run& run, std::uint8_t* failed) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  const Rows::Heads heads = ring_.rows.heads();
  const std::size_t further = ring_.layout().has_steps() ? 1 : 0;
  const std::size_t most = further + *std::max_element(run.count, run.count + run.n);
  for (std::size_t i = 0; i < run.n; ++i) {
    // In the place of rows that an item does not have stands its start.
    for (std::size_t t = std::max<std::size_t>(1, run.count[i] + further); t < most; ++t) {
      run.row(t, i) = run.rows[i];
    }
  }
  std::uint64_t changed[kRun] = {};
  for (std::size_t t = 0; t < most; ++t) {
    const Place* const rows = run.rows + t * run.n;
    for (std::size_t i = 0; i < run.n; ++i) {
      changed[i] |= heads.word(rows[i].slot, std::memory_order_relaxed) ^ rows[i].word;
    }
  }
  for (std::size_t i = 0; i < run.n; ++i) failed[i] = run.count[i] > 0 && changed[i] == 0 ? 0 : 1;
}

// Of an item that was not made it copies what is there.
void View::copy_plain(const Run& run, const ViewBatch& batch, std::size_t at) const {
  const std::size_t n = run.n;
  std::uint64_t start[kRun];
  std::uint64_t last[kRun];
  std::uint64_t after[kRun];
  const std::size_t further = ring_.layout().has_steps() ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t k = run.count[i];
    start[i] = run.rows[i].slot;
    last[i] = k == 0 ? start[i] : run.row(k - 1, i).slot;
    after[i] = k == 0 ? start[i] : run.row(k - 1 + further, i).slot;
    batch.ids[at + i] = static_cast<std::int64_t>(run.rows[i].id());
  }
  const auto gather = [&](const Output& output, const std::uint64_t* slots) {
    ring_.rows.gather_column(static_cast<std::size_t>(output.column), std::span(slots, n),
                             output.to, at);
  };
  for (const Output& output : batch.outputs) {
    switch (output.role) {
      case Role::kNext:
        gather(output, after);
        break;
      case Role::kLast:
        gather(output, last);
        break;
      case Role::kReturn:
        copy_returns(
            output, n, at, [&](std::size_t i) { return run.count[i]; },
            [&](std::size_t i, std::size_t t) { return run.row(t, i).slot; });
        break;
      case Role::kCount:
        std::memcpy(output.to + at * sizeof(run.count[0]), run.count, n * sizeof(run.count[0]));
        break;
      case Role::kDiscount:
        for (std::size_t i = 0; i < n; ++i) {
          const float discount = run.terminated[i] ? 0.0F : discounts_[run.count[i]];
          std::memcpy(output.to + (at + i) * sizeof(discount), &discount, sizeof(discount));
        }
        break;
      default:
        if (output.column >= 0) gather(output, start);
        break;
    }
  }
}

}  // namespace replay_buffer
