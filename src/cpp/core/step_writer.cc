#include "core/step_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "os/process.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

template <class T>
double number(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return static_cast<double>(value);
}

}  // namespace

StepWriter::StepWriter(Buffer& buffer, std::size_t streams, Autoreset autoreset,
                       std::vector<bool> observed, int reward)
    : buffer_(buffer),
      ring_(buffer.ring()),
      autoreset_(autoreset),
      observed_(std::move(observed)),
      reward_(reward),
      writer_(ring_, buffer.identity(), &buffer.reaper()),
      generation_(os::fork_generation()) {
  if (!ring_.layout().has_steps()) {
    throw Error(ErrorCode::kInvalidArgument, "this buffer stores transitions, not steps");
  }
  if (autoreset != Autoreset::SameStep && autoreset != Autoreset::NextStep) {
    throw Error(ErrorCode::kInvalidArgument,
                "autoreset is SameStep or NextStep, not " +
                    std::to_string(static_cast<std::uint32_t>(autoreset)));
  }
  if (streams == 0 || streams > kMaxStreams) {
    throw Error(ErrorCode::kInvalidArgument, "a writer has 1 to " + std::to_string(kMaxStreams) +
                                                 " streams, not " + std::to_string(streams));
  }
  if (2 * streams > ring_.rows.capacity()) {
    throw Error(ErrorCode::kInvalidArgument,
                "a writer of " + std::to_string(streams) +
                    " streams needs a capacity of at least " + std::to_string(2 * streams) +
                    " rows, this one is " + std::to_string(ring_.rows.capacity()));
  }
  observed_.resize(ring_.layout().schema.size(), false);
  streams_.resize(streams);
  marks_.resize(streams);
  ending_.resize(streams);
  flags_.resize(streams);
}

StepWriter::~StepWriter() { close(); }

// In the child of a fork: see Buffer::rejoin().
void StepWriter::rejoin() {
  writer_.become(buffer_.identity());
  generation_ = os::fork_generation();
}

std::size_t StepWriter::next_steps() const {
  const std::lock_guard guard(lock_);
  return static_cast<std::size_t>(
      std::count_if(streams_.begin(), streams_.end(), [](const Stream& s) { return !s.ending; }));
}

std::vector<bool> StepWriter::ending() const {
  const std::lock_guard guard(lock_);
  std::vector<bool> ending(streams_.size());
  std::transform(streams_.begin(), streams_.end(), ending.begin(),
                 [](const Stream& s) { return s.ending; });
  return ending;
}

void StepWriter::check(const StepBatch& batch) const {
  const bool same_step = autoreset_ == Autoreset::SameStep;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (!same_step || flags_[i] == 0 || batch.finals != nullptr) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "the episode of stream " + std::to_string(i) +
                    " ended and final_obs is missing; with autoreset='next_step' it comes with the "
                    "next call; nothing was written");
  }
  if (!ring_.rows.has_arenas()) return;
  const std::byte* observed[kMaxColumns];
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const auto check_observed = [&](const std::byte* const* columns) {
      for (std::size_t c = 0; c < observed_.size(); ++c) {
        observed[c] = observed_[c] ? columns[c] : nullptr;
      }
      Packed::check(ring_.layout(), i, observed);
    };
    if (streams_[i].ending) {
      check_observed(batch.columns);
    } else {
      Packed::check(ring_.layout(), i, batch.columns);
    }
    if (same_step && flags_[i] != 0) check_observed(batch.finals);
  }
}

// A new writer goes on where one that is closed left room: all its first rows begin episodes, and
// have nothing behind them.
void StepWriter::resume() {
  std::optional<Room> left;
  do {
    left = buffer_.unfilled().take(streams_.size());
  } while (left && !writer_.resume(*left));
}

// What rows say of distances holds within a chain: where it was broken, episodes lose their start.
void StepWriter::begin_chain() {
  if (chain_ == 0) resume();
  writer_.begin();
  if (writer_.chain() == chain_) return;
  chain_ = writer_.chain();
  position_ = 0;
  for (Stream& stream : streams_) stream.whole = stream.linked = false;
}

// Stream i's row of this call lies at position_ + i, that of the next at position_ + K + extras +
// i, and between them the last observations.
Mark StepWriter::mark(std::size_t i, bool end, std::size_t extra, std::size_t extras,
                      std::uint64_t flags) {
  Stream& stream = streams_[i];
  const std::size_t k = streams_.size();
  Mark mark;
  mark.flags = flags;
  if (!stream.open) {
    stream.steps = 0;
    stream.sum = 0;
    stream.whole = true;
    mark.flags |= row_flag::kFirst;
  }
  const std::uint64_t at = position_ + i;
  mark.link.behind = static_cast<std::uint16_t>(stream.linked ? at - stream.last : 0);
  mark.link.ahead = static_cast<std::uint16_t>(end ? k - i + extra : k + extras);
  mark.link.step = stream.steps++;
  stream.last = at;
  stream.open = stream.linked = true;
  return mark;
}

Mark StepWriter::final_mark(std::size_t i, std::size_t extra, std::size_t extras) {
  Stream& stream = streams_[i];
  const std::uint64_t at = position_ + streams_.size() + extra;
  Mark mark;
  mark.flags = row_flag::kFinal;
  mark.link.behind = static_cast<std::uint16_t>(at - stream.last);
  mark.link.ahead = static_cast<std::uint16_t>(extras - extra + i);
  mark.link.step = stream.steps;
  stream.last = at;
  stream.open = false;
  return mark;
}

// The values of a column from row i on.
const std::byte* StepWriter::row_of(const std::byte* values, std::size_t column, std::size_t i,
                                    Ragged& ragged) const {
  if (!ring_.rows.place(column).variable()) return values + i * ring_.rows.bytes(column);
  ragged = *reinterpret_cast<const Ragged*>(values);
  ragged.offsets += i;
  return reinterpret_cast<const std::byte*>(&ragged);
}

// Rows [from, end) of the batch, all steps or all last observations.
void StepWriter::write(const StepBatch& batch, std::size_t from, std::size_t end, bool final) {
  const std::byte* columns[kMaxColumns];
  Ragged ragged[kMaxColumns];
  for (std::size_t c = 0; c < observed_.size(); ++c) {
    const bool there = !final || observed_[c];
    columns[c] = there ? row_of(batch.columns[c], c, from, ragged[c]) : nullptr;
  }
  writer_.append(end - from, columns, batch.raws == nullptr ? nullptr : batch.raws + from,
                 batch.ids == nullptr ? nullptr : batch.ids + from, marks_.data() + from);
}

void StepWriter::append(const StepBatch& batch) {
  const std::lock_guard guard(lock_);
  if (generation_ != os::fork_generation()) [[unlikely]]
    rejoin();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    flags_[i] = static_cast<std::uint8_t>((batch.terminated[i] != 0 ? row_flag::kTerminated : 0) |
                                          (batch.truncated[i] != 0 ? row_flag::kTruncated : 0));
  }
  check(batch);
  begin_chain();
  for (std::size_t i = 0; i < streams_.size(); ++i) ending_[i] = streams_[i].ending ? 1 : 0;
  try {
    write_step(batch);
  } catch (...) {
    // Some rows may be there. What comes now is of another chain, and meant as this call was.
    writer_.close();
    take_back();
    throw;
  }
}

// Streams are as they were before a call that failed.
void StepWriter::take_back() {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.ending = ending_[i] != 0;
    if (!stream.linked || stream.last < position_) continue;  // it had not come to this one
    --stream.steps;
    stream.open = stream.steps != 0;
  }
}

void StepWriter::write_step(const StepBatch& batch) {
  const std::size_t k = streams_.size();
  const bool same_step = autoreset_ == Autoreset::SameStep;
  std::vector<std::size_t> ended;     // whose last observations follow
  std::vector<std::size_t> finished;  // those, and those whose last observations come later
  std::size_t extras = 0;
  for (std::size_t i = 0; i < k && same_step; ++i) {
    extras += flags_[i] != 0 ? 1 : 0;
  }
  std::size_t from = 0;  // of the run of rows that is written together
  bool finals = false;
  for (std::size_t i = 0; i < k; ++i) {
    Stream& stream = streams_[i];
    const bool final = stream.ending;
    if (i > from && final != finals) {
      write(batch, from, i, finals);
      from = i;
    }
    finals = final;
    if (final) {
      marks_[i] = mark(i, false, 0, extras, row_flag::kFinal);
      stream.open = stream.ending = false;
      continue;
    }
    const bool end = flags_[i] != 0;
    marks_[i] = mark(i, end && same_step, ended.size(), extras, flags_[i]);
    stream.sum += reward_of(batch, i);
    if (!end) continue;
    finished.push_back(i);
    if (same_step) {
      ended.push_back(i);
    } else {
      stream.ending = true;
    }
  }
  write(batch, from, k, finals);
  for (std::size_t e = 0; e < ended.size(); ++e) {
    const std::size_t i = ended[e];
    const std::byte* columns[kMaxColumns];
    Ragged ragged[kMaxColumns];
    for (std::size_t c = 0; c < observed_.size(); ++c) {
      columns[c] = observed_[c] ? row_of(batch.finals[c], c, i, ragged[c]) : nullptr;
    }
    const Mark last = final_mark(i, e, extras);
    writer_.append(1, columns, nullptr, nullptr, &last);
  }
  position_ += k + ended.size();
  for (const std::size_t i : finished) {
    if (streams_[i].whole) finish_episode(streams_[i]);
  }
}

void StepWriter::end(std::size_t stream) {
  const std::lock_guard guard(lock_);
  if (stream >= streams_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "there is no stream " + std::to_string(stream) +
                                                 " among " + std::to_string(streams_.size()));
  }
  streams_[stream].open = streams_[stream].ending = false;
}

void StepWriter::close() {
  const std::lock_guard guard(lock_);
  if (generation_ != os::fork_generation()) {
    writer_.become({});  // the block of a writer that a fork copied is the parent's
    return;
  }
  const std::optional<std::uint64_t> left = writer_.unfilled();
  writer_.close();
  for (Stream& stream : streams_) stream.open = false;
  if (left) buffer_.unfilled().put({*left, 0}, streams_.size());
}

double StepWriter::reward_of(const StepBatch& batch, std::size_t stream) const {
  if (reward_ < 0) return 0;
  const auto column = static_cast<std::size_t>(reward_);
  const std::byte* from = batch.columns[column] + stream * ring_.rows.bytes(column);
  return ring_.layout().schema[column].dtype == DType::kFloat64 ? number<double>(from)
                                                                : number<float>(from);
}

void StepWriter::finish_episode(const Stream& stream) const {
  Counters& counters = ring_.counters();
  const std::uint64_t n = counters.episodes.fetch_add(1, std::memory_order_relaxed);
  counters.episode_steps.fetch_add(stream.steps, std::memory_order_relaxed);
  std::uint64_t seen = counters.return_bits.load(std::memory_order_relaxed);
  while (!counters.return_bits.compare_exchange_weak(
      seen, std::bit_cast<std::uint64_t>(std::bit_cast<double>(seen) + stream.sum),
      std::memory_order_relaxed)) {
  }
  Episode& latest = ring_.segment->episodes()[n % kEpisodeCount];
  latest.steps.store(stream.steps, std::memory_order_relaxed);
  latest.return_bits.store(std::bit_cast<std::uint64_t>(stream.sum), std::memory_order_relaxed);
}

}  // namespace replay_buffer
