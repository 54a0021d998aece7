// Transitions of n steps, many at once.
//
// Of all items of a run the next row is found before of any the one after that, so that the rows of
// one step are on their way into the cache together; and runs go their way one step behind the
// other. Most rows are ordinary steps in the block of the row before: those are looked at in short
// loops, everything else by itself (turn).
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/view.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kUnderWay = 4;  // runs at a time

// What of a word shows that its row is committed and no last observation.
constexpr std::uint64_t kLooked = row_word(0, static_cast<RowState>(3), row_flag::kFinal);
constexpr std::uint64_t kWeighed = row_word(0, RowState::kCommitted);

constexpr std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i; }

constexpr std::uint64_t first_bits(std::size_t n) {
  return n < 64 ? bit(n) - 1 : ~std::uint64_t{0};
}

struct NoReward {};

// Calls f(i) for each bit i that is set.
template <class F>
void each_bit(std::uint64_t bits, const F& f) {
  for (; bits != 0; bits &= bits - 1) f(static_cast<std::size_t>(std::countr_zero(bits)));
}

}  // namespace

// Some of the items of a batch. Row t of item i is at levels[t].
struct View::Run {
  std::span<const Pick> picks;
  std::size_t at = 0;               // place of the first in the batch
  std::size_t depth = 0;            // rows that were looked at, of each item
  Window::Level* levels = nullptr;  // the rows of all items, one step each
  // A bit for each item,
  std::uint64_t stopped = 0;     // of which it is known where it ends
  std::uint64_t ended = 0;       // that ends with its episode
  std::uint64_t terminated = 0;  // for good
  std::uint64_t again = 0;       // whose reward may have been read before its row was there
  const std::byte* ends[Window::kLevel];  // of the blocks of the last rows found
  std::uint32_t counts[Window::kLevel];   // steps of the items that stopped; others have all
  double totals[Window::kLevel];          // of the rewards so far, theirs or not

  std::size_t size() const { return picks.size(); }
  // Row `to` of an item is its first once more, as an ordinary step.
  void copy_start(std::size_t i, std::size_t to) const {
    levels[to].records[i] = levels[0].records[i];
    levels[to].words[i] = row_word(row_id(levels[0].words[i]), RowState::kCommitted);
    levels[to].apart &= ~bit(i);
  }
  bool all_stopped() const { return static_cast<std::size_t>(std::popcount(stopped)) == size(); }
  // An item has so many steps, as its row `t` shows.
  void stop(std::size_t t, std::size_t i, std::size_t steps) {
    stopped |= bit(i);
    counts[i] = static_cast<std::uint32_t>(steps);
    copy_start(i, t + 1);
  }
  // What has stopped goes its way again from the start.
  void restart(std::size_t t, std::size_t i) const {
    if (t > 0) copy_start(i, t);
    copy_start(i, t + 1);
  }
};

void View::put(Run& run, std::size_t t, std::size_t i, const Place& row) const {
  run.levels[t].records[i] = ring_.rows.record(row.slot);
  run.levels[t].words[i] = row.word;
  run.levels[t].apart |= bit(i);
  run.ends[i] = ring_.rows.record(streams_.block_end(row.slot));
}

Place View::place_of(const Run& run, std::size_t t, std::size_t i) const {
  return {ring_.rows.slot_of(run.levels[t].records[i]), run.levels[t].words[i]};
}

// The rows that the items of a run start with. Those of the `next` run come into the cache
// meanwhile. Two loops, so that the variables of each stay in registers.
void View::begin(Run& run, std::span<const Pick> next, std::int64_t* ids) const {
  // Copies, because what is written could be these for all the compiler knows.
  const Rows rows = ring_.rows;
  const Streams streams = streams_;
  const std::uint64_t oldest = row_word(ring_.blocks.oldest_id(), RowState::kEmpty);
  const std::span<const Pick> picks = run.picks;
  Window::Level& level = run.levels[0];
  run.depth = 0;
  run.stopped = run.ended = run.terminated = run.again = 0;
  for (std::size_t i = 0; i < picks.size(); ++i) {
    const std::byte* const record = rows.record(picks[i].slot);
    if (i < next.size()) os::prefetch_read(rows.record(next[i].slot));
    const std::uint64_t word = word_at(record, std::memory_order_acquire);
    level.records[i] = record;
    level.words[i] = word;
    ids[i] = static_cast<std::int64_t>(row_id(word));
    // As Pick::is and row_weighed say, in few instructions where any row of the slot will do.
    if ((word & kLooked) != kWeighed || word < oldest ||
        (picks[i].exact() && !picks[i].is(word, 0, rows.capacity()))) [[unlikely]] {
      run.counts[i] = 0;
      run.stopped |= bit(i);
    }
  }
  for (std::size_t i = 0; i < picks.size(); ++i) {
    run.ends[i] = rows.record(streams.block_end(picks[i].slot));
  }
}

// Row `t` of an item may not be the ordinary step it was taken for, or be the last in its block:
// finds out, and where the item goes on.
__attribute__((noinline)) void View::turn(Run& run, std::size_t t, std::size_t i) const {
  if ((run.stopped & bit(i)) != 0) return run.restart(t, i);
  const bool steps = ring_.layout().has_steps();
  Place row = place_of(run, t, i);
  const auto ends = [&](const Place& step) {
    bool terminated = false;
    if (!ended(step, terminated)) return false;
    run.ended |= bit(i);
    if (terminated) run.terminated |= bit(i);
    return true;
  };
  if (ring_.rows.word(row.slot).load(std::memory_order_acquire) != row.word) {
    const Place before = place_of(run, t > 0 ? t - 1 : 0, i);
    if (t == 0 || !streams_.next(before, row) || row.has(row_flag::kFirst)) {
      if (t > 0) run.copy_start(i, t);
      return run.stop(t, i, steps && t > 0 ? t - 1 : t);
    }
    put(run, t, i, row);
    if (steps && (ends(before) || row.has(row_flag::kFinal))) return run.stop(t, i, t);
  }
  if (!steps && t > 0 && !continues(run.levels[t - 1].records[i], run.levels[t].records[i])) {
    run.copy_start(i, t);
    return run.stop(t, i, t);
  }
  if (!steps && ends(row)) return run.stop(t, i, t + 1);
  const std::uint64_t distance = streams_.link(row).ahead;
  std::uint64_t slot = row.slot + distance;
  std::uint64_t id = row.id() + distance;
  if (distance == 0 || slot >= streams_.block_end(row.slot)) {
    if (!streams_.across(row, distance, slot, id)) return run.stop(t, i, steps ? t : t + 1);
  }
  put(run, t + 1, i, {slot, row_word(id, RowState::kCommitted)});
}

// Row `t` of these items is an ordinary step, and the next lies beyond its block: most often in the
// one beside it, where it was looked for.
__attribute__((noinline)) void View::cross(Run& run, std::size_t t, std::uint64_t items) const {
  const Rows rows = ring_.rows;
  const Streams streams = streams_;
  const Window::Level& from = run.levels[t];
  Window::Level& to = run.levels[t + 1];
  to.apart |= items;
  each_bit(items, [&](std::size_t i) {
    const std::uint64_t slot = rows.slot_of(to.records[i]);
    const Place row{rows.slot_of(from.records[i]), from.words[i]};
    if ((run.stopped & bit(i)) == 0 && streams.beside(row, slot)) [[likely]] {
      run.ends[i] = rows.record(streams.block_end(slot));
    } else {
      turn(run, t, i);
    }
  });
}

// A bit for each item that goes on and whose row is not what came after the row before. REQUIRES:
// the words of the rows were looked at.
std::uint64_t View::parted(const Run& run) const {
  if (spec_.follows.empty()) return 0;
  const Window::Level* const level = run.levels + run.depth;
  std::uint64_t parted = 0;
  each_bit(first_bits(run.size()) & ~run.stopped, [&](std::size_t i) {
    if (!continues(level[-1].records[i], level->records[i])) parted |= bit(i);
  });
  return parted;
}

// Looks at one row of each item, at the `start` those that were picked; adds its reward to the sum
// (a number of type T at an offset of the record), and finds the next row. In the loop nothing is
// called: it has few enough variables for all of them to stay in registers.
template <bool steps, bool start, class T>
void View::look(Run& run, std::size_t reward) const {
  const std::size_t stride = ring_.rows.record_stride();
  const std::size_t n = run.size();
  const double factor = factors_[run.depth];
  Window::Level* const level = run.levels + run.depth;
  std::uint64_t odd = 0;
  // A bit for each whose next row is in the same block. No branch: of many streams it would be
  // foreseen wrongly. From the last to the first, because so a bit takes the fewest instructions.
  std::uint64_t inside = 0;
  for (std::size_t i = n; i-- > 0;) {
    // What a row says counts if it was there before it was read.
    const std::byte* const record = level->records[i];
    std::uint64_t word = level->words[i];
    const bool there = word_at(record, std::memory_order_acquire) == word;
    if constexpr (start) word = row_word(row_id(word), RowState::kCommitted);
    const std::uint64_t distance = steps ? ahead(record) : 1;
    const std::byte* const next = record + distance * stride;
    level[1].records[i] = next;
    level[1].words[i] = word + row_word(distance, RowState::kEmpty);
    if constexpr (!std::is_same_v<T, NoReward>) {
      const double part = factor * static_cast<double>(load_shared<T>(record + reward));
      run.totals[i] = start ? part : run.totals[i] + part;
    }
    os::prefetch_read(next);
    inside += inside + std::uint64_t{next < run.ends[i]};
    if (!there || next == record || (!steps && ends_episode(record))) [[unlikely]] {
      odd |= bit(i);
      if (!there) run.again |= bit(i);
    }
  }
  if constexpr (!steps && !start) odd |= parted(run);
  each_bit(odd, [&](std::size_t i) {
    turn(run, run.depth, i);
    os::prefetch_read(level[1].records[i]);
  });
  if (const std::uint64_t beyond = first_bits(n) & ~inside & ~odd) cross(run, run.depth, beyond);
  for (std::size_t i = 0; i < n && stride > kLine; ++i) {
    ring_.rows.prefetch_record(level[1].records[i]);
  }
}

// The same for the last rows that there may be.
template <bool steps, bool start, class T>
void View::look_at_last(Run& run, std::size_t reward) const {
  const Window::Level& level = run.levels[run.depth];
  const double factor = factors_[run.depth];
  std::uint64_t odd = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const std::byte* const record = level.records[i];
    const bool there = word_at(record, std::memory_order_acquire) == level.words[i];
    if constexpr (!steps && !std::is_same_v<T, NoReward>) {
      const double part = factor * static_cast<double>(load_shared<T>(record + reward));
      run.totals[i] = start ? part : run.totals[i] + part;
    }
    if (!there || (!steps && ends_episode(record))) [[unlikely]] {
      odd |= bit(i);
      if (!there) run.again |= bit(i);
    }
  }
  if constexpr (!steps && !start) odd |= parted(run);
  each_bit(odd, [&](std::size_t i) { turn(run, run.depth, i); });
}

// Takes a run one row on.
template <class T>
void View::advance(Run& run, std::size_t reward) const {
  const bool steps = ring_.layout().has_steps();
  const bool last = run.depth + 1 == longest_ + (steps ? 1 : 0);
  const bool start = run.depth == 0;
  if (!last && steps) {
    start ? look<true, true, T>(run, reward) : look<true, false, T>(run, reward);
  } else if (!last) {
    start ? look<false, true, T>(run, reward) : look<false, false, T>(run, reward);
  } else if (steps) {
    look_at_last<true, false, T>(run, reward);  // it is not the start, which has one behind it
  } else {
    start ? look_at_last<false, true, T>(run, reward) : look_at_last<false, false, T>(run, reward);
  }
  ++run.depth;
}

// Copies what a batch has, in one role, of one row of each item.
void View::copy_rows(const Run& run, const std::byte* const* records, Role role,
                     const ViewBatch& batch) const {
  Rows::Lines rows(records, run.size());
  for (const Output& output : batch.outputs) {
    if (output.role != role) continue;
    const auto column = static_cast<std::size_t>(output.column);
    if (role == Role::kLast &&
        (output.column == spec_.terminated || output.column == spec_.truncated)) {
      std::memset(output.to + run.at, 0, run.size());  // only where one ended there is a flag
      each_bit(run.ended, [&](std::size_t i) {
        ring_.rows.copy_cell(column, ring_.rows.slot_of(records[i]), output.to + run.at + i);
      });
    } else {
      ring_.rows.gather(rows, column, output.to, run.at);
    }
  }
}

// The sums, and those of items with fewer steps once more.
template <class T>
void View::copy_returns(const Run& run, const Output& output) const {
  const std::size_t bytes = returns_ * sizeof(T);
  std::byte* const to = output.to + run.at * bytes;
  const std::size_t offset = ring_.rows.offset_in_record(static_cast<std::size_t>(output.column));
  const auto again = [&](std::size_t i) {
    const std::size_t count = (run.stopped & bit(i)) != 0 ? run.counts[i] : longest_;
    for (std::size_t k = 0; k < returns_; ++k) {
      copy_return<T>(count, to + i * bytes + k * sizeof(T), [&](std::size_t t) {
        return run.levels[t].records[i] + offset + k * sizeof(T);
      });
    }
  };
  if (returns_ != 1) {
    for (std::size_t i = 0; i < run.size(); ++i) again(i);
    return;
  }
  for (std::size_t i = 0; i < run.size(); ++i) {
    const auto result = static_cast<T>(run.totals[i]);
    std::memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
  each_bit(run.stopped | run.again, again);
}

// Copies what is known of items when all their rows are. Of one that was not made it is what is
// there.
void View::finish(Run& run, const ViewBatch& batch) const {
  const std::size_t further = ring_.layout().has_steps() ? 1 : 0;
  const std::byte* const* lasts = run.levels[longest_ - 1].records;
  const std::byte* const* afters = run.levels[longest_ - 1 + further].records;
  const std::byte* other_lasts[Window::kLevel];
  const std::byte* other_afters[Window::kLevel];
  if (run.stopped != 0) {
    lasts = std::copy_n(lasts, run.size(), other_lasts) - run.size();
    afters = std::copy_n(afters, run.size(), other_afters) - run.size();
    each_bit(run.stopped, [&](std::size_t i) {
      const std::size_t last = std::max<std::size_t>(1, run.counts[i]) - 1;
      other_lasts[i] = run.levels[last].records[i];
      other_afters[i] = run.levels[last + further].records[i];
    });
  }
  copy_rows(run, lasts, Role::kLast, batch);
  copy_rows(run, afters, Role::kNext, batch);
  for (const Output& output : batch.outputs) {
    if (output.role == Role::kReturn) {
      with_reward_type([&]<class T>(T) { copy_returns<T>(run, output); });
    } else if (output.role == Role::kCount) {
      auto* const counts = reinterpret_cast<std::int32_t*>(output.to) + run.at;
      std::fill_n(counts, run.size(), static_cast<std::int32_t>(longest_));
      each_bit(run.stopped, [&](auto i) { counts[i] = static_cast<std::int32_t>(run.counts[i]); });
    } else if (output.role == Role::kDiscount) {
      auto* const discounts = reinterpret_cast<float*>(output.to) + run.at;
      std::fill_n(discounts, run.size(), discounts_[longest_]);
      each_bit(run.stopped, [&](auto i) { discounts[i] = discounts_[run.counts[i]]; });
      each_bit(run.terminated, [&](auto i) { discounts[i] = 0; });
    }
  }
}

// Whether all rows of items were whole while they were read. The rows of a block are overwritten
// one after the other: where the first of an item in a block is still there, so are those behind
// it.
void View::check(const Run& run, std::uint8_t* failed) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  const auto changes = [](const Window::Level& level, std::size_t i) {
    return word_at(level.records[i], std::memory_order_relaxed) ^ level.words[i];
  };
  std::memset(failed, 0, run.size());
  std::uint64_t changed = 0;  // most often nothing is
  for (std::size_t i = 0, n = run.size(); i < n; ++i) changed |= changes(run.levels[0], i);
  for (std::size_t i = 0; changed != 0 && i < run.size(); ++i) {
    if (changes(run.levels[0], i) != 0) failed[i] = 1;
  }
  each_bit(run.stopped, [&](std::size_t i) {
    if (run.counts[i] == 0) failed[i] = 1;
  });
  for (std::size_t t = 1; t < run.depth; ++t) {
    each_bit(run.levels[t].apart, [&](std::size_t i) {
      if (changes(run.levels[t], i) != 0) failed[i] = 1;
    });
  }
}

void View::make_plain(std::span<const Pick> picks, const ViewBatch& batch, std::size_t at,
                      Window& window, std::uint8_t* failed) const {
  const std::size_t rows = longest_ + (ring_.layout().has_steps() ? 1 : 0);
  const std::size_t runs = (picks.size() + Window::kLevel - 1) / Window::kLevel;
  const std::size_t ways = std::min(rows, kUnderWay);
  const std::size_t pace = (rows + ways - 1) / ways;
  window.levels.resize(ways * (rows + 1));
  const bool sums =
      returns_ == 1 && std::any_of(batch.outputs.begin(), batch.outputs.end(),
                                   [](const Output& o) { return o.role == Role::kReturn; });
  // What there is of a row, or beside it, besides the line it begins with.
  const bool far = !ring_.layout().has_steps() || ring_.rows.scattered();
  Run under_way[kUnderWay];
  for (std::size_t tick = 0; tick < runs + ways - 1; ++tick) {
    if (tick < runs) {
      const std::size_t from = tick * Window::kLevel;
      Run& run = under_way[tick % ways];
      run.picks = picks.subspan(from, std::min(Window::kLevel, picks.size() - from));
      run.at = at + from;
      run.levels = window.levels.data() + tick % ways * (rows + 1);
      for (std::size_t t = 0; t <= rows; ++t) run.levels[t].apart = 0;
      const std::span<const Pick> next = picks.subspan(from + run.size());
      begin(run, next, batch.ids + run.at);
      for (const Pick& pick : next.first(std::min(far ? run.size() : 0, next.size()))) {
        prefetch(pick.slot);
      }
      copy_rows(run, run.levels[0].records, Role::kStart, batch);
    }
    for (std::size_t behind = 0; behind < ways && behind <= tick; ++behind) {
      if (tick - behind >= runs) continue;
      Run& run = under_way[(tick - behind) % ways];
      const std::size_t most = std::min(rows, run.depth + pace);
      while (run.depth < most && !(run.depth > 0 && run.all_stopped())) {
        if (!sums || factors_[run.depth] == 0) {
          advance<NoReward>(run, 0);
        } else {
          const auto column = static_cast<std::size_t>(spec_.reward);
          with_reward_type(
              [&]<class T>(T) { advance<T>(run, ring_.rows.offset_in_record(column)); });
        }
      }
      if (behind + 1 < ways) continue;
      finish(run, batch);
      check(run, failed + (run.at - at));
    }
  }
}

}  // namespace replay_buffer
