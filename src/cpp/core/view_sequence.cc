// Sequences and whole episodes.
//
// Most rows of a stream lie evenly in their block. So an item is found, copied and looked at again
// as a few stretches, not row by row; only what takes more than one row for a cell, or other rows
// than the steps themselves, goes through them one by one (list_stretches).
#include <algorithm>
#include <cstring>

#include "core/view.h"

namespace replay_buffer {
namespace {

void add(const Stretch& stretch, Window& window) {
  window.stretches.push_back(stretch);
  window.found += stretch.n;
}

// Calls f(t, n, rows) for the time of an item, as its steps lie: those from t on are these n rows,
// which begin a stretch, or null: they are not there.
template <class F>
void each_part(const Window& window, const Window::Item& item, std::size_t time, const F& f) {
  const std::size_t end = item.made ? std::min<std::size_t>(time, item.lead + item.steps) : 0;
  std::size_t t = std::min<std::size_t>(end, item.lead);
  std::size_t skipped = item.skipped;
  if (t > 0) f(0, t, nullptr);
  for (std::size_t s = item.stretch; t < end; ++s) {
    Stretch rows = window.stretches[s];
    if (rows.has(row_flag::kFinal)) continue;
    const std::size_t passed = std::min<std::size_t>(skipped, rows.n);
    skipped -= passed;
    if (passed > 0) rows = rows.behind(passed);
    const std::size_t n = std::min<std::size_t>(end - t, rows.n);
    if (n > 0) f(t, n, &rows);
    t += n;
  }
  if (t < time) f(t, time - t, nullptr);
}

}  // namespace

bool View::find_sequence(const Place& start, std::size_t time, Window& window,
                         Window::Item& item) const {
  if (!may_start(start.slot)) return false;
  item.stretch = static_cast<std::uint32_t>(window.stretches.size());
  const std::size_t before = go_back(start, window, item);
  const std::size_t whole = spec_.length != 0 ? spec_.length : time != 0 ? time : kMostSteps;
  const Place last = go_on(start, spec_.whole ? whole : spec_.length, window, item);
  item.stretch_end = static_cast<std::uint32_t>(window.stretches.size());
  const std::size_t frameless = without_frames(window, item);
  if (frameless > before) return false;
  const std::size_t there = std::min<std::size_t>(before - frameless, spec_.burn_in);
  item.skipped = static_cast<std::uint32_t>(before - there);
  item.lead = static_cast<std::uint32_t>(spec_.burn_in - there);
  item.steps = static_cast<std::uint32_t>(there + item.count);
  if (spec_.whole) {
    return last.has(row_flag::kEnded) && window.stretches.back().has(row_flag::kFinal);
  }
  return spec_.pad || (there == spec_.burn_in && item.count == spec_.length);
}

// Finds the rows before the start that its burn-in and the first stack need. Returns how many of
// them are steps.
std::size_t View::go_back(const Place& start, Window& window, Window::Item& item) const {
  const std::size_t wanted = spec_.burn_in + spec_.stack - 1;
  Place at = start;
  Place to{};
  std::size_t steps = 0;
  std::size_t rows = 0;
  while (steps < wanted && (spec_.cross || !at.has(row_flag::kFirst))) {
    if (!at.has(row_flag::kFirst)) {
      const Stretch run = streams_.run_back(at, wanted - steps);
      if (run.n > 0) {
        add(run, window);
        at = run[0];
        steps += run.n;
        rows += run.n;
        continue;
      }
    }
    if (!streams_.previous(at, to)) break;
    // A damaged segment may lead backwards into another episode: its final row is no step of this.
    if (!at.has(row_flag::kFirst) && to.has(row_flag::kFinal)) break;
    add(Stretch::one(to), window);
    if (!to.has(row_flag::kFinal)) ++steps;
    ++rows;
    at = to;
  }
  std::reverse(window.stretches.begin() + item.stretch, window.stretches.end());
  item.start = static_cast<std::uint32_t>(rows);
  return steps;
}

// Up to `wanted` steps from the start on, and the row after the last. Returns the last step.
Place View::go_on(const Place& start, std::size_t wanted, Window& window,
                  Window::Item& item) const {
  std::size_t row = item.start;  // its number, of the last row found
  const auto step = [&](const Stretch& steps) {
    add(steps, window);
    item.count += static_cast<std::uint32_t>(steps.n);
    item.after = static_cast<std::uint32_t>(row);
    return steps[steps.n - 1];
  };
  Place last = step(Stretch::one(start));
  Place to{};
  for (;;) {
    const bool end = last.has(row_flag::kEnded);
    if (!end && item.count < wanted) {
      const Stretch run = streams_.run(last, wanted - item.count);
      if (run.n > 0) {
        row += run.n;
        last = step(run);
        continue;
      }
    }
    if (!streams_.next(last, to)) return last;
    if (end && to.has(row_flag::kFinal)) {
      add(Stretch::one(to), window);
      item.after = static_cast<std::uint32_t>(++row);
      if (!spec_.cross || item.count == wanted || !streams_.next(Place(to), to)) return last;
    }
    const bool crosses = to.has(row_flag::kFirst);
    if (to.has(row_flag::kFinal) || (crosses && !spec_.cross)) return last;
    ++row;
    if (item.count == wanted) {
      add(Stretch::one(to), window);
      if (!crosses) item.after = static_cast<std::uint32_t>(row);
      return last;
    }
    last = step(Stretch::one(to));
  }
}

// How many steps from the first on cannot be shown, because frames of their stacks are gone.
std::size_t View::without_frames(const Window& window, const Window::Item& item) const {
  std::size_t steps = 0;
  std::size_t frameless = 0;
  std::size_t row = 0;
  for (std::size_t s = item.stretch; s < item.stretch_end && row + 1 < spec_.stack; ++s) {
    const Stretch& rows = window.stretches[s];
    for (std::size_t i = 0; i < rows.n && row + 1 < spec_.stack; ++i, ++row) {
      if (rows.has(row_flag::kFinal)) continue;
      ++steps;
      if (row < streams_.link(rows[i]).step) frameless = steps;
    }
  }
  return frameless;
}

// Lists the rows of the steps of all items: one by one where stretches are short, because a loop of
// a few rows ends unforeseen each time.
void View::list_steps(std::size_t time, Window& window) const {
  constexpr std::size_t kShort = 16;
  window.listed.clear();
  window.records.clear();
  for (const Window::Item& item : window.items) {
    each_part(window, item, time, [&](std::size_t, std::size_t n, const Stretch* rows) {
      if (rows == nullptr) {
        window.listed.push_back({Rows::Evenly::kNone, 0, n});
      } else {
        window.listed.push_back({rows->slot, rows->distance, n});
      }
    });
  }
  const std::size_t cells = window.items.size() * time;
  if (window.listed.size() * kShort <= cells) return;
  const std::size_t stride = ring_.rows.record_stride();
  window.records.resize(cells);
  const std::byte** to = window.records.data();
  for (const Rows::Evenly& some : window.listed) {
    const bool none = some.slot == Rows::Evenly::kNone;
    const std::byte* record = none ? nothing_.data() : ring_.rows.record(some.slot);
    const std::size_t step = none ? 0 : some.distance * stride;
    for (std::size_t i = 0; i < some.n; ++i, record += step) *to++ = record;
  }
}

// What is said of each step.
void View::copy_marks(const Output& output, const Window& window, std::size_t time,
                      std::size_t at) const {
  for (const Window::Item& item : window.items) {
    const std::size_t from = at++ * time;
    std::byte* const to = output.to + from;
    if (output.role != Role::kIds) std::memset(to, 0, time);
    if (output.role == Role::kMask && item.made && item.lead < time) {
      std::memset(to + item.lead, 1, std::min<std::size_t>(time - item.lead, item.steps));
    }
    if (output.role == Role::kMask) continue;
    each_part(window, item, time, [&](std::size_t t, std::size_t n, const Stretch* rows) {
      if (output.role == Role::kFirst) {
        if (rows != nullptr && rows->has(row_flag::kFirst)) to[t] = std::byte{1};
        return;
      }
      for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t id = rows == nullptr ? -1 : static_cast<std::int64_t>((*rows)[i].id());
        std::memcpy(output.to + (from + t + i) * sizeof(id), &id, sizeof(id));
      }
    });
  }
}

bool View::needs_rows(const ViewBatch& batch) const {
  return std::any_of(batch.outputs.begin(), batch.outputs.end(), [](const Output& output) {
    return output.stacked || output.role == Role::kNext || output.role == Role::kStepNext ||
           output.role == Role::kNextMask;
  });
}

// Puts the rows of all items one by one into window.rows, and which of them their steps are into
// window.times.
void View::list_stretches(Window& window) const {
  for (Window::Item& item : window.items) {
    if (!item.made) continue;
    item.first = static_cast<std::uint32_t>(window.rows.size());
    item.times = static_cast<std::uint32_t>(window.times.size());
    window.times.resize(window.times.size() + item.lead, -1);
    std::size_t skipped = item.skipped;
    std::size_t steps = item.steps;
    for (std::size_t s = item.stretch; s < item.stretch_end; ++s) {
      const Stretch& rows = window.stretches[s];
      for (std::size_t i = 0; i < rows.n; ++i) {
        const auto row = static_cast<std::int64_t>(window.rows.size());
        push(rows[i], window);
        if (rows.has(row_flag::kFinal) || (skipped > 0 && skipped-- > 0)) continue;
        if (steps == 0) continue;
        --steps;
        window.times.push_back(row);
      }
    }
    item.start += item.first;
    item.after += item.first;
    item.end = static_cast<std::uint32_t>(window.rows.size());
    item.times_end = static_cast<std::uint32_t>(window.times.size());
  }
}

}  // namespace replay_buffer
