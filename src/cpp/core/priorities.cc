#include "core/priorities.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// A leaf is 0 only when its base is 0, and so small that 2^40 of the largest still add up.
constexpr float kMostWeight = 0x1.0p87F;
constexpr float kLeastWeight = std::numeric_limits<float>::min();

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

Priorities::Priorities(const Segment& segment)
    : counters_(segment.counters()),
      raw_(segment.raw()),
      tree_(segment.tree(), segment.layout().has_lows() ? segment.lows() : nullptr,
            segment.layout().settings.capacity),
      capacity_(segment.layout().settings.capacity),
      epsilon_(segment.layout().settings.epsilon) {}

float Priorities::max_raw() const {
  return std::bit_cast<float>(counters_.max_raw_bits.load(std::memory_order_relaxed));
}

float Priorities::alpha() const {
  return std::bit_cast<float>(counters_.alpha_bits.load(std::memory_order_acquire));
}

float Priorities::raw_of(std::int64_t id) const {
  const auto number = static_cast<std::uint64_t>(id);
  const bool there = id >= 0 && tree_.leaf(number % capacity_).tag == number / capacity_ + 1;
  return there ? raw(number % capacity_) : std::numeric_limits<float>::quiet_NaN();
}

float Priorities::weigh(float raw, float alpha) const {
  const float base = raw + epsilon_;
  const float weight = std::pow(base, alpha);
  if (weight > kMostWeight) return kMostWeight;
  return weight < kLeastWeight && base > 0 ? kLeastWeight : weight;
}

void Priorities::raise_max(float raw) const {
  std::uint32_t seen = counters_.max_raw_bits.load(std::memory_order_relaxed);
  while (raw > std::bit_cast<float>(seen) &&
         !counters_.max_raw_bits.compare_exchange_weak(seen, std::bit_cast<std::uint32_t>(raw),
                                                       std::memory_order_relaxed)) {
  }
}

void Priorities::commit(std::size_t slot, std::uint32_t lap, float raw) const {
  raise_max(raw);
  raw_[slot].store(raw, std::memory_order_relaxed);
  tree_.store(slot, {weigh(raw, alpha()), lap});
}

void Priorities::drop(std::size_t slot) const { tree_.store(slot, {0, kGone}); }

// Stores a raw value and the leaf that follows from it, unless the slot's row is another by now.
// Two updates of one row, or an update and a change of alpha, may cross: the one whose leaf comes
// second has, by that exchange, also seen what the first one stored before its own, and starts over.
bool Priorities::replace(std::size_t slot, std::uint32_t lap, float raw) const {
  Leaf seen = tree_.leaf(slot);
  if (seen.tag != lap) return false;
  raw_[slot].store(raw, std::memory_order_relaxed);
  for (;;) {
    const float current = raw_[slot].load(std::memory_order_relaxed);
    const float exponent = alpha();
    const Leaf wanted{weigh(current, exponent), lap};
    while (!tree_.store_if(slot, seen, wanted)) {
      if (seen.tag != lap) return false;
    }
    if (raw_[slot].load(std::memory_order_relaxed) == current && alpha() == exponent) return true;
    seen = wanted;
  }
}

void Priorities::check(std::span<const std::int64_t> ids, std::span<const float> raws) const {
  if (ids.size() != raws.size()) {
    invalid("update_priorities got " + std::to_string(ids.size()) + " ids and " +
            std::to_string(raws.size()) + " priorities");
  }
  for (std::size_t i = 0; i < raws.size(); ++i) {
    if (!(raws[i] >= 0) || !std::isfinite(raws[i])) {
      invalid("priority " + std::to_string(i) + " is " + std::to_string(raws[i]) +
              "; priorities must be finite and >= 0; nothing was changed");
    }
    if (ids[i] >= 0) tree_.prefetch(static_cast<std::uint64_t>(ids[i]) % capacity_);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::uint64_t>(ids[i]);
    if (ids[i] < 0 || id / capacity_ + 1 > tree_.leaf(id % capacity_).tag) {
      invalid("id " + std::to_string(ids[i]) + " was never given to a row; nothing was changed");
    }
  }
}

UpdateResult Priorities::update(std::span<const std::int64_t> ids, std::span<const float> raws) const {
  constexpr std::size_t kChunk = 256;
  check(ids, raws);
  UpdateResult result;
  for (std::size_t from = 0; from < ids.size(); from += kChunk) {
    const std::size_t n = ids.size() - from < kChunk ? ids.size() - from : kChunk;
    std::uint64_t changed[kChunk];
    std::size_t count = 0;
    for (std::size_t i = from; i < from + n; ++i) {
      const auto id = static_cast<std::uint64_t>(ids[i]);
      const std::uint64_t slot = id % capacity_;
      if (!replace(slot, static_cast<std::uint32_t>(id / capacity_ + 1), raws[i])) continue;
      raise_max(raws[i]);
      changed[count++] = slot;
    }
    tree_.refresh_many({changed, count});
    result.applied += count;
    result.stale += n - count;
  }
  counters_.updates_applied.fetch_add(result.applied, std::memory_order_relaxed);
  counters_.updates_stale.fetch_add(result.stale, std::memory_order_relaxed);
  return result;
}

void Priorities::set_alpha(float alpha) const {
  if (!(alpha >= 0) || !std::isfinite(alpha)) invalid("alpha must be a finite number >= 0");
  counters_.alpha_bits.store(std::bit_cast<std::uint32_t>(alpha), std::memory_order_seq_cst);
  for (std::size_t slot = 0; slot < capacity_; ++slot) {
    Leaf seen = tree_.leaf(slot);
    while (seen.tag != 0 && seen.tag != kGone &&
           !tree_.store_if(slot, seen, {weigh(raw(slot), alpha), seen.tag})) {
    }
  }
  tree_.refresh_all();
}

}  // namespace replay_buffer
