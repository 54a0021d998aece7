// Uniform: a slot among those in use, rejected by the reader unless it holds a committed row, so
// every committed row is equally likely and nothing needs to be counted.
#include "core/sampler.h"

namespace replay_buffer {
namespace {

class UniformSampler final : public Sampler {
 public:
  explicit UniformSampler(const Ring& ring) : ring_(ring) {}

  Mass draw(Random& random, std::span<Pick> picks) override {
    const std::size_t used = ring_.blocks.used_slots();
    if (used == 0 && ring_.blocks.live_rows() == 0) throw_not_enough(picks.size(), 0);
    for (Pick& pick : picks) pick = {used == 0 ? 0 : random.below(used), Pick::kAny, 1};
    return {};
  }

  bool draws_freely() const override { return true; }

  bool redraw(Random& random, Pick& pick, unsigned attempt) override {
    constexpr unsigned kGuesses = 32;
    const std::size_t used = ring_.blocks.used_slots();
    if (attempt > kGuesses || used == 0) return draw_by_count(ring_, random, pick);
    pick.slot = random.below(used);
    return true;
  }

  void foresee(Random random, std::size_t rows) const override {
    const std::size_t used = ring_.blocks.used_slots();
    if (used == 0) return;
    for (std::size_t i = 0; i < rows; ++i) ring_.rows.prefetch(random.below(used));
  }

 private:
  const Ring& ring_;
};

}  // namespace

std::unique_ptr<Sampler> make_uniform_sampler(const Ring& ring) {
  return std::make_unique<UniformSampler>(ring);
}

}  // namespace replay_buffer
