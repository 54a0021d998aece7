// Transitions of n steps, many at once.
//
// Of all items of a run the next row is found before of any the one after that, so that the rows of
// one step are on their way into the cache together; and runs go their way one step behind the
// other. Most rows are ordinary steps in the block of the row before: those are looked at in short
// loops, everything else by itself (turn).
#include <algorithm>
#include <cstring>

#include "core/view.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kUnderWay = 4;  // runs at a time

}  // namespace

// Some of the items of a batch.
struct View::Run {
  std::size_t at = 0;  // place of the first in the batch
  std::size_t n = 0;
  std::size_t depth = 0;                  // rows that were looked at, of each item
  std::size_t stopped = 0;                // items that have fewer steps than there might be
  bool odd = false;                       // there are such, or some that end with the last of them
  Window::Level* levels = nullptr;        // the rows of all items, one step each
  std::size_t returns = 0;                // numbers that a return has, if the batch has returns
  double* totals = nullptr;               // of the rewards so far
  const std::byte* ends[Window::kLevel];  // of the blocks of the last rows found
  std::uint32_t count[Window::kLevel];    // steps of the items

  // An item has so many steps, as its row `t` shows. It then goes its way again from the start.
  void stop(std::size_t t, std::size_t i, std::size_t steps) {
    if (steps < count[i]) {
      ++stopped;
      count[i] = static_cast<std::uint32_t>(steps);
    }
    odd = true;
    restart(t + 1, i);
  }
  void restart(std::size_t t, std::size_t i) const {
    levels[t].records[i] = levels[0].records[i];
    levels[t].words[i] = levels[0].words[i];
  }
};

void View::put(Run& run, std::size_t t, std::size_t i, const Place& row) const {
  run.levels[t].records[i] = ring_.rows.record(row.slot);
  run.levels[t].words[i] = row.word;
  run.ends[i] = ring_.rows.record(streams_.block_end(row.slot));
}

Place View::place_of(const Run& run, std::size_t t, std::size_t i) const {
  return {ring_.rows.slot_of(run.levels[t].records[i]), run.levels[t].words[i]};
}

void View::begin(Run& run, std::span<const Pick> picks, const ViewBatch& batch) const {
  // Copies, because what is written could be these for all the compiler knows.
  const Rows rows = ring_.rows;
  const Streams streams = streams_;
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  Window::Level& level = run.levels[0];
  std::int64_t* const ids = batch.ids + run.at;
  const auto longest = static_cast<std::uint32_t>(longest_);
  std::size_t starts = 0;
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const std::uint64_t slot = picks[i].slot;
    const std::byte* const record = rows.record(slot);
    const std::uint64_t word = word_at(record, std::memory_order_acquire);
    const bool start = picks[i].is(word, oldest, rows.capacity()) && row_weighed(word);
    level.records[i] = record;
    level.words[i] = word;
    run.ends[i] = rows.record(streams.block_end(slot));
    run.count[i] = start ? longest : 0;
    starts += start ? 1 : 0;
    ids[i] = static_cast<std::int64_t>(row_id(word));
  }
  run.stopped = run.n - starts;
  run.odd = run.stopped > 0;
}

// Row `t` of an item may not be the ordinary step it was taken for, or be the last in its block:
// finds out, and where the item goes on.
__attribute__((noinline)) void View::turn(Run& run, std::size_t t, std::size_t i) const {
  const bool steps = ring_.layout().has_steps();
  Place row = place_of(run, t, i);
  if (ring_.rows.word(row.slot).load(std::memory_order_acquire) != row.word) {
    const Place before = place_of(run, t > 0 ? t - 1 : 0, i);
    if (t == 0 || run.count[i] < longest_ || !streams_.next(before, row) ||
        row.has(row_flag::kFirst)) {
      run.restart(t, i);
      return run.stop(t, i, steps && t > 0 ? t - 1 : t);
    }
    put(run, t, i, row);
    run.odd = true;
    if (steps && (row.has(row_flag::kFinal) || before.has(row_flag::kEnded)))
      return run.stop(t, i, t);
  }
  bool terminated = false;
  if (!steps && ended(row, terminated)) return run.stop(t, i, t + 1);
  const std::uint64_t distance = streams_.link(row).ahead;
  std::uint64_t slot = row.slot + distance;
  std::uint64_t id = row.id() + distance;
  if (distance == 0 || slot >= streams_.block_end(row.slot)) {
    if (!streams_.across(row, distance, slot, id)) return run.stop(t, i, steps ? t : t + 1);
  }
  put(run, t + 1, i, {slot, row_word(id, RowState::kCommitted)});
}

// Looks at one row of each item and finds the next. In the loop nothing is called: it has few
// enough variables for all of them to stay in registers.
template <bool steps>
void View::look(Run& run) const {
  const Rows rows = ring_.rows;
  const std::size_t stride = rows.record_stride();
  const std::size_t n = run.n;
  Window::Level* const level = run.levels + run.depth;
  std::uint32_t odd[Window::kLevel];
  std::size_t found = 0;
  REPLAY_UNROLL
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte* const record = level->records[i];
    const std::uint64_t word = level->words[i];
    // What a row says counts if it was there before it was read.
    const bool there = word_at(record, std::memory_order_acquire) == word;
    const std::uint64_t distance =
        steps ? load_shared<std::uint16_t>(record + sizeof(word) + offsetof(Link, ahead)) : 1;
    const std::byte* const next = record + distance * stride;
    level[1].records[i] = next;
    level[1].words[i] = row_word(row_id(word) + distance, RowState::kCommitted);
    if (!there || next >= run.ends[i] || next == record || (!steps && ends_episode(record)))
        [[unlikely]] {
      odd[found++] = static_cast<std::uint32_t>(i);
    }
    os::prefetch_read(next);
  }
  for (std::size_t k = 0; k < found; ++k) {
    turn(run, run.depth, odd[k]);
    os::prefetch_read(level[1].records[odd[k]]);
  }
  for (std::size_t i = 0; i < n && stride > kLine; ++i) rows.prefetch_record(level[1].records[i]);
}

template <bool steps>
void View::look_at_last(Run& run) const {
  const Window::Level* const level = run.levels + run.depth;
  std::uint32_t odd[Window::kLevel];
  std::size_t found = 0;
  for (std::size_t i = 0; i < run.n; ++i) {
    if (word_at(level->records[i], std::memory_order_acquire) != level->words[i] ||
        (!steps && ends_episode(level->records[i]))) [[unlikely]] {
      odd[found++] = static_cast<std::uint32_t>(i);
    }
  }
  for (std::size_t k = 0; k < found; ++k) turn(run, run.depth, odd[k]);
}

// Takes a run one row on, and copies what the batch has of that row while it is at hand.
void View::advance(Run& run, const ViewBatch& batch) const {
  const bool steps = ring_.layout().has_steps();
  const std::size_t t = run.depth;
  if (t < longest_ - (steps ? 0 : 1)) {
    steps ? look<true>(run) : look<false>(run);
  } else {
    steps ? look_at_last<true>(run) : look_at_last<false>(run);
  }
  ++run.depth;
  if (run.returns > 0 && t < longest_) {
    with_reward_type([&]<class T>(T) { add_rewards<T>(run, t); });
  }
  if (t > 0) return;
  Rows::Lines starts(run.levels[0].records, run.n);
  for (const Output& output : batch.outputs) {
    if (output.role != Role::kStart) continue;
    ring_.rows.gather(starts, static_cast<std::size_t>(output.column), output.to, run.at);
  }
}

void View::make_plain(std::span<const Pick> picks, const ViewBatch& batch, std::size_t at,
                      Window& window, std::uint8_t* failed) const {
  const std::size_t rows = longest_ + (ring_.layout().has_steps() ? 1 : 0);
  const std::size_t runs = (picks.size() + Window::kLevel - 1) / Window::kLevel;
  const std::size_t ways = std::min(rows, kUnderWay);
  const std::size_t pace = (rows + ways - 1) / ways;
  window.levels.resize(ways * (rows + 1));
  const bool sums = std::any_of(batch.outputs.begin(), batch.outputs.end(),
                                [](const Output& o) { return o.role == Role::kReturn; });
  const std::size_t returns = sums ? returns_ : 0;
  window.totals.resize(ways * returns * Window::kLevel);
  Run under_way[kUnderWay];
  for (std::size_t tick = 0; tick < runs + ways - 1; ++tick) {
    if (tick < runs) {
      const std::size_t way = tick % ways;
      const std::size_t from = tick * Window::kLevel;
      Run& run = under_way[way];
      run.at = at + from;
      run.n = std::min(Window::kLevel, picks.size() - from);
      run.depth = 0;
      run.levels = window.levels.data() + way * (rows + 1);
      run.returns = returns;
      run.totals = window.totals.data() + way * returns * Window::kLevel;
      begin(run, picks.subspan(from, run.n), batch);
      const std::span<const Pick> next = picks.subspan(from + run.n);
      for (const Pick& pick : next.first(std::min(Window::kLevel, next.size()))) {
        prefetch(pick.slot);
      }
    }
    for (std::size_t behind = 0; behind < ways && behind <= tick; ++behind) {
      if (tick - behind >= runs) continue;
      Run& run = under_way[(tick - behind) % ways];
      // One look at least, so that there is something to copy of items that cannot be made.
      for (std::size_t p = 0; p < pace && run.depth < rows; ++p) {
        if (run.depth > 0 && run.stopped == run.n) break;
        advance(run, batch);
      }
      if (behind + 1 < ways) continue;
      finish(run, batch);
      check(run, failed + (run.at - at));
    }
  }
}

// Whether all rows of items were whole while they were read.
void View::check(const Run& run, std::uint8_t* failed) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  const std::size_t n = run.n;
  std::uint64_t changed = 0;
  for (std::size_t t = 0; t < run.depth; ++t) {
    const Window::Level& level = run.levels[t];
    REPLAY_UNROLL
    for (std::size_t i = 0; i < n; ++i) {
      changed |= word_at(level.records[i], std::memory_order_relaxed) ^ level.words[i];
    }
  }
  for (std::size_t i = 0; i < n; ++i) failed[i] = run.count[i] == 0 ? 1 : 0;
  for (std::size_t t = 0; t < run.depth && changed != 0; ++t) {
    const Window::Level& level = run.levels[t];
    for (std::size_t i = 0; i < n; ++i) {
      if (word_at(level.records[i], std::memory_order_relaxed) != level.words[i]) failed[i] = 1;
    }
  }
}

// Adds the rewards of one step of all items, whether it turns out to be theirs or not.
template <class T>
void View::add_rewards(const Run& run, std::size_t t) const {
  const auto column = static_cast<std::size_t>(spec_.reward);
  const std::size_t n = run.n;
  const double factor = factors_[t];
  const std::byte* const* const records = run.levels[t].records;
  for (std::size_t k = 0; k < run.returns; ++k) {
    const std::size_t offset = ring_.rows.offset_in_record(column) + k * sizeof(T);
    double* const totals = run.totals + k * Window::kLevel;
    REPLAY_UNROLL
    for (std::size_t i = 0; i < n; ++i) {
      const double reward = factor * static_cast<double>(load_shared<T>(records[i] + offset));
      totals[i] = t == 0 ? reward : totals[i] + reward;
    }
  }
}

// The sums, and those of items with fewer steps once more.
template <class T>
void View::copy_returns(const Run& run, const Output& output) const {
  const std::size_t bytes = run.returns * sizeof(T);
  for (std::size_t k = 0; k < run.returns; ++k) {
    const double* const totals = run.totals + k * Window::kLevel;
    std::byte* const to = output.to + run.at * bytes + k * sizeof(T);
    for (std::size_t i = 0; i < run.n; ++i) {
      const auto result = static_cast<T>(totals[i]);
      std::memcpy(to + i * bytes, &result, sizeof(T));
    }
    if (run.stopped == 0) continue;
    const std::size_t offset =
        ring_.rows.offset_in_record(static_cast<std::size_t>(output.column)) + k * sizeof(T);
    for (std::size_t i = 0; i < run.n; ++i) {
      if (run.count[i] == longest_) continue;
      copy_return<T>(run.count[i], to + i * bytes,
                     [&](std::size_t t) { return run.levels[t].records[i] + offset; });
    }
  }
}

// Copies what is known of items when all their rows are. Of one that was not made it is what is
// there.
void View::finish(const Run& run, const ViewBatch& batch) const {
  const std::size_t n = run.n;
  const bool steps = ring_.layout().has_steps();
  const std::size_t further = steps ? 1 : 0;
  const std::byte* const* last = run.levels[longest_ - 1].records;
  const std::byte* const* after = run.levels[longest_ - 1 + further].records;
  const std::byte* lasts[Window::kLevel];
  const std::byte* afters[Window::kLevel];
  float discounts[Window::kLevel];
  std::fill_n(discounts, n, discounts_[longest_]);
  if (run.odd) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = std::max<std::size_t>(1, run.count[i]);
      lasts[i] = run.levels[k - 1].records[i];
      afters[i] = run.levels[k - 1 + further].records[i];
      const bool terminated =
          steps ? (row_flags(run.levels[k - 1].words[i]) & row_flag::kTerminated) != 0
                : terminates(lasts[i]);
      discounts[i] = terminated ? 0.0F : discounts_[k];
    }
    last = lasts;
    after = afters;
  }
  Rows::Lines last_rows(last, n);
  Rows::Lines after_rows(after, n);
  const auto store = [&]<class T>(const Output& output, const T* values) {
    std::memcpy(output.to + run.at * sizeof(T), values, n * sizeof(T));
  };
  for (const Output& output : batch.outputs) {
    const auto column = static_cast<std::size_t>(output.column);
    switch (output.role) {
      case Role::kNext:
        ring_.rows.gather(after_rows, column, output.to, run.at);
        break;
      case Role::kLast:
        if (steps && !run.odd &&
            (output.column == spec_.terminated || output.column == spec_.truncated)) {
          std::memset(output.to + run.at, 0, n);  // the row would have a flag
        } else {
          ring_.rows.gather(last_rows, column, output.to, run.at);
        }
        break;
      case Role::kReturn:
        with_reward_type([&]<class T>(T) { copy_returns<T>(run, output); });
        break;
      case Role::kCount:
        store(output, run.count);
        break;
      case Role::kDiscount:
        store(output, discounts);
        break;
      default:
        break;
    }
  }
}

}  // namespace replay_buffer
