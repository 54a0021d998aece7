// Streams of steps whose observations say which they are: writer, stream, episode and number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/step_writer.h"
#include "numbered.h"

namespace replay_buffer::testing {

inline Schema step_schema() {
  return {{"obs", DType::kUInt64, {3}},
          {"reward", DType::kFloat32, {}},
          {"terminated", DType::kBool, {}},
          {"truncated", DType::kBool, {}}};
}

// What an observation says. `check` follows from the rest, so that a torn one is noticed.
struct Observation {
  std::uint64_t stream = 0;  // of all writers
  std::uint64_t episode_step = 0;
  std::uint64_t check = 0;

  static Observation of(std::uint64_t stream, std::uint64_t episode, std::uint64_t step) {
    const std::uint64_t both = (episode << 32) | step;
    return {stream, both, (stream * 1'000'003 + both) ^ 0x5a5a5a5a};
  }
  std::uint64_t episode() const { return episode_step >> 32; }
  std::uint64_t step() const { return episode_step & 0xffffffff; }
  bool whole() const { return check == of(stream, episode(), step()).check; }
};
static_assert(sizeof(Observation) == 24);

// K streams, of which stream s of writer w has episodes of `length(s, episode)` steps. The reward
// of a step is its number plus 1.
class Steps {
 public:
  using Length = std::size_t (*)(std::size_t stream, std::size_t episode);

  Steps(Buffer& buffer, std::size_t who, std::size_t streams, Autoreset autoreset, Length length)
      : writer(buffer, streams, autoreset, {true, false, false, false}, 1),
        who_(who),
        length_(length),
        same_step_(autoreset == Autoreset::SameStep),
        episode_(streams),
        step_(streams),
        ids(streams) {}

  // One step of each stream. A stream that ended shows its last observation next, where that comes
  // with the next step.
  void append() {
    const std::size_t n = step_.size();
    std::vector<Observation> obs(n);
    std::vector<Observation> last(n);
    std::vector<float> reward(n);
    std::vector<std::uint8_t> terminated(n);
    const std::vector<std::uint8_t> truncated(n);
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t length = length_(s, episode_[s]);
      obs[s] = Observation::of(who_ * 1000 + s, episode_[s], step_[s]);
      last[s] = Observation::of(who_ * 1000 + s, episode_[s], step_[s] + 1);
      reward[s] = static_cast<float>(step_[s] + 1);
      terminated[s] = step_[s] + 1 == length ? 1 : 0;
      const bool over = same_step_ ? step_[s] + 1 == length : step_[s] == length;
      if (over) {
        ++episode_[s];
        step_[s] = 0;
      } else {
        ++step_[s];
      }
    }
    const auto bytes = [](const auto& values) {
      return reinterpret_cast<const std::byte*>(values.data());
    };
    const std::byte* columns[] = {bytes(obs), bytes(reward), bytes(terminated), bytes(truncated)};
    const std::byte* finals[] = {bytes(last), nullptr, nullptr, nullptr};
    writer.append({columns, same_step_ ? finals : nullptr, terminated.data(), truncated.data(),
                   nullptr, ids.data()});
  }

  StepWriter writer;

 private:
  std::size_t who_;
  Length length_;
  bool same_step_;
  std::vector<std::size_t> episode_;
  std::vector<std::size_t> step_;

 public:
  std::vector<std::int64_t> ids;  // of the rows of the last append
};

inline BufferConfig step_config(std::uint64_t capacity, std::uint64_t block_rows,
                                SamplingStrategy strategy = SamplingStrategy::Uniform) {
  BufferConfig config;
  config.capacity = capacity;
  config.block_rows = block_rows;
  config.strategy = strategy;
  config.storage = Storage::Steps;
  config.seed = 7;
  return config;
}

// Transitions drawn by a view of step_schema().
struct Transitions {
  explicit Transitions(std::size_t n)
      : obs(n), next(n), reward(n), terminated(n), count(n), discount(n), ids(n) {
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    outputs = {
        {Role::kStart, 0, false, bytes(obs)},     {Role::kNext, 0, false, bytes(next)},
        {Role::kReturn, 1, false, bytes(reward)}, {Role::kLast, 2, false, bytes(terminated)},
        {Role::kCount, -1, false, bytes(count)},  {Role::kDiscount, -1, false, bytes(discount)}};
    batch.rows = n;
    batch.outputs = outputs;
    batch.ids = ids.data();
  }

  std::vector<Observation> obs;
  std::vector<Observation> next;
  std::vector<float> reward;
  std::vector<std::uint8_t> terminated;
  std::vector<std::int32_t> count;
  std::vector<float> discount;
  std::vector<std::int64_t> ids;
  std::vector<Output> outputs;
  ViewBatch batch;
};

inline void sample(Buffer& buffer, const View& view, const ViewBatch& batch) {
  Draw draw(batch.rows);
  buffer.begin(draw, view);
  buffer.finish(draw, view, batch, 0.4F);
}

}  // namespace replay_buffer::testing
