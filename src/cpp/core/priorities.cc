#include "core/priorities.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "os/crash_point.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kChunk = 256;  // rows updated at a time

// A leaf is 0 only when its base is 0.
constexpr float kLeastWeight = std::numeric_limits<float>::min();

// As many leaves as there are rows still add up.
float most_weight(std::size_t capacity) {
  return std::ldexp(1.0F, 127 - static_cast<int>(std::bit_width(capacity)));
}

// Of the two zeros the one that is a priority.
float positive(float raw) { return raw + 0.0F; }

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

Priorities::Priorities(const Segment& segment)
    : counters_(segment.counters()),
      words_(segment.priorities()),
      tree_(segment.weights(), segment.sums(),
            segment.layout().has_lows() ? segment.lows() : nullptr,
            segment.layout().settings.capacity),
      capacity_(segment.layout().settings.capacity),
      inverse_(1 / static_cast<double>(capacity_)),
      block_rows_(segment.layout().settings.block_rows),
      block_count_(segment.layout().block_count),
      blocks_(segment.blocks()),
      fills_(segment.fills()),
      row_words_(segment.words()),
      row_word_stride_(segment.layout().word_stride),
      epsilon_(segment.layout().settings.epsilon),
      most_weight_(most_weight(capacity_)) {}

float Priorities::max_raw() const {
  return std::bit_cast<float>(counters_.max_raw_bits.load(std::memory_order_relaxed));
}

float Priorities::alpha() const {
  return std::bit_cast<float>(counters_.alpha_bits.load(std::memory_order_relaxed));
}

float Priorities::raw_of(std::int64_t id) const {
  const auto [slot, lap] = where(id);
  if (never_given(id, {slot, lap})) return std::numeric_limits<float>::quiet_NaN();
  const PriorityWord word = of(slot);
  return word.lap == lap ? word.raw : std::numeric_limits<float>::quiet_NaN();
}

float Priorities::weigh(PriorityWord word, float alpha) const {
  if (word.lap == kGone || word.lap == 0) return 0;
  const float base = word.raw + epsilon_;
  if (base == 0) return 0;  // for every alpha: 0^0 is 1
  const float weight = std::pow(base, alpha);
  if (weight > most_weight_) return most_weight_;
  return weight < kLeastWeight ? kLeastWeight : weight;
}

// Recomputes a leaf from its word. Whoever stores a leaf looks again afterwards and repeats until
// what it stored follows from what is there. The store and the second look are sequentially
// consistent, as are changes of the word and of alpha: of several at once, the one whose store
// comes last has then seen the last word and the last alpha.
void Priorities::refresh_leaf(std::size_t slot) const {
  std::uint64_t seen = words_[slot].load(std::memory_order_relaxed);
  for (;;) {
    const std::uint32_t exponent = counters_.alpha_bits.load(std::memory_order_relaxed);
    tree_.store(slot, weigh(PriorityWord::unpack(seen), std::bit_cast<float>(exponent)));
    const std::uint64_t now = words_[slot].load(std::memory_order_seq_cst);
    if (now == seen && counters_.alpha_bits.load(std::memory_order_seq_cst) == exponent) return;
    seen = now;
  }
}

// The same for several: two fences for all of them instead of an exchange for each. The first
// stands between the changes of the words and the leaves.
void Priorities::refresh_leaves(std::span<const std::uint64_t> slots) const {
  const float exponent = alpha();
  std::uint64_t seen[kChunk];
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    seen[i] = words_[slots[i]].load(std::memory_order_relaxed);
    tree_.store_relaxed(slots[i], weigh(PriorityWord::unpack(seen[i]), exponent));
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool same = alpha() == exponent;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (!same || words_[slots[i]].load(std::memory_order_relaxed) != seen[i])
      refresh_leaf(slots[i]);
  }
}

void Priorities::raise_max(float raw) const {
  std::uint32_t seen = counters_.max_raw_bits.load(std::memory_order_relaxed);
  while (raw > std::bit_cast<float>(seen) &&
         !counters_.max_raw_bits.compare_exchange_weak(seen, std::bit_cast<std::uint32_t>(raw),
                                                       std::memory_order_relaxed)) {
  }
}

// Plain stores: who copies a row written after this sees them, by the row's own release. Somebody
// may still put the old leaf over the zero, until commit() stores its own.
void Priorities::retire(std::size_t slot) const {
  const std::uint32_t lap = of(slot).lap;
  if (lap == 0 || lap == kGone) return;
  words_[slot].store(PriorityWord{0, kGone}.pack(), std::memory_order_relaxed);
  REPLAY_CRASH_POINT("row.retiring");
  tree_.store_relaxed(slot, 0);
}

void Priorities::commit(std::size_t slot, std::uint32_t lap, float raw) const {
  raise_max(raw);
  words_[slot].store(PriorityWord{positive(raw), lap}.pack(), std::memory_order_seq_cst);
  REPLAY_CRASH_POINT("row.prioritized");
  refresh_leaf(slot);
}

void Priorities::drop(std::size_t slot) const {
  const std::uint32_t lap = of(slot).lap;
  if (lap == 0 || lap == kGone) return;
  if (exchange(slot, lap, PriorityWord{0, kGone})) refresh_leaf(slot);
}

void Priorities::drop_before(std::size_t slot, std::uint64_t oldest) const {
  // In one order with commit(), whose writer looks at the era afterwards.
  const std::uint32_t lap = PriorityWord::unpack(words_[slot].load(std::memory_order_seq_cst)).lap;
  if (lap == 0 || lap == kGone) return;
  if ((std::uint64_t{lap} - 1) * capacity_ + slot >= oldest) return;
  if (exchange(slot, lap, PriorityWord{0, kGone})) refresh_leaf(slot);
}

// Puts a new word in the place of the one of `lap`. The leaf has to follow.
bool Priorities::exchange(std::size_t slot, std::uint32_t lap, PriorityWord next) const {
  std::uint64_t seen = words_[slot].load(std::memory_order_relaxed);
  do {
    if (PriorityWord::unpack(seen).lap != lap) return false;
  } while (!words_[slot].compare_exchange_weak(seen, next.pack(), std::memory_order_seq_cst));
  return true;
}

bool Priorities::never_given(std::int64_t id, const Where& row) const {
  if (id < 0) return true;
  const auto [slot, lap] = row;
  const std::uint32_t held = of(slot).lap;
  if (held == lap && held != kGone) return false;
  const std::uint64_t block = slot / block_rows_;
  if ((lap - 1) * block_count_ + block >= counters_.head.load(std::memory_order_relaxed))
    return true;
  if (held != kGone && held != 0) return lap > held;
  // Cleared, or just written and not yet weighed, or never weighed: the row itself and its block
  // tell. The fill is asked first: a claim that comes between makes the block's lap too late, which
  // does no harm.
  const auto& word =
      *reinterpret_cast<const std::atomic<std::uint64_t>*>(row_words_ + slot * row_word_stride_);
  if (row_id(word.load(std::memory_order_relaxed)) == static_cast<std::uint64_t>(id)) return false;
  const Fill fill = Fill::unpack(fills_[block].load(std::memory_order_acquire));
  const std::uint32_t at =
      BlockWord::unpack(blocks_[block].word.load(std::memory_order_relaxed)).lap;
  return lap > at || (lap == at && slot % block_rows_ >= fill.written_in(at));
}

// Finds the rows of an update.
void Priorities::check(std::span<const std::int64_t> ids, std::span<const float> raws,
                       Where* rows) const {
  if (ids.size() != raws.size()) {
    invalid("update_priorities got " + std::to_string(ids.size()) + " ids and " +
            std::to_string(raws.size()) + " priorities");
  }
  for (std::size_t i = 0; i < raws.size(); ++i) {
    if (!(raws[i] >= 0) || !std::isfinite(raws[i])) {
      invalid("priority " + std::to_string(i) + " is " + std::to_string(raws[i]) +
              "; priorities must be finite and >= 0; nothing was changed");
    }
    rows[i] = where(ids[i]);
    os::prefetch_write(words_ + rows[i].slot);
    tree_.prefetch(rows[i].slot);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (never_given(ids[i], rows[i])) {
      invalid("id " + std::to_string(ids[i]) + " was never given to a row; nothing was changed");
    }
  }
}

UpdateResult Priorities::update(std::span<const std::int64_t> ids,
                                std::span<const float> raws) const {
  Where few[kChunk];
  std::vector<Where> more(ids.size() > kChunk ? ids.size() : 0);
  Where* const rows = more.empty() ? few : more.data();
  check(ids, raws, rows);
  const UpdateResult result = change({rows, ids.size()}, raws);
  if (result.stale > 0) {
    counters_.updates_stale.fetch_add(result.stale, std::memory_order_relaxed);
  }
  return result;
}

// Gives rows other raw priorities, those that are still there.
UpdateResult Priorities::change(std::span<const Where> rows, std::span<const float> raws) const {
  UpdateResult result;
  for (std::size_t from = 0; from < rows.size(); from += kChunk) {
    const std::size_t n = rows.size() - from < kChunk ? rows.size() - from : kChunk;
    std::uint64_t changed[kChunk];
    std::size_t count = 0;
    for (std::size_t i = from; i < from + n; ++i) {
      const auto lap = static_cast<std::uint32_t>(rows[i].lap);
      const float raw = positive(raws[i]);
      if (!exchange(rows[i].slot, lap, {raw, lap})) continue;
      REPLAY_CRASH_POINT("update.word");
      raise_max(raw);
      changed[count++] = rows[i].slot;
    }
    REPLAY_CRASH_POINT("update.words");
    refresh_leaves({changed, count});
    REPLAY_CRASH_POINT("update.leaves");
    tree_.refresh_many({changed, count});
    result.applied += count;
    result.stale += n - count;
  }
  counters_.updates_applied.fetch_add(result.applied, std::memory_order_relaxed);
  return result;
}

void Priorities::set_alpha(float alpha) const {
  if (!(alpha >= 0) || !std::isfinite(alpha)) invalid("alpha must be a finite number >= 0");
  counters_.alpha_bits.store(std::bit_cast<std::uint32_t>(alpha), std::memory_order_seq_cst);
  REPLAY_CRASH_POINT("alpha.stored");
  refresh_all();
}

void Priorities::refresh_all() const {
  for (std::size_t slot = 0; slot < capacity_; ++slot) {
    // In one order with commit(), which looks at alpha after it has stored the word.
    const PriorityWord word = PriorityWord::unpack(words_[slot].load(std::memory_order_seq_cst));
    if (word.lap == 0) continue;
    if (word.lap != kGone) raise_max(word.raw);  // an update may have died before it did
    refresh_leaf(slot);
  }
  REPLAY_CRASH_POINT("refresh.leaves");
  tree_.refresh_all();
}

void Priorities::mend(std::size_t slot, std::uint64_t row) const {
  const PriorityWord word = of(slot);
  if (!row_weighed(row)) {
    drop(slot);
  } else {
    const auto lap = static_cast<std::uint32_t>(row_id(row) / capacity_ + 1);
    if (word.lap != lap) {
      words_[slot].store(PriorityWord{max_raw(), lap}.pack(), std::memory_order_seq_cst);
    }
  }
  refresh_leaf(slot);
}

}  // namespace replay_buffer
