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
  for (std::size_t i = 0; i < run.n; ++i) {
    run.count[i] = 0;
    run.terminated[i] = false;
    run.sums[i] = 0;
    run.ends[i] = streams_.block_end(starts[i].slot);
    if (starts[i].word == 0 || starts[i].has(row_flag::kFinal)) continue;
    run.items[run.active++] = static_cast<std::uint32_t>(i);
  }
  run.rows = window.rows.data();
  if (ring_.layout().has_steps()) {
    advance<true>(run);
  } else {
    advance<false>(run);
  }
  copy_plain(run, batch, at);
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
  const std::size_t further = ring_.layout().has_steps() ? 1 : 0;
  for (std::size_t i = 0; i < run.n; ++i) {
    bool whole = run.count[i] > 0;
    for (std::size_t t = 0; whole && t < run.count[i] + further; ++t) {
      whole = streams_.same(run.row(t, i));
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
