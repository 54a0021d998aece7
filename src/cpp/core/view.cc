#include "core/view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// Rows of an item that are fetched before they are looked for.
constexpr std::size_t kFetched = 2048;
constexpr std::size_t kUnknown = 256;  // where an item is as long as its episode
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

// Whether the row after a step is there, and of its episode.
bool has_next(const Window& window, const Window::Item& item, std::int64_t row) {
  const auto next = static_cast<std::size_t>(row) + 1;
  return row >= 0 && next < item.end && !window.rows[next].has(row_flag::kFirst);
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
             (spec.reward < 0 || spec.reward >= static_cast<int>(ring.rows.columns()) ||
              ring.rows.in_record(static_cast<std::size_t>(spec.reward)))),
      nothing_(ring.rows.record_stride()) {
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
  check_follows();
}

void View::check_follows() const {
  const Schema& schema = ring_.layout().schema;
  for (const auto& [obs, next_obs] : spec_.follows) {
    const int columns = static_cast<int>(schema.size());
    if (obs < 0 || next_obs < 0 || obs >= columns || next_obs >= columns) {
      invalid("a view names a column that is not there");
    }
    const Column& one = schema[static_cast<std::size_t>(obs)];
    const Column& other = schema[static_cast<std::size_t>(next_obs)];
    if (one.dtype != other.dtype || one.shape != other.shape || one.codec != other.codec) {
      invalid("columns '" + one.name + "' and '" + other.name +
              "' cannot be compared: they are stored in different ways");
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

// The rows of a stack before the start, as far as the episode goes, and the start itself.
void View::walk_back(const Place& start, Window& window, Window::Item& item) const {
  Place at = start;
  Place to{};
  for (std::uint32_t i = 1; i < spec_.stack && !at.has(row_flag::kFirst); ++i) {
    // A damaged segment may lead backwards into another episode: its final row is no step of this.
    if (!streams_.previous(at, to) || to.has(row_flag::kFinal)) break;
    push(to, window);
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
  walk_back(start, window, item);
  if (!has_frames(window, item, item.start)) return false;
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
    if (!steps && !continues(ring_.rows.record(row.slot), ring_.rows.record(to.slot))) break;
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

// The rows of a block are overwritten one after the other: where the first of a stretch is still
// there, so are those behind it.
bool View::whole(const Window& window, const Window::Item& item) const {
  for (std::size_t i = item.stretch; i < item.stretch_end; ++i) {
    if (!streams_.same(window.stretches[i][0])) return false;
  }
  for (std::size_t i = item.first; i < item.end && !spec_.sequence; ++i) {
    if (!streams_.same(window.rows[i])) return false;
  }
  for (std::size_t i = item.others; i < item.others_end; ++i) {
    if (!streams_.same(window.others[i])) return false;
  }
  return true;
}

void Window::list(std::uint64_t slot) {
  if (!listed.empty()) {
    Rows::Evenly& last = listed.back();
    const bool none = slot == Rows::Evenly::kNone;
    if (none == (last.slot == Rows::Evenly::kNone)) {
      if (last.n == 1 && !none) last.distance = slot - last.slot;
      if (none || slot == last.slot + last.n * last.distance) {
        ++last.n;
        return;
      }
    }
  }
  listed.push_back({slot, 0, 1});
}

// The observation of a row: its frame, or as many as a stack has, the oldest first. What comes
// before the first frame of the episode is that frame again.
void View::list_frames(bool stacked, std::int64_t row, Window& window,
                       const Window::Item& item) const {
  const std::size_t frames = stacked ? spec_.stack : 1;
  const auto at = static_cast<std::size_t>(row);
  for (std::size_t back = frames; back-- > 0;) {
    if (row < 0) {
      window.list(Rows::Evenly::kNone);
    } else if (back == 0) {
      window.list(window.rows[at].slot);
    } else {
      const std::size_t number = std::min<std::size_t>(window.numbers[at], at - item.first);
      window.list(window.rows[at - std::min(back, number)].slot);
    }
  }
}

// Lists the rows whose cells an array is made of.
void View::list_rows(const Output& output, std::size_t time, Window& window) const {
  window.listed.clear();
  window.records.clear();
  for (const Window::Item& item : window.items) {
    if (!item.made) {
      for (std::size_t i = cells(output, time); i-- > 0;) window.list(Rows::Evenly::kNone);
      continue;
    }
    switch (output.role) {
      case Role::kNext:
        list_frames(output.stacked, item.after, window, item);
        break;
      case Role::kLast:
        list_frames(false, item.start + item.count - 1, window, item);
        break;
      case Role::kRows:
        for (std::uint32_t i = 0; i <= spec_.steps; ++i) {
          const std::int64_t row = i <= item.count ? std::int64_t{item.start} + i : -1;
          list_frames(output.stacked, row, window, item);
        }
        break;
      case Role::kGoal:
        if (item.relabelled) {
          window.list(window.others[item.goal].slot);
        } else {
          list_frames(false, item.after, window, item);
        }
        break;
      case Role::kStep:
      case Role::kStepNext:
        for (std::size_t t = 0; t < time; ++t) {
          std::int64_t row = item.times + t < item.times_end ? window.times[item.times + t] : -1;
          if (output.role == Role::kStepNext) row = has_next(window, item, row) ? row + 1 : -1;
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
      case Role::kNextMask:
        for (std::size_t t = 0; t < time; ++t) {
          const bool there = item.made && item.times + t < item.times_end &&
                             has_next(window, item, window.times[item.times + t]);
          store(output, at * time + t, static_cast<std::uint8_t>(there));
        }
        break;
      default:
        break;
    }
    ++at;
  }
}

bool View::ample(const Window& window) const {
  constexpr std::size_t kNear = 4 * 1024;
  return (window.rows.size() + window.found) * ring_.layout().record_stride >= kNear;
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
  if (spec_.sequence && needs_rows(batch)) list_stretches(window);
  const Output* listed = nullptr;  // what window.listed is of
  for (const Output& output : batch.outputs) {
    if (output.role == Role::kReturn) {
      copy_returns(output, window, at);
    } else if (output.role == Role::kMask || output.role == Role::kFirst ||
               output.role == Role::kIds) {
      copy_marks(output, window, batch.time, at);
    } else if (output.column < 0) {
      copy_numbers(output, window, batch.time, at);
    } else {
      if (listed == nullptr || listed->role != output.role || listed->stacked != output.stacked) {
        output.role == Role::kStep && !output.stacked ? list_steps(batch.time, window)
                                                      : list_rows(output, batch.time, window);
        listed = &output;
      }
      const auto column = static_cast<std::size_t>(output.column);
      const std::size_t to = at * cells(output, batch.time);
      if (window.records.empty() || !ring_.rows.in_record(column)) {
        ring_.rows.gather_column(column, window.listed, output.to, to);
      } else {
        ring_.rows.gather_records(column, window.records, output.to, to);
      }
    }
  }
}

// Cells of an item in an array.
std::size_t View::cells(const Output& output, std::size_t time) const {
  const std::size_t frames = output.stacked ? spec_.stack : 1;
  if (output.role == Role::kStep || output.role == Role::kStepNext) return frames * time;
  return output.role == Role::kRows ? frames * (spec_.steps + 1) : frames;
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
