// Transitions of n steps, many at once: all of them go one step on before any goes two, so that the
// rows of one step come into the cache together.
#include <algorithm>
#include <cstring>

#include "core/view.h"

namespace replay_buffer {

struct View::Run {
  std::size_t n = 0;
  Place* rows = nullptr;  // n for each step: rows[t * n + i]
  std::size_t active = 0;
  std::uint32_t items[kRun];    // those that go on
  std::uint64_t targets[kRun];  // the slots that these go to
  std::uint64_t ends[kRun];     // of the blocks of their rows
  std::uint32_t count[kRun];    // steps taken
  double sums[kRun];            // of their rewards, discounted
  bool terminated[kRun];

  const Place& row(std::size_t t, std::size_t i) const { return rows[t * n + i]; }
};

// Takes items all the way where that is easy: all rows of one are in one block, and no episode
// ends. The others become active.
void View::leap(Run& run) const {
  const Rows::Heads heads = ring_.rows.heads();
  const std::size_t n = run.n;
  const std::size_t steps = spec_.steps;
  const double gamma = spec_.gamma;
  std::uint64_t guess = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Place start = run.rows[i];
    if (start.word == 0 || start.has(row_flag::kFinal)) continue;
    std::uint64_t slot = start.slot;
    std::uint64_t expected = row_word(start.id(), RowState::kCommitted);
    bool easy = !start.has(row_flag::kEnded);
    for (std::size_t t = 1; easy && t <= steps; ++t) {
      const std::uint64_t distance = heads.link(slot).ahead;
      slot += distance;
      expected += row_word(distance, RowState::kEmpty);
      easy = distance != 0 && slot < run.ends[i];
      if (!easy) break;
      easy = heads.word(slot, std::memory_order_acquire) == expected;
      run.rows[t * n + i] = {slot, expected};
      guess = distance;
    }
    if (easy) [[likely]] {
      run.count[i] = static_cast<std::uint32_t>(steps);
      double factor = 1;
      double sum = 0;
      for (std::size_t t = 0; t < steps; ++t, factor *= gamma) {
        sum += factor * reward_at(run.rows[t * n + i].slot);
      }
      run.sums[i] = sum;
    } else {
      run.items[run.active++] = static_cast<std::uint32_t>(i);
    }
  }
  if (guess != 0) guess_.store(static_cast<std::uint32_t>(guess), std::memory_order_relaxed);
}

// Takes all active items on, step by step, from row `t` to row `t + 1`.
template <bool steps>
void View::advance(Run& run) const {
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  const std::uint64_t guess = guess_.load(std::memory_order_relaxed);
  std::uint64_t distance = guess;
  double factor = 1;
  for (std::size_t t = 0; t < longest_ && run.active > 0; ++t, factor *= spec_.gamma) {
    for (std::size_t a = 0; a < run.active; ++a) {
      const std::uint64_t slot = run.row(t, run.items[a]).slot;
      distance = steps ? ring_.rows.link(slot).ahead : 1;
      run.targets[a] = slot + distance;
      if (steps && distance != guess && run.targets[a] < run.ends[run.items[a]]) {
        ring_.rows.prefetch(run.targets[a]);
      }
    }
    std::size_t going = 0;
    for (std::size_t a = 0; a < run.active; ++a) {
      const std::uint32_t i = run.items[a];
      const Place& row = run.row(t, i);
      Place& to = run.rows[(t + 1) * run.n + i];
      bool terminated = row.has(row_flag::kTerminated);
      const bool end = steps ? row.has(row_flag::kEnded) : ended(row, terminated);
      if (!steps) {  // the row has what came after it
        ++run.count[i];
        run.terminated[i] = terminated;
        run.sums[i] += factor * reward_at(row.slot);
        if (end || run.count[i] == spec_.steps) continue;
      }
      const std::uint64_t slot = run.targets[a];
      if (slot < run.ends[i]) [[likely]] {
        to = {slot, ring_.rows.word(slot).load(std::memory_order_acquire)};
        if (!row_committed(to.word) || to.id() - row.id() != slot - row.slot || slot == row.slot ||
            to.id() < oldest) {
          if (!streams_.next(row, to)) continue;  // its writer may have left the block early
          run.ends[i] = streams_.block_end(to.slot);
        }
      } else {
        if (!streams_.next(row, to)) continue;
        run.ends[i] = streams_.block_end(to.slot);
      }
      if (to.has(row_flag::kFirst)) continue;
      if (steps) {
        ++run.count[i];
        run.terminated[i] = terminated;
        run.sums[i] += factor * reward_at(row.slot);
        if (end || to.has(row_flag::kFinal)) continue;
      }
      run.items[going++] = i;
    }
    run.active = going;
  }
  if (distance != 0) guess_.store(static_cast<std::uint32_t>(distance), std::memory_order_relaxed);
}

void View::make_plain(std::span<const Place> starts, const ViewBatch& batch, std::size_t at,
                      Window& window, std::uint8_t* failed) const {
  Run run;
  run.n = starts.size();
  window.rows.resize((longest_ + 1) * run.n);
  std::copy(starts.begin(), starts.end(), window.rows.begin());
  run.rows = window.rows.data();
  const bool steps = ring_.layout().has_steps();
  for (std::size_t i = 0; i < run.n; ++i) {
    run.count[i] = 0;
    run.terminated[i] = false;
    run.sums[i] = 0;
    run.ends[i] = streams_.block_end(starts[i].slot);
  }
  if (steps) {
    leap(run);
    if (run.active > 0) advance<true>(run);
  } else {
    for (std::size_t i = 0; i < run.n; ++i) {
      if (starts[i].word != 0) run.items[run.active++] = static_cast<std::uint32_t>(i);
    }
    advance<false>(run);
  }
  copy_plain(run, batch, at);
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  const std::size_t further = steps ? 1 : 0;
  const Rows::Heads heads = ring_.rows.heads();
  for (std::size_t i = 0; i < run.n; ++i) {
    bool whole = run.count[i] > 0;
    for (std::size_t t = 0; t < run.count[i] + further; ++t) {
      const Place& row = run.row(t, i);
      whole &= heads.word(row.slot, std::memory_order_relaxed) == row.word;
    }
    failed[i] = whole ? 0 : 1;
  }
}

void View::copy_plain(const Run& run, const ViewBatch& batch, std::size_t at) const {
  std::int64_t start[kRun];
  std::int64_t last[kRun];
  std::int64_t after[kRun];
  const bool steps = ring_.layout().has_steps();
  for (std::size_t i = 0; i < run.n; ++i) {
    const std::size_t k = run.count[i];
    start[i] = k == 0 ? -1 : static_cast<std::int64_t>(run.row(0, i).slot);
    last[i] = k == 0 ? -1 : static_cast<std::int64_t>(run.row(k - 1, i).slot);
    after[i] = k == 0 ? -1 : static_cast<std::int64_t>(run.row(steps ? k : k - 1, i).slot);
  }
  for (const Output& output : batch.outputs) {
    const auto column = static_cast<std::size_t>(output.column < 0 ? 0 : output.column);
    const auto gather = [&](const std::int64_t* slots) {
      ring_.rows.gather_column(column, {slots, run.n}, output.to, at);
    };
    switch (output.role) {
      case Role::kNext:
        gather(after);
        break;
      case Role::kLast:
        gather(last);
        break;
      case Role::kReturn:
        if (scalar_reward_) {
          for (std::size_t i = 0; i < run.n; ++i) store_reward(output, at + i, run.sums[i]);
        } else {
          copy_returns(
              output, run.n, at, [&](std::size_t i) { return run.count[i]; },
              [&](std::size_t i, std::size_t t) { return run.row(t, i).slot; });
        }
        break;
      case Role::kCount:
        for (std::size_t i = 0; i < run.n; ++i) {
          const auto k = static_cast<std::int32_t>(run.count[i]);
          std::memcpy(output.to + (at + i) * sizeof(k), &k, sizeof(k));
        }
        break;
      case Role::kDiscount:
        for (std::size_t i = 0; i < run.n; ++i) {
          const float discount = run.terminated[i] ? 0.0F : discounts_[run.count[i]];
          std::memcpy(output.to + (at + i) * sizeof(discount), &discount, sizeof(discount));
        }
        break;
      default:
        gather(start);
        break;
    }
  }
}

}  // namespace replay_buffer
