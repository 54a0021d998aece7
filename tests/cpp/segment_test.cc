#include "segment/segment.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>

#include "numbered.h"
#include "segment/checksum.h"

namespace replay_buffer {
namespace {

using testing::config_of;
using testing::small_schema;

const Header& header_of(const Segment& segment) {
  return *reinterpret_cast<const Header*>(segment.base());
}

const ColumnEntry* columns_of(const Segment& segment) {
  return reinterpret_cast<const ColumnEntry*>(segment.base() + segment.layout().columns_at);
}

TEST(Segment, ANewOneSaysWhatItIs) {
  BufferConfig config = config_of(1000, SamplingStrategy::Prioritized);
  config.seed = 42;
  config.alpha = 0.75F;
  const auto segment = Segment::create({}, config, small_schema());
  const Header& header = header_of(*segment);
  EXPECT_EQ(std::memcmp(&header.magic, "REPLYBFR", 8), 0);
  EXPECT_EQ(header.version, kFormatVersion);
  EXPECT_EQ(header.header_bytes, sizeof(Header));
  EXPECT_EQ(header.total_bytes, segment->layout().total_bytes);
  EXPECT_EQ(header.settings.capacity, 1000u);
  EXPECT_EQ(header.settings.seed, 42u);
  EXPECT_EQ(header.settings.column_count, small_schema().size());
  EXPECT_EQ(header.checksum, header_checksum(header, columns_of(*segment)));
  EXPECT_EQ(std::bit_cast<float>(segment->counters().alpha_bits.load()), 0.75F);
  EXPECT_EQ(std::bit_cast<float>(segment->counters().max_raw_bits.load()), 1.0F);
}

TEST(Segment, KeepsTheSchema) {
  Schema schema = small_schema();
  schema.push_back({std::string(kMaxNameBytes, 'n'), DType::kInt32, {1, 2, 3, 4, 5, 6, 7, 8}, 0});
  schema.push_back({"action", DType::kInt64, {}, 6});
  const auto segment = Segment::create({}, config_of(3), schema);
  for (std::size_t i = 0; i < schema.size(); ++i) {
    const ColumnEntry& entry = columns_of(*segment)[i];
    EXPECT_EQ(entry.name, schema[i].name);
    EXPECT_EQ(entry.dtype, static_cast<std::uint32_t>(schema[i].dtype));
    EXPECT_EQ(entry.limit, schema[i].limit);
    EXPECT_EQ(std::vector<std::uint64_t>(entry.shape, entry.shape + entry.dimensions),
              schema[i].shape);
  }
}

TEST(Segment, EverythingThatChangesStartsAtZero) {
  const auto segment =
      Segment::create({}, config_of(100, SamplingStrategy::Prioritized), small_schema());
  const Layout& l = segment->layout();
  for (std::size_t at = l.owners_at; at < l.total_bytes; ++at) {
    ASSERT_EQ(segment->base()[at], std::byte{0}) << at;
  }
  EXPECT_EQ(segment->counters().head.load(), 0u);
  EXPECT_EQ(segment->counters().era.load(), 0u);
  EXPECT_EQ(segment->counters().draws.load(), 0u);
}

TEST(Segment, TheChecksumCoversEveryFixedByte) {
  const auto segment = Segment::create({}, config_of(10), small_schema());
  const std::uint64_t sum = header_of(*segment).checksum;
  const auto recompute = [&] { return header_checksum(header_of(*segment), columns_of(*segment)); };
  const auto expect_noticed = [&](std::size_t at) {
    segment->base()[at] ^= std::byte{1};
    EXPECT_NE(recompute(), sum) << "byte " << at;
    segment->base()[at] ^= std::byte{1};
  };
  // Not the checksum itself, and not the number of columns, which says how much there is to read.
  constexpr std::size_t kCount = offsetof(Header, settings) + offsetof(Settings, column_count);
  for (std::size_t at = 0; at < offsetof(Header, counters); ++at) {
    if (at / 8 != offsetof(Header, checksum) / 8 && at / 4 != kCount / 4) expect_noticed(at);
  }
  const std::size_t first = segment->layout().columns_at;
  for (std::size_t at = 0; at < small_schema().size() * sizeof(ColumnEntry); ++at)
    expect_noticed(first + at);
  segment->counters().head.store(5);
  EXPECT_EQ(recompute(), sum);
}

TEST(Segment, ChecksumsTellLengthsAndOrderApart) {
  const std::byte zeros[16] = {};
  EXPECT_NE(checksum64({zeros, 8}), checksum64({zeros, 16}));
  EXPECT_NE(checksum64({zeros, 7}), checksum64({zeros, 8}));
  std::byte ab[16] = {};
  std::byte ba[16] = {};
  ab[0] = ba[8] = std::byte{1};
  EXPECT_NE(checksum64(ab), checksum64(ba));
  EXPECT_NE(checksum64(ab, 1), checksum64(ab, 2));
}

// A million frames and their successors: 56 GB of addresses, a few pages of memory.
TEST(Segment, MemoryIsReservedNotUsed) {
  const Schema frames = {{"obs", DType::kUInt8, {84, 84, 4}},
                         {"next_obs", DType::kUInt8, {84, 84, 4}}};
  const auto segment =
      Segment::create({}, config_of(1'000'000, SamplingStrategy::Prioritized), frames);
  EXPECT_GT(segment->layout().total_bytes, std::size_t{56'000'000'000});
  EXPECT_LT(segment->resident_bytes(), std::size_t{16} << 20);  // a few huge pages
}

}  // namespace
}  // namespace replay_buffer
