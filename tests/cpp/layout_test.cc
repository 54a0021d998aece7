#include "segment/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "numbered.h"
#include "segment/tree_shape.h"

namespace replay_buffer {
namespace {

using testing::apart_schema;
using testing::code_of;
using testing::config_of;
using testing::small_schema;

Layout plan(const BufferConfig& config, const Schema& schema = small_schema()) {
  return plan_layout(make_settings(config, schema), schema);
}

struct Section {
  std::string name;
  std::size_t at;
  std::size_t bytes;
  std::size_t alignment;
};

std::vector<Section> sections(const Layout& l) {
  const std::size_t capacity = l.settings.capacity;
  std::vector<Section> all = {
      {"header", 0, sizeof(Header), kLine},
      {"columns", l.columns_at, l.schema.size() * sizeof(ColumnEntry), kLine},
      {"owners", l.owners_at, kOwnerCount * sizeof(Owner), kLine},
      {"blocks", l.blocks_at, l.block_count * sizeof(Block), kLine},
      {"fills", l.fills_at, l.block_count * sizeof(std::uint64_t), kLine},
      {"records", l.records_at, capacity * l.record_stride, kPage},
  };
  const TreeShape shape(capacity);
  if (l.has_priorities()) {
    all.push_back({"priorities", l.priorities_at, capacity * sizeof(std::uint64_t), kLine});
    all.push_back({"weights", l.weights_at, shape.size(0) * sizeof(float), kLine});
    all.push_back({"sums", l.sums_at, shape.inner_nodes() * sizeof(std::uint64_t), 2 * kLine});
  }
  if (l.words_at != l.records_at) {
    all.push_back({"words", l.words_at, capacity * l.word_stride, kLine});
  }
  if (l.has_lows()) {
    all.push_back({"lows", l.lows_at, shape.inner_nodes() * sizeof(std::uint64_t), 2 * kLine});
  }
  for (std::size_t i = 0; i < l.schema.size(); ++i) {
    if (l.schema[i].bytes() <= kPackedColumnBytes) continue;
    all.push_back({l.schema[i].name, l.places[i].base, capacity * l.places[i].stride, kPage});
  }
  std::sort(all.begin(), all.end(), [](const Section& a, const Section& b) { return a.at < b.at; });
  return all;
}

void expect_apart(const Layout& l) {
  std::size_t end = 0;
  for (const Section& s : sections(l)) {
    EXPECT_GE(s.at, end) << s.name << " begins inside the section before it";
    EXPECT_EQ(s.at % s.alignment, 0u) << s.name;
    end = s.at + s.bytes;
  }
  EXPECT_LE(end, l.total_bytes);
  EXPECT_EQ(l.total_bytes % kPage, 0u);
}

// Columns inside a record: behind the row word if it stands there, aligned to their elements, apart
// from each other.
void expect_packed(const Layout& l) {
  std::vector<Section> cells;
  if (l.words_at == l.records_at) cells.push_back({"word", 0, 8, 8});
  EXPECT_EQ(l.word_stride, cells.empty() ? 8 : l.record_stride);
  for (std::size_t i = 0; i < l.schema.size(); ++i) {
    const std::size_t bytes = l.schema[i].bytes();
    EXPECT_EQ(l.places[i].bytes, bytes);
    if (bytes > kPackedColumnBytes) {
      EXPECT_GE(l.places[i].stride, bytes);
      EXPECT_EQ(l.places[i].stride % kLine, 0u);
      continue;
    }
    const std::size_t width = dtype_bytes(l.schema[i].dtype);
    EXPECT_EQ(l.places[i].stride, l.record_stride);
    if (l.words_at == l.records_at) {
      EXPECT_EQ(l.record_stride % width, 0u);
    }
    cells.push_back({l.schema[i].name, l.places[i].base - l.records_at, bytes, width});
  }
  std::sort(cells.begin(), cells.end(),
            [](const Section& a, const Section& b) { return a.at < b.at; });
  std::size_t end = 0;
  for (const Section& cell : cells) {
    EXPECT_GE(cell.at, end) << cell.name;
    EXPECT_EQ(cell.at % cell.alignment, 0u) << cell.name;
    end = cell.at + cell.bytes;
  }
  EXPECT_GE(l.record_stride, end);
}

Schema mixed_schema() {
  return {{"done", DType::kBool, {}},
          {"obs", DType::kFloat32, {17}},
          {"half", DType::kFloat16, {3}},
          {"frame", DType::kUInt8, {84, 84, 4}},
          {"action", DType::kInt64, {}},
          {"edge", DType::kUInt8, {kPackedColumnBytes}},
          {"over", DType::kUInt8, {kPackedColumnBytes + 1}},
          {"last", DType::kInt16, {1}},
          {"reward", DType::kFloat64, {}}};
}

TEST(Layout, SectionsAreAlignedAndApart) {
  for (std::uint64_t capacity : {1, 2, 15, 16, 17, 100, 4096, 100'003}) {
    for (SamplingStrategy strategy : {SamplingStrategy::Uniform, SamplingStrategy::Prioritized,
                                      SamplingStrategy::Rank, SamplingStrategy::Fifo}) {
      for (WeightScale weights : {WeightScale::BatchMax, WeightScale::GlobalMax}) {
        for (const Schema& schema : {small_schema(), mixed_schema(), apart_schema()}) {
          BufferConfig config = config_of(capacity, strategy);
          config.weights = weights;
          const Layout l = plan(config, schema);
          expect_apart(l);
          expect_packed(l);
        }
      }
    }
  }
}

TEST(Layout, PrioritiesTakeSpaceOnlyWhereTheyAreUsed) {
  EXPECT_FALSE(plan(config_of(100)).has_priorities());
  EXPECT_FALSE(plan(config_of(100, SamplingStrategy::Lifo)).has_priorities());
  EXPECT_TRUE(plan(config_of(100, SamplingStrategy::Rank)).has_priorities());
  BufferConfig config = config_of(100, SamplingStrategy::Prioritized);
  EXPECT_TRUE(plan(config).has_priorities());
  EXPECT_FALSE(plan(config).has_lows());
  config.weights = WeightScale::GlobalMax;
  EXPECT_TRUE(plan(config).has_lows());
}

TEST(Layout, OnlyColumnsOverTheLimitLeaveTheRecord) {
  const Layout l = plan(config_of(10), mixed_schema());
  for (std::size_t i = 0; i < l.schema.size(); ++i) {
    const bool own_array = l.schema[i].name == "frame" || l.schema[i].name == "over";
    EXPECT_EQ(l.places[i].stride != l.record_stride, own_array) << l.schema[i].name;
  }
}

TEST(Layout, TheSameSettingsGiveTheSamePlaces) {
  const Settings settings =
      make_settings(config_of(1000, SamplingStrategy::Prioritized), mixed_schema());
  const Layout a = plan_layout(settings, mixed_schema());
  const Layout b = plan_layout(settings, mixed_schema());
  EXPECT_EQ(a.total_bytes, b.total_bytes);
  EXPECT_EQ(a.records_at, b.records_at);
  EXPECT_EQ(a.sums_at, b.sums_at);
}

TEST(Layout, BlocksArePowersOfTwoAndMany) {
  for (std::uint64_t capacity :
       {1ULL, 2ULL, 63ULL, 64ULL, 127ULL, 128ULL, 1000ULL, 65'536ULL, 1'000'000ULL, 16'000'000ULL,
        16'000'001ULL, 100'000'000ULL, 1ULL << 40}) {
    const Layout l = plan(config_of(capacity), {{"x", DType::kUInt8, {}}});
    const std::uint64_t rows = l.settings.block_rows;
    EXPECT_TRUE(std::has_single_bit(rows)) << capacity;
    EXPECT_LE(rows, capacity > 16'000'000 ? 4096u : 1024u) << capacity;
    EXPECT_GE(l.block_count, std::min<std::uint64_t>(capacity, 64)) << capacity;
  }
  EXPECT_EQ(plan(config_of(1)).settings.block_rows, 1u);
  EXPECT_EQ(plan(config_of(1'000'000)).settings.block_rows, 1024u);
}

TEST(Layout, BlocksCoverTheCapacityAndTheLastMayBeShort) {
  for (std::uint64_t capacity = 1; capacity <= 40; ++capacity) {
    for (std::uint64_t block_rows = 1; block_rows <= capacity; ++block_rows) {
      const Layout l = plan(config_of(capacity, SamplingStrategy::Uniform, block_rows));
      ASSERT_EQ(l.settings.block_rows, block_rows);
      std::size_t sum = 0;
      for (std::size_t b = 0; b < l.block_count; ++b) {
        const bool last = b + 1 == l.block_count;
        ASSERT_EQ(l.rows_in(b),
                  last && capacity % block_rows != 0 ? capacity % block_rows : block_rows);
        sum += l.rows_in(b);
      }
      ASSERT_EQ(sum, capacity);
    }
  }
}

// Less than a tenth of the data, for rows of 128 bytes or more; with priorities, of 256 or more.
TEST(Layout, OverheadIsSmall) {
  const auto overhead = [](const Schema& schema, SamplingStrategy strategy, std::uint64_t rows) {
    const Layout l = plan(config_of(rows, strategy), schema);
    return static_cast<double>(l.total_bytes) /
               static_cast<double>(l.row_bytes * l.settings.capacity) -
           1;
  };
  for (std::uint64_t bytes = 128; bytes < 3000; ++bytes) {
    const Schema plain = {{"x", DType::kUInt8, {bytes}}};
    // Two observations and a flag.
    const Schema floats = {{"obs", DType::kFloat32, {2, bytes / 8}}, {"done", DType::kBool, {}}};
    // A discrete action beside bytes: padding to eight would be dear.
    const Schema wide = {{"obs", DType::kUInt8, {bytes - 8}}, {"action", DType::kInt64, {}}};
    for (const Schema& schema : {plain, floats, wide}) {
      for (const std::uint64_t rows : {10'000ULL, 100'000ULL, 1'000'000ULL}) {
        EXPECT_LT(overhead(schema, SamplingStrategy::Uniform, rows), 0.1) << bytes;
        if (bytes < 256) continue;
        EXPECT_LT(overhead(schema, SamplingStrategy::Prioritized, rows), 0.1) << bytes;
      }
    }
  }
}

TEST(Layout, RowWordsLeaveTheRecordOnlyWherePaddingIsDear) {
  const Layout apart = plan(config_of(1'000'000), apart_schema());
  EXPECT_NE(apart.words_at, apart.records_at);
  EXPECT_EQ(apart.record_stride, 132u);
  const Layout together = plan(config_of(100));
  EXPECT_EQ(together.words_at, together.records_at);
}

ErrorCode refused(const BufferConfig& config, const Schema& schema = small_schema()) {
  return code_of([&] { plan(config, schema); });
}

template <class Change>
ErrorCode refused_with(Change&& change) {
  BufferConfig config = config_of(100, SamplingStrategy::Prioritized);
  change(config);
  return refused(config);
}

TEST(Layout, RefusesSettingsOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  EXPECT_EQ(refused(config_of(0)), kInvalid);
  EXPECT_EQ(refused(config_of(kMaxCapacity + 1)), kInvalid);
  EXPECT_EQ(refused(config_of(std::numeric_limits<std::uint64_t>::max())), kInvalid);
  EXPECT_EQ(refused(config_of(100, SamplingStrategy::Uniform, 101)), kInvalid);
  EXPECT_EQ(refused(config_of(1 << 30, SamplingStrategy::Uniform, 1 << 24)), kInvalid);
  EXPECT_EQ(refused(config_of(1 << 30, SamplingStrategy::Uniform, (1 << 24) - 1)), ErrorCode{});
  for (float bad : {kNan, kInfinity, -0.1F}) {
    EXPECT_EQ(refused_with([bad](BufferConfig& c) { c.alpha = bad; }), kInvalid) << bad;
    EXPECT_EQ(refused_with([bad](BufferConfig& c) { c.beta = bad; }), kInvalid) << bad;
    EXPECT_EQ(refused_with([bad](BufferConfig& c) { c.epsilon = bad; }), kInvalid) << bad;
  }
  EXPECT_EQ(refused_with([](BufferConfig& c) { c.max_times_sampled = 0; }), kInvalid);
  EXPECT_EQ(refused_with([](BufferConfig& c) {
              c.max_times_sampled = ~0U;
              c.capacity = 1 << 20;
            }),
            kInvalid);
  EXPECT_EQ(refused_with([](BufferConfig& c) { c.strategy = SamplingStrategy{77}; }), kInvalid);
  EXPECT_EQ(refused_with([](BufferConfig& c) { c.weights = WeightScale{77}; }), kInvalid);
  EXPECT_EQ(refused_with([](BufferConfig&) {}), ErrorCode{});
}

// The newest row would take the place of one that was taken from the queue or the epoch.
TEST(Layout, RefusesTheNewestRowWhereEveryRowIsCounted) {
  for (const auto& [strategy, fits] : {std::pair{SamplingStrategy::Uniform, true},
                                       {SamplingStrategy::Prioritized, true},
                                       {SamplingStrategy::Rank, true},
                                       {SamplingStrategy::WithoutReplacement, false},
                                       {SamplingStrategy::Fifo, false},
                                       {SamplingStrategy::Lifo, false}}) {
    BufferConfig config = config_of(10, strategy);
    config.cer = true;
    EXPECT_EQ(refused(config), fits ? ErrorCode{} : ErrorCode::kInvalidArgument);
  }
}

TEST(Layout, RefusesSchemasItCannotStore) {
  const ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  const auto one = [](Column column) { return refused(config_of(10), {std::move(column)}); };
  EXPECT_EQ(refused(config_of(10), {}), kInvalid);
  EXPECT_EQ(one({"", DType::kBool, {}}), kInvalid);
  EXPECT_EQ(one({std::string(kMaxNameBytes + 1, 'x'), DType::kBool, {}}), kInvalid);
  EXPECT_EQ(one({std::string(kMaxNameBytes, 'x'), DType::kBool, {}}), ErrorCode{});
  EXPECT_EQ(one({"x", DType{0}, {}}), kInvalid);
  EXPECT_EQ(one({"x", DType{13}, {}}), kInvalid);
  EXPECT_EQ(one({"x", DType::kBool, std::vector<std::uint64_t>(kMaxDimensions + 1, 1)}), kInvalid);
  EXPECT_EQ(one({"x", DType::kBool, std::vector<std::uint64_t>(kMaxDimensions, 1)}), ErrorCode{});
  EXPECT_EQ(one({"x", DType::kFloat32, {3, 0}}), kInvalid);
  EXPECT_EQ(refused(config_of(10), {{"x", DType::kBool, {}}, {"x", DType::kInt8, {}}}), kInvalid);
  Schema many;
  for (std::size_t i = 0; i < kMaxColumns; ++i)
    many.push_back({std::to_string(i), DType::kBool, {}});
  EXPECT_EQ(refused(config_of(10), many), ErrorCode{});
  many.push_back({"more", DType::kBool, {}});
  EXPECT_EQ(refused(config_of(10), many), kInvalid);
}

TEST(Layout, RefusesSizesThatOverflow) {
  const ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto one = [](std::uint64_t capacity, std::vector<std::uint64_t> shape) {
    return refused(config_of(capacity), {{"x", DType::kFloat64, std::move(shape)}});
  };
  EXPECT_EQ(one(1, {kHuge, kHuge}), kInvalid);
  EXPECT_EQ(one(1, {kMost}), kInvalid);
  EXPECT_EQ(one(1, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}), kInvalid);  // 2^67 bytes
  EXPECT_EQ(one(1, {1, 1, 1, 1, 1, 1, kMost, kMost}), kInvalid);
  EXPECT_EQ(one(kMaxCapacity, {1000}), kInvalid);                    // 2^53 bytes
  EXPECT_EQ(one(kMaxCapacity, {std::uint64_t{1} << 24}), kInvalid);  // 2^67 bytes, 0 modulo 2^64
  EXPECT_EQ(one(1 << 20, {1 << 20}), ErrorCode{});                   // 8 TiB can be reserved
  // Each column fits, all of them together do not.
  const std::vector<std::uint64_t> part = {std::uint64_t{1} << 42};
  Schema schema;
  for (int i = 0; i < 5; ++i) schema.push_back({std::to_string(i), DType::kFloat32, part});
  EXPECT_EQ(refused(config_of(1), schema), kInvalid);
}

TEST(Layout, AnErrorNamesTheColumn) {
  try {
    plan(config_of(10), {{"good", DType::kBool, {}}, {"velocity", DType::kFloat32, {2, 0}}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("velocity"), std::string::npos) << error.what();
  }
}

TEST(Layout, WordsSurvivePackingWithEveryFieldAtItsEnds) {
  for (std::uint32_t lap : {0U, 1U, ~0U}) {
    for (const std::uint16_t epoch : {std::uint16_t{0}, std::uint16_t{0xffff}}) {
      for (const std::uint16_t owner : {std::uint16_t{0}, std::uint16_t{0x3fff}}) {
        for (BlockState state : {BlockState::kSealed, BlockState::kOpen, BlockState::kReaping}) {
          const BlockWord w = BlockWord::unpack(BlockWord{lap, epoch, owner, state}.pack());
          EXPECT_EQ(w.lap, lap);
          EXPECT_EQ(w.epoch, epoch);
          EXPECT_EQ(w.owner, owner);
          EXPECT_EQ(w.state, state);
        }
      }
    }
  }
  for (std::uint32_t written : {0U, 1U, Fill::kMost}) {
    const Fill f = Fill::unpack(Fill{0xffff, written, Fill::kMost - written}.pack());
    EXPECT_EQ(f.lap, 0xffff);
    EXPECT_EQ(f.written, written);
    EXPECT_EQ(f.committed, Fill::kMost - written);
  }
  const std::uint64_t last = (std::uint64_t{1} << 56) - 1;
  EXPECT_EQ(row_id(row_word(last, RowState::kCommitted, 63)), last);
  EXPECT_TRUE(row_committed(row_word(last, RowState::kCommitted, 63)));
  EXPECT_FALSE(row_committed(row_word(last, RowState::kWriting, 63)));
  EXPECT_FALSE(row_committed(0));
}

TEST(Layout, AFillOfAnotherLapCountsAsEmpty) {
  const Fill f{3, 10, 12};
  EXPECT_EQ(f.written_in(3), 10u);
  EXPECT_EQ(f.written_in(4), 0u);
  EXPECT_EQ(f.written_in(2), 0u);
}

TEST(TreeShape, LevelsAreWholeGroupsUpToTheCrown) {
  for (std::size_t leaves = 1; leaves < 70'000; leaves += leaves < 5000 ? 1 : 37) {
    const TreeShape shape(leaves);
    ASSERT_GE(shape.size(0), leaves);
    ASSERT_GE(shape.levels(), 2u);
    ASSERT_LE(shape.size(shape.levels() - 1), TreeShape::kCrown);
    std::size_t at = 0;
    for (std::size_t level = 0; level < shape.levels(); ++level) {
      ASSERT_EQ(shape.start(level), at);
      ASSERT_EQ(shape.size(level) % kFanout, 0u);
      if (level + 1 < shape.levels()) {
        ASSERT_TRUE(level == 0 || shape.size(level) > TreeShape::kCrown);
        ASSERT_GE(shape.size(level + 1), shape.size(level) / kFanout);
      }
      at += shape.size(level);
    }
    ASSERT_EQ(shape.nodes(), at);
  }
  EXPECT_LE(TreeShape(kMaxCapacity).levels(), TreeShape::kMaxLevels);
}

}  // namespace
}  // namespace replay_buffer
