// Uses the public C++ API as an installed package gives it: headers, libraries, nothing else.
#include <replay_buffer/buffer.h>
#include <replay_buffer/shared.h>
#include <replay_buffer/steps.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using Observation = std::array<float, 4>;
using Row = replay_buffer::Transition<Observation, std::int64_t>;

static int failures = 0;

static void check(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "wrong: %s\n", what);
  ++failures;
}

static void uniform() {
  replay_buffer::ReplayBuffer<Observation, std::int64_t> buffer({.capacity = 100});
  for (std::int64_t i = 0; i < 150; ++i) {
    buffer.add(Row{.observation = {static_cast<float>(i)}, .action = i, .reward = 1});
  }
  check(buffer.size() == 100 && buffer.capacity() == 100 && buffer.is_full(), "size");
  for (const Row& row : buffer.sample(32)) {
    check(row.action >= 50 && row.observation[0] == static_cast<float>(row.action), "a row");
  }
  float seen = 0;
  check(buffer.visit_observation(149, [&](auto values) { seen = values[0]; }), "a row in place");
  check(seen == 149, "its value");
}

static void prioritized() {
  replay_buffer::BufferConfig config{10, replay_buffer::SamplingStrategy::Prioritized, 1};
  config.epsilon = 0;
  replay_buffer::ReplayBuffer<Observation, std::int64_t> buffer(config);
  for (std::int64_t i = 0; i < 10; ++i) buffer.add(Row{.action = i});
  const std::vector<std::size_t> ids = buffer.latest(10);
  std::vector<float> priorities(10, 0.0F);
  priorities[7] = 3;
  check(buffer.update_priorities(ids, priorities) == 10, "an update");
  const auto batch = buffer.sample_batch(16);
  for (const Row& row : batch.transitions) check(row.action == 7, "the only row with a priority");
  check(batch.indices[0] == 7 && batch.weights[0] == 1, "its id and weight");
}

static void any_length() {
  using Tokens = std::vector<std::int32_t>;
  replay_buffer::ReplayBuffer<Tokens, float> buffer({.capacity = 10});
  buffer.add({.observation = {1, 2, 3}, .next_observation = {}});
  const auto row = buffer.sample(1)[0];
  check(row.observation == Tokens{1, 2, 3} && row.next_observation.empty(), "any length");
}

static void steps() {
  replay_buffer::StepBuffer<Observation, std::int64_t> buffer({.capacity = 50});
  auto writer = buffer.writer();
  const Observation last{9};
  for (std::int64_t i = 0; i < 10; ++i) {
    const bool end = i == 9;
    writer.append(
        {.action = i, .reward = 1, .terminated = end, .final_observation = end ? &last : nullptr});
  }
  const auto batch = buffer.view(replay_buffer::NStep{.n = 10, .gamma = 1}).sample(8);
  for (std::size_t i = 0; i < 8; ++i) {
    check(batch.returns[i] == static_cast<float>(10 - batch.actions[i]), "a return");
    check(batch.next_observations[i] == last && batch.discounts[i] == 0, "the end of an episode");
  }
}

// Where the library was built with a codec it is in what was installed; else it says so.
static void compressed() {
  using Frame = std::array<std::uint8_t, 4096>;
  try {
    replay_buffer::ReplayBuffer<Frame, int> buffer({.capacity = 10, .enable_compression = true});
    buffer.add({.observation = Frame{7}});
    check(buffer.sample(1)[0].observation[0] == 7, "a compressed row");
    check(buffer.stats().bytes_kept < buffer.stats().bytes_in, "its size");
  } catch (const replay_buffer::Error& error) {
    check(std::string(error.what()).find("blosc2") != std::string::npos, error.what());
  }
}

template <class Shared>
static void shared(const std::string& name) {
  const std::string location = "shm:" + name + "-" + std::to_string(::getpid());
  auto buffer = Shared::create(location, {.capacity = 10});
  auto other = Shared::open(location);
  for (std::int64_t i = 0; i < 5; ++i) buffer.add(Row{.action = i});
  for (std::int64_t i = 5; i < 8; ++i) other.add(Row{.action = i});
  check(buffer.size() == 8 && other.size() == 8, "what two handles added");
  Shared::unlink(location);
}

static void errors() {
  replay_buffer::ReplayBuffer<float, int> buffer({.capacity = 10});
  try {
    buffer.sample(1);
    check(false, "an empty buffer gave a row");
  } catch (const replay_buffer::Error& error) {
    check(error.code() == replay_buffer::ErrorCode::kNotEnoughRows, error.what());
  }
}

int main() {
  uniform();
  prioritized();
  any_length();
  steps();
  compressed();
  shared<replay_buffer::SharedCircularBuffer<Observation, std::int64_t>>("package");
  shared<replay_buffer::SharedPrioritizedReplayBuffer<Observation, std::int64_t>>("package");
  errors();
  if (failures == 0) std::puts("ok");
  return failures == 0 ? 0 : 1;
}
