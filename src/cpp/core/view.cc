#include "core/view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// More steps than this in one item would be a mistake.
constexpr std::uint32_t kMostSteps = 1U << 20;
// Rows of an item that are fetched before they are looked for.
constexpr std::size_t kFetched = 2048;
constexpr std::size_t kUnknown = 256;  // where an item is as long as its episode
// Rows that are looked for at once.
constexpr std::size_t kAtOnce = 128;
// Transitions of more steps than this are not made together.
constexpr std::size_t kFewSteps = 64;

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_range(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  invalid(std::string(name) + " must be between " + std::to_string(least) + " and " +
          std::to_string(most) + ", not " + std::to_string(value));
}

bool in_record(const Rows& rows, int column) {
  const auto c = static_cast<std::size_t>(column);
  return c >= rows.columns() || !rows.place(c).own_array;
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
      longest_(std::min<std::size_t>(spec.steps, ring.rows.capacity())),
      before_(std::min<std::size_t>(kFetched, spec.burn_in + spec.stack - 1)),
      after_(std::min<std::size_t>(kFetched, !spec.sequence     ? spec.steps
                                             : spec.length == 0 ? kUnknown
                                                                : spec.length)),
      numbered_(ring.layout().has_steps() && spec.stack > 1),
      plain_(!spec.sequence && spec.stack == 1 && spec.goal == GoalStrategy::kNone &&
             longest_ <= kFewSteps && ring.rows.words_in_records() &&
             (spec.reward < 0 || in_record(ring.rows, spec.reward))) {
  const int columns = static_cast<int>(ring.layout().schema.size());
  for (std::uint32_t k = 0; k <= std::min(spec.steps, kMostSteps); ++k) {
    discounts_.push_back(static_cast<float>(std::pow(spec.gamma, static_cast<double>(k))));
    factors_.push_back(k == 0 ? 1 : factors_.back() * spec.gamma);
  }
  check_range("stack", spec.stack, 1, 1024);
  check_range("steps", spec.steps, 1, kMostSteps);
  check_range("period", spec.period, 1, kMostSteps);
  check_range("burn_in", spec.burn_in, 0, kMostSteps);
  if (spec.sequence) check_range("length", spec.length, spec.whole ? 0 : 1, kMostSteps);
  if (!(spec.gamma >= 0 && spec.gamma <= 1)) invalid("gamma must be between 0 and 1");
  if (!(spec.goal_k >= 0 && std::isfinite(spec.goal_k))) invalid("k must be a number >= 0");
  if (spec.goal > GoalStrategy::kEpisode) invalid("unknown strategy for goals");
  if (spec.reward >= columns || spec.terminated >= columns || spec.truncated >= columns) {
    invalid("a view names a column that is not there");
  }
  if (spec.reward >= 0) {
    if (ring.rows.place(static_cast<std::size_t>(spec.reward)).in_arena) {
      invalid("a view adds up rewards as they are stored: not compressed");
    }
    const auto column = static_cast<std::size_t>(spec.reward);
    returns_ = ring.rows.bytes(column) / ring.rows.place(column).width;
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
  const std::byte* const record = ring_.rows.record(row.slot);
  terminated = terminates(record);
  return terminated || flag(spec_.truncated, record);
}

bool View::resolve(const Place& start, std::size_t time, Random random, Window& window) const {
  Window::Item item;
  item.first = static_cast<std::uint32_t>(window.rows.size());
  item.times = static_cast<std::uint32_t>(window.times.size());
  item.others = static_cast<std::uint32_t>(window.others.size());
  item.made = !start.has(row_flag::kFinal) && find_rows(start, time, random, window, item);
  item.end = static_cast<std::uint32_t>(window.rows.size());
  item.times_end = static_cast<std::uint32_t>(window.times.size());
  item.others_end = static_cast<std::uint32_t>(window.others.size());
  window.items.push_back(item);
  return item.made;
}

bool View::find_rows(const Place& start, std::size_t time, Random random, Window& window,
                     Window::Item& item) const {
  if (spec_.sequence) return find_sequence(start, time, window, item);
  if (!find_transition(start, window, item)) return false;
  if (spec_.goal != GoalStrategy::kNone) choose_goal(random, window, item);
  return true;
}

// Adds the ordinary steps next to a row, up to `most`, as many as Streams finds at once.
std::size_t View::run(const Place& from, std::size_t most,
                      std::size_t (Streams::*walk)(const Place&, std::size_t, Place*) const,
                      Window& window) const {
  Place found[kAtOnce];
  const std::size_t n = (streams_.*walk)(from, std::min(most, kAtOnce), found);
  window.rows.insert(window.rows.end(), found, found + n);
  for (std::size_t i = 0; i < n && numbered_; ++i) {
    window.numbers.push_back(streams_.link(found[i]).step);
  }
  return n;
}

// Up to `wanted` steps before the start, and the start itself.
void View::walk_back(const Place& start, std::size_t wanted, Window& window,
                     Window::Item& item) const {
  Place at = start;
  Place to{};
  std::size_t steps = 0;
  while (steps < wanted && (spec_.cross || !at.has(row_flag::kFirst))) {
    if (!at.has(row_flag::kFirst)) {
      const std::size_t n = run(at, wanted - steps, &Streams::run_back, window);
      if (n > 0) at = window.rows.back();
      steps += n;
      if (steps == wanted) break;
    }
    if (!streams_.previous(at, to)) break;
    // A damaged segment may lead backwards into another episode: its final row is no step of this.
    if (!at.has(row_flag::kFirst) && to.has(row_flag::kFinal)) break;
    push(to, window);
    if (!to.has(row_flag::kFinal)) ++steps;
    at = to;
  }
  std::reverse(window.rows.begin() + item.first, window.rows.end());
  if (numbered_) std::reverse(window.numbers.begin() + item.first, window.numbers.end());
  item.start = static_cast<std::uint32_t>(window.rows.size());
  push(start, window);
}

// Whether the frames that make up the observation of a row are all there.
bool View::has_frames(const Window& window, const Window::Item& item, std::size_t row) const {
  return !numbered_ ||
         row - item.first >= std::min<std::size_t>(window.numbers[row], spec_.stack - 1);
}

bool View::find_transition(const Place& start, Window& window, Window::Item& item) const {
  const bool steps = ring_.layout().has_steps();
  if (spec_.stack > 1) {
    walk_back(start, spec_.stack - 1, window, item);
    if (!has_frames(window, item, item.start)) return false;
  } else {
    item.start = item.first;
    push(start, window);
  }
  Place row = start;
  Place to{};
  while (item.count < spec_.steps) {
    bool terminated = false;
    const bool end = ended(row, terminated);
    if (!steps) {  // the row has what came after it
      ++item.count;
      item.terminated = terminated;
      if (end || item.count == spec_.steps) break;
    }
    if (!streams_.next(row, to) || to.has(row_flag::kFirst)) break;
    push(to, window);
    row = to;
    if (!steps) continue;
    ++item.count;
    item.terminated = terminated;
    if (end || to.has(row_flag::kFinal)) break;
  }
  item.after = item.start + item.count - (steps ? 0 : 1);
  return item.count > 0;
}

// Up to `wanted` steps from the start on, and the row after the last.
void View::walk_on(std::size_t wanted, Window& window, Window::Item& item) const {
  const auto step = [&](std::size_t row) {
    window.times.push_back(static_cast<std::int64_t>(row));
    item.after = static_cast<std::uint32_t>(row);
    ++item.count;
  };
  step(item.start);
  Place row = window.rows.back();
  Place to{};
  for (;;) {
    bool terminated = false;
    const bool end = ended(row, terminated);
    if (!end && item.count < wanted) {
      const std::size_t n = run(row, wanted - item.count, &Streams::run, window);
      const std::size_t first = window.rows.size() - n;
      const std::size_t known = window.times.size();
      window.times.resize(known + n);
      std::iota(window.times.begin() + static_cast<std::ptrdiff_t>(known), window.times.end(),
                static_cast<std::int64_t>(first));
      item.count += static_cast<std::uint32_t>(n);
      if (n > 0) item.after = static_cast<std::uint32_t>(window.rows.size() - 1);
      row = window.rows.back();
      if (n > 0 && item.count < wanted) continue;
    }
    if (!streams_.next(row, to)) return;
    if (end && to.has(row_flag::kFinal)) {
      push(to, window);
      item.after = static_cast<std::uint32_t>(window.rows.size() - 1);
      if (!spec_.cross || item.count == wanted) return;
      row = to;
      if (!streams_.next(row, to)) return;
    }
    const bool crosses = to.has(row_flag::kFirst);
    if (to.has(row_flag::kFinal) || (crosses && !spec_.cross)) return;
    push(to, window);
    if (item.count == wanted) {
      if (!crosses) item.after = static_cast<std::uint32_t>(window.rows.size() - 1);
      return;
    }
    step(window.rows.size() - 1);
    row = to;
  }
}

bool View::find_sequence(const Place& start, std::size_t time, Window& window,
                         Window::Item& item) const {
  if (!may_start(start.slot)) return false;
  walk_back(start, spec_.burn_in + spec_.stack - 1, window, item);
  if (!has_frames(window, item, item.start)) return false;
  window.times.resize(item.times + spec_.burn_in, -1);
  std::size_t there = 0;
  for (std::size_t row = item.start; row-- > item.first && there < spec_.burn_in;) {
    if (window.rows[row].has(row_flag::kFinal)) continue;
    if (!has_frames(window, item, row)) break;
    window.times[item.times + spec_.burn_in - ++there] = static_cast<std::int64_t>(row);
  }
  const std::size_t whole = spec_.length != 0 ? spec_.length : time != 0 ? time : kMostSteps;
  walk_on(spec_.whole ? whole : spec_.length, window, item);
  if (spec_.whole) {
    const auto last = static_cast<std::size_t>(window.times.back());
    return window.rows[last].has(row_flag::kEnded) && window.rows[item.after].has(row_flag::kFinal);
  }
  return spec_.pad || (there == spec_.burn_in && item.count == spec_.length);
}

// Goals are taken from states that were reached: the rows after steps.
void View::choose_goal(Random random, Window& window, Window::Item& item) const {
  if (random.unit() * (spec_.goal_k + 1) >= spec_.goal_k) return;
  Place row = window.rows[item.start];
  Place to{};
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
  const std::size_t n = window.others.size() - item.others;
  if (n == 0) return;
  const std::size_t chosen = spec_.goal == GoalStrategy::kFinal ? n - 1 : random.below(n);
  item.goal = static_cast<std::uint32_t>(item.others + chosen);
  item.relabelled = true;
}

bool View::whole(const Window& window, const Window::Item& item) const {
  for (std::size_t i = item.first; i < item.end; ++i) {
    if (!streams_.same(window.rows[i])) return false;
  }
  for (std::size_t i = item.others; i < item.others_end; ++i) {
    if (!streams_.same(window.others[i])) return false;
  }
  return true;
}

// The observation of a row: its frame, or as many as a stack has, the oldest first. What comes
// before the first frame of the episode is that frame again.
void View::list_frames(bool stacked, std::int64_t row, Window& window,
                       const Window::Item& item) const {
  const auto slot = [&](std::size_t of) {
    window.listed.slots.push_back(static_cast<std::int64_t>(window.rows[of].slot));
  };
  if (row < 0) {
    window.listed.slots.insert(window.listed.slots.end(), stacked ? spec_.stack : 1, -1);
  } else if (!stacked) {
    slot(static_cast<std::size_t>(row));
  } else {
    const auto at = static_cast<std::size_t>(row);
    const std::size_t number = std::min<std::size_t>(window.numbers[at], at - item.first);
    for (std::size_t back = spec_.stack; back-- > 0;) slot(at - std::min(back, number));
  }
}

// The rows of a sequence's steps, one after the other.
void View::list_steps(std::size_t time, Window& window, const Window::Item& item) {
  const std::size_t size = window.listed.slots.size();
  window.listed.slots.resize(size + time, -1);
  std::int64_t* slots = window.listed.slots.data() + size;
  const std::int64_t* rows = window.times.data() + item.times;
  const std::size_t steps = std::min<std::size_t>(time, item.times_end - item.times);
  for (std::size_t t = 0; t < steps; ++t) {
    if (rows[t] >= 0) {
      slots[t] = static_cast<std::int64_t>(window.rows[static_cast<std::size_t>(rows[t])].slot);
    }
  }
}

// Fills window.listed with the rows whose cells an array is made of, one after the other; -1 is a
// cell of zeros.
void View::list_slots(const Output& output, std::size_t time, Window& window) const {
  window.listed.slots.clear();
  for (const Window::Item& item : window.items) {
    if (!item.made) {
      window.listed.slots.insert(window.listed.slots.end(), cells(output, time), -1);
      continue;
    }
    const auto has_next = [&](std::int64_t row) {
      const auto next = static_cast<std::size_t>(row) + 1;
      return row >= 0 && next < item.end && !window.rows[next].has(row_flag::kFirst);
    };
    switch (output.role) {
      case Role::kNext:
        list_frames(output.stacked, item.after, window, item);
        break;
      case Role::kLast:
        list_frames(false, item.start + item.count - 1, window, item);
        break;
      case Role::kPath:
        for (std::uint32_t i = 0; i < spec_.steps; ++i) {
          list_frames(false, i < item.count ? std::int64_t{item.start} + 1 + i : -1, window, item);
        }
        break;
      case Role::kGoal:
        if (item.relabelled) {
          window.listed.slots.push_back(static_cast<std::int64_t>(window.others[item.goal].slot));
        } else {
          list_frames(false, item.after, window, item);
        }
        break;
      case Role::kStep:
        if (!output.stacked) {
          list_steps(time, window, item);
          break;
        }
        [[fallthrough]];
      case Role::kStepNext:
        for (std::size_t t = 0; t < time; ++t) {
          std::int64_t row = item.times + t < item.times_end ? window.times[item.times + t] : -1;
          if (output.role == Role::kStepNext) row = has_next(row) ? row + 1 : -1;
          list_frames(output.stacked, row, window, item);
        }
        break;
      default:
        list_frames(output.stacked, item.start, window, item);
        break;
    }
  }
}

// Arrays that are not columns.
void View::copy_numbers(const Output& output, const Window& window, std::size_t time,
                        std::size_t at) const {
  for (const Window::Item& item : window.items) {
    const auto each_step = [&](auto value) {
      const std::size_t steps = item.made ? item.times_end - item.times : 0;
      const std::int64_t* rows = window.times.data() + item.times;
      for (std::size_t t = 0; t < time; ++t) {
        const std::int64_t row = t < steps ? rows[t] : -1;
        store(output, at * time + t, value(row, static_cast<std::size_t>(row)));
      }
    };
    switch (output.role) {
      case Role::kCount:
      case Role::kLength:
        store(output, at, static_cast<std::int32_t>(item.count));
        break;
      case Role::kDiscount:
        store(output, at, item.terminated ? 0.0F : discounts_[item.count]);
        break;
      case Role::kRelabelled:
        store(output, at, static_cast<std::uint8_t>(item.relabelled));
        break;
      case Role::kMask:
        each_step(
            [](std::int64_t row, std::size_t) { return static_cast<std::uint8_t>(row >= 0); });
        break;
      case Role::kFirst:
        each_step([&](std::int64_t row, std::size_t i) {
          return static_cast<std::uint8_t>(row >= 0 && window.rows[i].has(row_flag::kFirst));
        });
        break;
      case Role::kNextMask:
        each_step([&](std::int64_t row, std::size_t i) {
          return static_cast<std::uint8_t>(row >= 0 && i + 1 < item.end &&
                                           !window.rows[i + 1].has(row_flag::kFirst));
        });
        break;
      case Role::kIds:
        each_step([&](std::int64_t row, std::size_t i) {
          return row < 0 ? std::int64_t{-1} : static_cast<std::int64_t>(window.rows[i].id());
        });
        break;
      default:
        break;
    }
    ++at;
  }
}

bool View::ample(const Window& window) const {
  constexpr std::size_t kNear = 4 * 1024;
  return window.rows.size() * ring_.layout().record_stride >= kNear;
}

void View::copy_returns(const Output& output, const Window& window, std::size_t at) const {
  const auto column = static_cast<std::size_t>(output.column);
  const std::size_t bytes = ring_.rows.bytes(column);
  with_reward_type([&]<class T>(T) {
    std::byte* to = output.to + at * bytes;
    for (const Window::Item& item : window.items) {
      for (std::size_t e = 0; e < bytes; e += sizeof(T), to += sizeof(T)) {
        copy_return<T>(item.count, to, [&](std::size_t t) {
          return ring_.rows.cell(column, window.rows[item.start + t].slot) + e;
        });
      }
    }
  });
}

void View::copy(Window& window, const ViewBatch& batch, std::size_t at) const {
  const Output* listed = nullptr;  // what window.listed is of
  for (const Output& output : batch.outputs) {
    if (output.role == Role::kReturn) {
      copy_returns(output, window, at);
    } else if (output.column < 0) {
      copy_numbers(output, window, batch.time, at);
    } else {
      if (listed == nullptr || listed->role != output.role || listed->stacked != output.stacked) {
        list_slots(output, batch.time, window);
        window.listed.stretch();
        listed = &output;
      }
      const auto column = static_cast<std::size_t>(output.column);
      ring_.rows.gather_column(column, window.listed, output.to, at * cells(output, batch.time));
    }
  }
}

// Cells of an item in an array.
std::size_t View::cells(const Output& output, std::size_t time) const {
  const std::size_t frames = output.stacked ? spec_.stack : 1;
  if (output.role == Role::kStep || output.role == Role::kStepNext) return frames * time;
  return output.role == Role::kPath ? spec_.steps : frames;
}

std::size_t View::together(const ViewBatch& batch, bool shared_out) const {
  constexpr std::size_t kTask = 64 * 1024;     // bytes of a batch that one thread takes at a time
  constexpr std::size_t kCached = 256 * 1024;  // of rows that are still there when they are copied
  constexpr std::size_t kPlaces = 64 * 1024;   // rows of a window
  if (plain_ && !shared_out) return batch.rows;
  const std::size_t rows = spec_.sequence ? batch.time + 1 : longest_ + spec_.stack;
  const std::size_t most = std::max<std::size_t>(1, std::min(kRun, kPlaces / rows));
  const std::size_t fitting = shared_out ? kTask / std::max<std::size_t>(1, item_bytes(batch))
                                         : kCached / (rows * ring_.layout().record_stride);
  return std::clamp<std::size_t>(fitting, 1, most);
}

void View::fetch(std::span<const std::uint64_t> slots) const {
  std::uint64_t apart[kRun];
  std::size_t n = 0;
  for (const std::uint64_t slot : slots) {
    if (may_start(slot) && !streams_.side_by_side(slot)) apart[n++] = slot;
  }
  streams_.fetch_apart({apart, n}, before_, after_, spec_.cross);
}

std::size_t View::item_bytes(const ViewBatch& batch) const {
  std::size_t sum = 0;
  for (const Output& output : batch.outputs) {
    if (output.column < 0) continue;
    sum += cells(output, batch.time) * ring_.rows.bytes(static_cast<std::size_t>(output.column));
  }
  return sum;
}

}  // namespace replay_buffer
