// Special values, one after the other, in each word that no checksum covers: ends of laps, ids and
// counters. Whatever a word says, calls end, and stay in the segment's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/checkpoint.h"
#include "core/random.h"
#include "core/step_writer.h"
#include "core/verify.h"
#include "damaged.h"
#include "numbered.h"
#include "os_child.h"
#include "segment/segment.h"
#include "stepped.h"

namespace replay_buffer {
namespace {

using os::testing::Directory;
using testing::attempt;
using testing::Bytes;
using testing::Clock;
using testing::Codes;
using testing::NumberedRows;
using testing::open_copy;
using testing::Specimen;
using testing::step_config;
using testing::step_schema;

std::size_t lengths(std::size_t stream, std::size_t episode) {
  return 1 + (stream + 2 * episode) % 4;
}

Schema transition_schema() {
  return {{"number", DType::kUInt64, {}},
          {"obs", DType::kFloat32, {2}},
          {"reward", DType::kFloat32, {}},
          {"done", DType::kBool, {}}};
}

// Small rings, so that each word comes often.
std::vector<Specimen> all_specimens() {
  std::vector<Specimen> all;
  using S = SamplingStrategy;
  const auto rows = [&](const std::string& name, BufferConfig config, const Schema& schema,
                        std::size_t n) {
    all.push_back(testing::specimen_of(name, config, schema, n));
  };
  for (const std::size_t n : {0, 3, 23}) {
    for (std::uint32_t s = 0; s <= static_cast<std::uint32_t>(S::Lifo); ++s) {
      rows("strategy " + std::to_string(s) + ", " + std::to_string(n) + " rows",
           testing::config_of(11, static_cast<S>(s), 4), transition_schema(), n);
    }
  }
  for (const S strategy : {S::Uniform, S::Prioritized, S::Rank}) {
    BufferConfig config = testing::config_of(11, strategy, 4);
    config.cer = true;
    config.weights = WeightScale::GlobalMax;
    config.durable = true;
    rows("combined", config, transition_schema(), 23);
  }
  rows("one row", testing::config_of(1), transition_schema(), 3);
  BufferConfig limited = testing::config_of(11, S::Fifo, 4);
  limited.max_times_sampled = 3;
  limited.min_size = 2;
  rows("queue, limited", limited, transition_schema(), 23);
  rows("words apart", testing::config_of(11, S::Prioritized, 4), testing::apart_schema(), 23);
  BufferConfig varied = testing::config_of(11, S::Prioritized, 4);
  varied.arena_bytes = 2048;
  rows("varied", varied, testing::varied_schema(), 23);

  for (const S strategy : {S::Uniform, S::Prioritized, S::Rank}) {
    for (const std::size_t streams : {1, 2}) {
      const std::string name = "steps of " + std::to_string(streams);
      all.push_back(testing::specimen_by(
          name, step_config(18, 8, strategy), step_schema(), [&](Buffer& buffer) {
            auto steps =
                std::make_unique<testing::Steps>(buffer, 0, streams, Autoreset::SameStep, lengths);
            for (std::size_t i = 0; i < 30 / streams; ++i) steps->append();
            return steps;
          }));
    }
  }
  return all;
}

// Where words are, and that they are not all alike: a place for each kind of damage.
std::vector<std::size_t> words_of(const Layout& l) {
  std::vector<std::size_t> words;
  const auto take = [&](std::size_t at, std::size_t bytes) {
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) words.push_back(at + i);
  };
  const std::size_t capacity = l.settings.capacity;
  const std::size_t inner = TreeShape(capacity).inner_nodes() * 8;
  take(offsetof(Header, counters), sizeof(Counters));
  take(l.owners_at, 2 * sizeof(Owner));
  if (l.has_steps()) take(l.episodes_at, 2 * sizeof(Episode));
  take(l.blocks_at, l.block_count * sizeof(Block));
  take(l.fills_at, l.block_count * 8);
  if (l.has_priorities()) {
    take(l.priorities_at, capacity * 8);
    take(l.weights_at, TreeShape(capacity).size(0) * 4);
    take(l.sums_at, inner);
  }
  if (l.has_lows()) take(l.lows_at, inner);
  if (l.durable()) take(l.checks_at, capacity * 8);
  for (std::size_t row = 0; row < capacity; ++row) {
    words.push_back(l.words_at + row * l.word_stride);
    const std::size_t record = l.records_at + row * l.record_stride;
    if (l.has_steps()) words.push_back(l.link.base + row * l.link.stride);
    if (!l.has_arenas()) continue;
    for (const std::uint32_t c : l.arena_columns)
      words.push_back(l.places[c].base - l.records_at + record);
  }
  return words;
}

// Numbers that something ends at, near or beyond.
std::vector<std::uint64_t> ends_of(const Layout& l, std::uint64_t head) {
  const std::uint64_t capacity = l.settings.capacity;
  std::vector<std::uint64_t> ends{0,
                                  2,
                                  std::uint64_t{1} << 16,
                                  std::uint64_t{1} << 24,
                                  std::uint64_t{1} << 31,
                                  std::uint64_t{1} << 32,
                                  (std::uint64_t{1} << 32) - 2,
                                  kLastLap,
                                  std::uint64_t{kLastLap} * l.block_count,
                                  (std::uint64_t{1} << 32) * l.block_count,
                                  std::uint64_t{1} << 53,
                                  std::uint64_t{1} << 56,
                                  std::uint64_t{1} << 63,
                                  capacity,
                                  l.settings.block_rows,
                                  l.block_count,
                                  head,
                                  head + l.block_count,
                                  head - l.block_count,
                                  0x7f800000,  // infinity
                                  0x7fc00000,  // not a number
                                  0x80000000};
  const std::size_t n = ends.size();
  for (std::size_t i = 0; i < n; ++i) {
    ends.push_back(ends[i] - 1);
    ends.push_back(ends[i] + 1);
  }
  return ends;
}

// Puts an end into a word, or into the part of it that is a lap, an id or a count.
void put(std::byte* at, std::uint64_t end, std::uint64_t way, const Layout& l, std::uint64_t slot) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  const auto low = static_cast<std::uint32_t>(end);
  switch (way) {
    case 0:
      word = end;
      break;
    case 1:
      word = (word >> 32 << 32) | low;
      break;
    case 2:
      word = (std::uint64_t{low} << 32) | (word & 0xffffffff);
      break;
    case 3:
      word = (end << 48) | (word & 0xffffffffffff);
      break;
    case 4:
      word = (word & ~std::uint64_t{0xffff}) | (end & 0xffff);
      break;
    case 5:
      word = row_word(end, RowState::kCommitted, row_flags(word));
      break;
    default:  // the row of that lap
      word = row_word((end - 1) * l.settings.capacity + slot, RowState::kCommitted);
      break;
  }
  std::memcpy(at, &word, sizeof(word));
}
constexpr std::uint64_t kWays = 7;

ViewSpec spec_of(bool steps, std::uint64_t which) {
  ViewSpec spec;
  spec.gamma = 0.9;
  spec.reward = steps ? 1 : 2;
  spec.terminated = steps ? 2 : 3;
  spec.truncated = steps ? 3 : -1;
  spec.steps = 1 + static_cast<std::uint32_t>(which % 3);
  if (!steps) return spec;
  const std::uint64_t kind = which / 3 % 8;
  spec.sequence = kind >= 3;
  if (spec.sequence) spec.length = 3;
  switch (kind) {
    case 1:
      spec.stack = 3;
      break;
    case 2:
      spec.goal = static_cast<GoalStrategy>(1 + which % 3);
      spec.goal_k = 4;
      break;
    case 3:
      spec.burn_in = 2;
      break;
    case 4:
      spec.pad = false;
      spec.stack = 2;
      break;
    case 5:
      spec.cross = true;
      spec.burn_in = 1;
      break;
    case 6:
      spec.period = 2;
      break;
    case 7:
      spec.whole = true;
      break;
    default:
      break;
  }
  return spec;
}

// Draws what a view makes, looks up its starts, and makes them again by their ids.
void use_view(Buffer& buffer, std::uint64_t which, Codes& codes) {
  const bool steps = buffer.layout().has_steps();
  if (!steps && buffer.layout().schema[0].name != "number") return;
  if (!steps && buffer.layout().schema.size() != 4) return;
  const View view(buffer.ring(), spec_of(steps, which));
  constexpr std::size_t kItems = 5;
  constexpr std::size_t kTime = 4;
  const std::size_t cell = buffer.ring().rows.bytes(0);
  const std::size_t cells = kItems * kTime * view.spec().stack;
  std::vector<std::vector<std::byte>> arrays(
      8, std::vector<std::byte>(cells * std::max(cell, std::size_t{8})));
  const bool stacked = view.spec().stack > 1;
  std::vector<Output> outputs;
  if (view.spec().sequence) {
    outputs = {{Role::kStep, 0, stacked, arrays[0].data()},
               {Role::kStepNext, 0, stacked, arrays[1].data()},
               {Role::kMask, -1, false, arrays[2].data()},
               {Role::kFirst, -1, false, arrays[3].data()},
               {Role::kIds, -1, false, arrays[4].data()},
               {Role::kLength, -1, false, arrays[5].data()},
               {Role::kNextMask, -1, false, arrays[6].data()}};
  } else {
    outputs = {{Role::kStart, 0, stacked, arrays[0].data()},
               {Role::kNext, 0, stacked, arrays[1].data()},
               {Role::kReturn, view.spec().reward, false, arrays[2].data()},
               {Role::kCount, -1, false, arrays[3].data()},
               {Role::kGoal, 0, false, arrays[4].data()},
               {Role::kDiscount, -1, false, arrays[5].data()}};
    if (!stacked && view.plain()) outputs.erase(outputs.begin() + 4);
  }
  std::vector<std::int64_t> ids(kItems);
  std::vector<float> weights(kItems);
  const ViewBatch batch{kItems, kTime, outputs, ids.data(), weights.data()};
  attempt(codes, [&] { testing::sample(buffer, view, batch); });
  std::vector<std::uint8_t> not_made(kItems);
  attempt(codes, [&] { buffer.make(view, ids, batch, not_made.data(), 1); });
  attempt(codes, [&] { (void)buffer.starts(view, kTime); });
}

void use_rows(Buffer& buffer, Codes& codes) {
  constexpr std::size_t kRows = 5;
  NumberedRows rows(buffer.layout().schema, kRows);
  std::vector<std::int64_t> ids(kRows);
  std::vector<float> weights(kRows);
  for (const std::size_t n : {1, 5}) {
    for (int i = 0; i < 2; ++i) {
      attempt(codes, [&] { buffer.sample({n, rows.out(), ids.data(), weights.data()}, 0.4F); });
    }
  }
  if (buffer.ring().priorities && buffer.writable()) {
    attempt(codes, [&] { buffer.update(ids, std::vector<float>(kRows, 2.0F)); });
  }
  std::vector<std::int64_t> latest(buffer.capacity());
  attempt(codes, [&] {
    latest.resize(buffer.latest(latest.size(), latest.data()));
    latest.resize(std::min(latest.size(), kRows));
    std::vector<std::uint8_t> gone(kRows);
    buffer.get(latest, rows.out(), gone.data());
    for (const std::int64_t id : latest) (void)(buffer.ring().priorities ? buffer.raw_of(id) : 0);
  });
  attempt(codes, [&] { (void)(buffer.size() + buffer.ring().rows_added() + buffer.drawn()); });
}

void write(Buffer& buffer, Codes& codes) {
  if (buffer.layout().has_steps()) {
    attempt(codes, [&] {
      testing::Steps steps(buffer, 1, 2, Autoreset::SameStep, lengths);
      for (int i = 0; i < 12; ++i) steps.append();
    });
    return;
  }
  NumberedRows rows(buffer.layout().schema, 5);
  std::vector<std::int64_t> ids(5);
  for (int i = 0; i < 4; ++i) {
    attempt(codes, [&] { buffer.add(5, rows.in(), nullptr, ids.data()); });
  }
}

class Round {
 public:
  Round(const std::string& directory, Codes& opened, Codes& used)
      : directory_(directory), opened_(opened), used_(used) {}

  void play(const Specimen& specimen, std::size_t at, std::uint64_t end, std::uint64_t way,
            Random random) {
    Bytes bytes = specimen.bytes;
    const Layout& l = specimen.layout;
    put(bytes.data() + at, end, way, l, at >= l.words_at ? (at - l.words_at) / l.word_stride : 0);
    const os::Access access = random.below(6) == 0 ? os::Access::kRead : os::Access::kReadWrite;
    std::unique_ptr<Buffer> buffer;
    attempt(opened_, [&] { buffer = std::make_unique<Buffer>(open_copy(bytes, access)); });
    if (!buffer) return;
    use_rows(*buffer, used_);
    use_view(*buffer, random.next() % 72, used_);
    if (random.below(20) == 0) save(*buffer);
    if (random.below(200) == 0)
      attempt(used_, [&] { (void)verify(buffer->ring(), buffer->owners()); });
    if (access == os::Access::kRead) return;
    write(*buffer, used_);
    use_rows(*buffer, used_);
    use_view(*buffer, random.next() % 72, used_);
    if (random.below(4) == 0) attempt(used_, [&] { buffer->clear(); });
    if (random.below(4) == 0) use_rows(*buffer, used_);
  }

 private:
  // What was saved is read back, or refused as a whole.
  void save(const Buffer& buffer) {
    const std::string path = directory_ + "/saved";
    attempt(used_, [&] {
      write_checkpoint(buffer.ring(), path);
      Buffer again(restore_checkpoint(path, {}, false));
      use_rows(again, used_);
      write(again, used_);
    });
  }

  std::string directory_;
  Codes& opened_;
  Codes& used_;
};

// One round for each word, value and way to put it there, in an order that soon comes by each word.
TEST(Fuzz, SpecialValuesInEachWordThatNoChecksumCovers) {
  const std::vector<Specimen> specimens = all_specimens();
  const auto size = [](const Specimen& specimen) { return specimen.bytes.size(); };
  const testing::Surroundings surroundings(size(std::ranges::min(specimens, {}, size)),
                                           size(std::ranges::max(specimens, {}, size)));
  const Directory directory;
  testing::Watchdog watchdog;
  Codes opened;
  Codes used;
  Round round(directory.path(), opened, used);
  const auto play = [&](std::uint64_t number) {
    watchdog.begin(number);
    Random random(21, number);
    const Specimen& specimen = specimens[random.below(specimens.size())];
    const std::vector<std::size_t> words = words_of(specimen.layout);
    std::uint64_t head = 0;
    std::memcpy(&head, specimen.bytes.data() + offsetof(Header, counters), sizeof(head));
    const std::vector<std::uint64_t> ends = ends_of(specimen.layout, head);
    const std::size_t at = words[random.below(words.size())];
    const std::uint64_t end = ends[random.below(ends.size())];
    const std::uint64_t way = random.below(kWays);
    SCOPED_TRACE("round " + std::to_string(number) + ", " + specimen.name + ", byte " +
                 std::to_string(at));
    round.play(specimen, at, end, way, random);
  };
  if (const char* chosen = std::getenv("REPLAY_FUZZ_ROUND")) {
    play(std::strtoull(chosen, nullptr, 10));
    return;
  }
  std::uint64_t number = 0;
  for (const Clock::time_point until = testing::fuzz_until(); Clock::now() < until; ++number) {
    play(number);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(opened[ErrorCode{}], number / 2);
  EXPECT_GT(used[ErrorCode{}], number);
  RecordProperty("rounds", static_cast<int>(number));
}

}  // namespace
}  // namespace replay_buffer
