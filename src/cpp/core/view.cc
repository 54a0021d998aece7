#include "core/view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// More steps than this in one item would be a mistake.
constexpr std::uint32_t kMostSteps = 1U << 20;

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_range(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  invalid(std::string(name) + " must be between " + std::to_string(least) + " and " +
          std::to_string(most) + ", not " + std::to_string(value));
}

template <class T>
T load(const std::byte* from) {
  T value;
  copy_shared(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(const Output& output, std::size_t at, T value) {
  std::memcpy(output.to + at * sizeof(T), &value, sizeof(T));
}

}  // namespace

View::View(const Ring& ring, const ViewSpec& spec)
    : ring_(ring),
      streams_(ring),
      spec_(spec),
      ahead_(std::min<std::size_t>(8, spec.sequence ? spec.length : spec.steps)),
      numbered_(ring.layout().has_steps() && (spec.stack > 1 || spec.sequence)) {
  const int columns = static_cast<int>(ring.layout().schema.size());
  check_range("stack", spec.stack, 1, 1024);
  check_range("steps", spec.steps, 1, kMostSteps);
  check_range("period", spec.period, 1, kMostSteps);
  check_range("burn_in", spec.burn_in, 0, kMostSteps);
  if (spec.sequence && !spec.whole) check_range("length", spec.length, 1, kMostSteps);
  if (!(spec.gamma >= 0 && spec.gamma <= 1)) invalid("gamma must be between 0 and 1");
  if (!(spec.goal_k >= 0 && std::isfinite(spec.goal_k))) invalid("k must be a number >= 0");
  if (spec.goal > GoalStrategy::kEpisode) invalid("unknown strategy for goals");
  if (spec.reward >= columns || spec.terminated >= columns || spec.truncated >= columns) {
    invalid("a view names a column that is not there");
  }
  for (const Column& column : ring.layout().schema) {
    if (!column.variable()) continue;
    invalid("column '" + column.name + "': a view has no place for values whose length varies");
  }
  if (spec.reward >= 0 && ring.rows.place(static_cast<std::size_t>(spec.reward)).in_arena) {
    invalid("a view adds up rewards as they are stored: not compressed");
  }
  const bool steps = ring.layout().has_steps();
  if (!steps && (spec.sequence || spec.stack > 1 || spec.goal != GoalStrategy::kNone)) {
    invalid("of transitions there are only transitions of n steps; the rest needs storage='steps'");
  }
  if (!steps && spec.terminated < 0) invalid("n steps need to know which of them ended an episode");
  for (const int flag : {spec.terminated, spec.truncated}) {
    if (flag >= 0 && ring.rows.bytes(static_cast<std::size_t>(flag)) != 1) {
      invalid("the column that says where an episode ends must be a scalar bool");
    }
  }
}

// Whether a step ended its episode, and whether for good.
bool View::ended(const Place& row, bool& terminated) const {
  if (ring_.layout().has_steps()) {
    terminated = row.has(row_flag::kTerminated);
    return row.has(row_flag::kEnded);
  }
  const auto flag = [&](int column) {
    return column >= 0 &&
           load<std::uint8_t>(ring_.rows.cell(static_cast<std::size_t>(column), row.slot)) != 0;
  };
  terminated = flag(spec_.terminated);
  return terminated || flag(spec_.truncated);
}

bool View::resolve(const Place& start, std::size_t time, Random random, Window& window) const {
  if (start.has(row_flag::kFinal)) return false;
  window.rows.clear();
  window.numbers.clear();
  window.others.clear();
  window.relabelled = false;
  if (spec_.sequence) return resolve_sequence(start, time, window);
  if (!resolve_transition(start, window)) return false;
  if (spec_.goal != GoalStrategy::kNone) choose_goal(random, window);
  return true;
}

// Up to `wanted` rows before the start, and the start itself.
void View::walk_back(const Place& start, std::size_t wanted, bool cross, Window& window) const {
  Place at = start;
  Place to;
  std::size_t steps = 0;
  while (steps < wanted && (cross || !at.has(row_flag::kFirst)) && streams_.previous(at, to)) {
    // A damaged segment may lead backwards into the next episode: its final row is no step of this.
    if (!at.has(row_flag::kFirst) && to.has(row_flag::kFinal)) break;
    push(to, window);
    if (!to.has(row_flag::kFinal)) ++steps;
    at = to;
  }
  std::reverse(window.rows.begin(), window.rows.end());
  std::reverse(window.numbers.begin(), window.numbers.end());
  window.start = window.rows.size();
  push(start, window);
}

// Whether the frames that make up the observation of a row are all there.
bool View::has_frames(const Window& window, std::size_t row) const {
  if (!numbered_) return true;
  return row >= std::min<std::size_t>(window.numbers[row], spec_.stack - 1);
}

bool View::resolve_transition(const Place& start, Window& window) const {
  const bool steps = ring_.layout().has_steps();
  if (spec_.stack > 1) {
    walk_back(start, spec_.stack - 1, false, window);
    if (!has_frames(window, window.start)) return false;
  } else {
    window.start = 0;
    push(start, window);
  }
  window.count = 0;
  window.terminated = false;
  Place to;
  while (window.count < spec_.steps) {
    const Place row = window.rows.back();
    bool terminated = false;
    const bool end = ended(row, terminated);
    if (!steps) {  // the row has what came after it
      ++window.count;
      window.terminated = terminated;
      if (end || window.count == spec_.steps) break;
    }
    if (!streams_.next(row, to) || to.has(row_flag::kFirst)) break;
    push(to, window);
    if (!steps) continue;
    ++window.count;
    window.terminated = terminated;
    if (end || to.has(row_flag::kFinal)) break;
  }
  if (window.count == 0) return false;
  window.after = window.start + window.count - (steps ? 0 : 1);
  return true;
}

// Up to `wanted` steps from the start on, and the row after the last. Returns how many.
std::size_t View::walk_on(std::size_t wanted, Window& window) const {
  const auto step = [&](std::size_t row) {
    window.times.push_back(static_cast<std::int32_t>(row));
    window.after = row;
  };
  step(window.start);
  std::size_t count = 1;
  Place to;
  for (;;) {
    Place row = window.rows.back();
    bool terminated = false;
    const bool end = ended(row, terminated);
    if (!streams_.next(row, to)) break;
    if (end && to.has(row_flag::kFinal)) {
      push(to, window);
      window.after = window.rows.size() - 1;
      if (!spec_.cross || count == wanted) break;
      row = to;
      if (!streams_.next(row, to)) break;
    }
    const bool crosses = to.has(row_flag::kFirst);
    if (crosses && !spec_.cross) break;
    if (to.has(row_flag::kFinal)) break;
    push(to, window);
    if (count == wanted) {
      if (!crosses) window.after = window.rows.size() - 1;
      break;
    }
    step(window.rows.size() - 1);
    ++count;
  }
  return count;
}

bool View::resolve_sequence(const Place& start, std::size_t time, Window& window) const {
  const std::uint32_t number = streams_.link(start).step;
  if (number % spec_.period != 0 || (spec_.whole && number != 0)) return false;
  const std::size_t history = spec_.burn_in + spec_.stack - 1;
  walk_back(start, history, spec_.cross, window);
  if (!has_frames(window, window.start)) return false;
  window.times.assign(spec_.burn_in, -1);
  std::size_t there = 0;
  for (std::size_t row = window.start; row-- > 0 && there < spec_.burn_in;) {
    if (window.rows[row].has(row_flag::kFinal)) continue;
    if (!has_frames(window, row)) break;
    window.times[spec_.burn_in - ++there] = static_cast<std::int32_t>(row);
  }
  const std::size_t most = spec_.whole ? (time != 0 ? time : kMostSteps) : spec_.length;
  window.count = walk_on(most, window);
  if (spec_.whole) {
    const bool end =
        window.rows[static_cast<std::size_t>(window.times.back())].has(row_flag::kEnded);
    return end && window.rows[window.after].has(row_flag::kFinal);
  }
  if (spec_.pad) return true;
  return there == spec_.burn_in && window.count == spec_.length;
}

// Goals are taken from states that were reached: the rows after steps.
void View::choose_goal(Random random, Window& window) const {
  if (random.unit() * (spec_.goal_k + 1) >= spec_.goal_k) return;
  Place row = window.rows[window.start];
  Place to;
  if (spec_.goal == GoalStrategy::kEpisode) {
    Place at = row;
    while (!at.has(row_flag::kFirst)) {
      window.others.push_back(at);  // it is after the step before it
      if (!streams_.previous(at, to) || to.has(row_flag::kFinal)) break;
      at = to;
    }
  }
  bool terminated = false;
  for (bool end = false; !end;) {
    end = ended(row, terminated);
    if (!streams_.next(row, to) || to.has(row_flag::kFirst)) break;
    window.others.push_back(to);
    if (to.has(row_flag::kFinal)) break;
    row = to;
  }
  if (window.others.empty()) return;
  window.goal = spec_.goal == GoalStrategy::kFinal ? window.others.size() - 1
                                                   : random.below(window.others.size());
  window.relabelled = true;
}

bool View::whole(const Window& window) const {
  const auto same = [this](const Place& row) { return streams_.same(row); };
  return std::all_of(window.rows.begin(), window.rows.end(), same) &&
         std::all_of(window.others.begin(), window.others.end(), same);
}

void View::copy_cell(const Output& output, std::byte* to, const Place& row) const {
  const auto column = static_cast<std::size_t>(output.column);
  ring_.rows.copy_cell(column, row.slot, to);
}

// The observation of a row: its frame, or as many as a stack has, the oldest first. What comes
// before the first frame of the episode is that frame again.
std::byte* View::copy_frames(const Output& output, std::byte* to, const Window& window,
                             std::size_t row) const {
  const std::size_t bytes = ring_.rows.bytes(static_cast<std::size_t>(output.column));
  if (!output.stacked) {
    copy_cell(output, to, window.rows[row]);
    return to + bytes;
  }
  const std::size_t number = std::min<std::size_t>(window.numbers[row], row);
  for (std::size_t back = spec_.stack; back-- > 0; to += bytes) {
    copy_cell(output, to, window.rows[row - std::min(back, number)]);
  }
  return to;
}

void View::copy_return(const Output& output, const Window& window, std::size_t at) const {
  const auto column = static_cast<std::size_t>(output.column);
  const bool wide = ring_.layout().schema[column].dtype == DType::kFloat64;
  const std::size_t size = wide ? sizeof(double) : sizeof(float);
  const std::size_t elements = ring_.rows.bytes(column) / size;
  for (std::size_t e = 0; e < elements; ++e) {
    double sum = 0;
    double factor = 1;
    for (std::size_t i = 0; i < window.count; ++i, factor *= spec_.gamma) {
      const std::byte* from =
          ring_.rows.cell(column, window.rows[window.start + i].slot) + e * size;
      sum += factor * (wide ? load<double>(from) : static_cast<double>(load<float>(from)));
    }
    if (wide) {
      store(output, at * elements + e, sum);
    } else {
      store(output, at * elements + e, static_cast<float>(sum));
    }
  }
}

void View::copy_path(const Output& output, const Window& window, std::size_t at) const {
  const std::size_t bytes = ring_.rows.bytes(static_cast<std::size_t>(output.column));
  std::byte* to = output.to + at * spec_.steps * bytes;
  for (std::size_t i = 0; i < window.count; ++i, to += bytes) {
    copy_cell(output, to, window.rows[window.start + 1 + i]);
  }
  std::memset(to, 0, (spec_.steps - window.count) * bytes);
}

// `further` is 1 for the rows after the steps.
void View::copy_steps(const Output& output, const ViewBatch& batch, const Window& window,
                      std::size_t at, std::size_t further) const {
  const std::size_t bytes =
      ring_.rows.bytes(static_cast<std::size_t>(output.column)) * cells(output);
  std::byte* to = output.to + at * batch.time * bytes;
  for (std::size_t t = 0; t < batch.time; ++t) {
    const std::int32_t row = t < window.times.size() ? window.times[t] : -1;
    const bool there = row >= 0 && (further == 0 || has_next(window, row));
    if (there) {
      to = copy_frames(output, to, window, static_cast<std::size_t>(row) + further);
    } else {
      std::memset(to, 0, bytes);
      to += bytes;
    }
  }
}

// Whether the row after a step is of the same episode; it then stands next to it.
bool View::has_next(const Window& window, std::int32_t row) {
  const auto next = static_cast<std::size_t>(row) + 1;
  return next < window.rows.size() && !window.rows[next].has(row_flag::kFirst);
}

void View::copy(const Window& window, const ViewBatch& batch, std::size_t at) const {
  const Place& after = window.rows[window.after];
  for (const Output& output : batch.outputs) {
    const std::size_t cell =
        output.column < 0 ? 0 : ring_.rows.bytes(static_cast<std::size_t>(output.column));
    std::byte* const to = output.to + at * cell * cells(output);
    const auto each_step = [&](auto value) {
      for (std::size_t t = 0; t < batch.time; ++t) {
        const std::int32_t row = t < window.times.size() ? window.times[t] : -1;
        store(output, at * batch.time + t, value(row));
      }
    };
    switch (output.role) {
      case Role::kStart:
        copy_frames(output, to, window, window.start);
        break;
      case Role::kNext:
        copy_frames(output, to, window, window.after);
        break;
      case Role::kLast:
        copy_cell(output, to, window.rows[window.start + window.count - 1]);
        break;
      case Role::kReturn:
        copy_return(output, window, at);
        break;
      case Role::kCount:
      case Role::kLength:
        store(output, at, static_cast<std::int32_t>(window.count));
        break;
      case Role::kDiscount:
        store(output, at,
              window.terminated
                  ? 0.0F
                  : static_cast<float>(std::pow(spec_.gamma, static_cast<double>(window.count))));
        break;
      case Role::kPath:
        copy_path(output, window, at);
        break;
      case Role::kGoal:
        copy_cell(output, to, window.relabelled ? window.others[window.goal] : after);
        break;
      case Role::kRelabelled:
        store(output, at, static_cast<std::uint8_t>(window.relabelled));
        break;
      case Role::kStep:
        copy_steps(output, batch, window, at, 0);
        break;
      case Role::kStepNext:
        copy_steps(output, batch, window, at, 1);
        break;
      case Role::kMask:
        each_step([](std::int32_t row) { return static_cast<std::uint8_t>(row >= 0); });
        break;
      case Role::kFirst:
        each_step([&](std::int32_t row) {
          return static_cast<std::uint8_t>(
              row >= 0 && window.rows[static_cast<std::size_t>(row)].has(row_flag::kFirst));
        });
        break;
      case Role::kNextMask:
        each_step([&](std::int32_t row) {
          return static_cast<std::uint8_t>(row >= 0 && has_next(window, row));
        });
        break;
      case Role::kIds:
        each_step([&](std::int32_t row) {
          return row < 0
                     ? std::int64_t{-1}
                     : static_cast<std::int64_t>(window.rows[static_cast<std::size_t>(row)].id());
        });
        break;
    }
  }
}

std::size_t View::item_bytes(const ViewBatch& batch) const {
  std::size_t sum = 0;
  for (const Output& output : batch.outputs) {
    const std::size_t cell =
        output.column < 0 ? 0 : ring_.rows.bytes(static_cast<std::size_t>(output.column));
    const bool timed = output.role == Role::kStep || output.role == Role::kStepNext;
    const std::size_t times = timed ? batch.time : output.role == Role::kPath ? spec_.steps : 1;
    sum += cell * cells(output) * times;
  }
  return sum;
}

}  // namespace replay_buffer
