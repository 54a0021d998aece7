#include "core/checkpoint.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/buffer.h"
#include "core/checkpoint_format.h"
#include "core/verify.h"
#include "numbered.h"
#include "os/directory.h"
#include "os_child.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::Directory;
using testing::config_of;
using testing::NumberedRows;

constexpr std::int64_t kNext = 3;  // the row that the writer of block 0 overwrites next

// Block 0 is open in its second lap with three rows written, and the priority of the next row, of
// the first lap, is taken away: what a writer does just before it writes over it.
void stop_before_overwriting(Buffer& buffer, const Schema& schema) {
  std::vector<float> raws(67, 2.0F);
  raws[10] = 9;
  NumberedRows rows(schema, raws.size());
  for (std::size_t i = 0; i < raws.size(); ++i) rows.fill(i, i);
  buffer.add(raws.size(), rows.in(), raws.data(), nullptr);
  buffer.ring().priorities->retire(kNext);
}

std::unique_ptr<Segment> new_segment(const Schema& schema) {
  return Segment::create({Location::Kind::kShm, ""},
                         config_of(64, SamplingStrategy::Prioritized, 8), schema);
}

TEST(Checkpoint, ARowThatALiveWriterIsAboutToOverwriteIsLeftOut) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  Buffer buffer(new_segment(schema));
  stop_before_overwriting(buffer, schema);
  EXPECT_EQ(write_checkpoint(buffer.ring(), directory / "c").rows, 63u);
  const Buffer restored(restore_checkpoint(directory / "c", {}, false));
  EXPECT_EQ(restored.size(), 63u);
  EXPECT_TRUE(std::isnan(restored.ring().priorities->raw_of(kNext)));
  EXPECT_EQ(restored.ring().priorities->raw_of(kNext + 1), 2.0F);
  EXPECT_EQ(verify(restored.ring(), restored.owners()), std::vector<std::string>{});
}

TEST(Checkpoint, ARowThatADeadWriterWasAboutToOverwriteIsKeptAsTheReaperKeepsIt) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  Buffer buffer(new_segment(schema));
  Child child([&] {
    stop_before_overwriting(buffer, schema);
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_EQ(child.join(), 128 + SIGKILL);
  EXPECT_EQ(write_checkpoint(buffer.ring(), directory / "c").rows, 64u);
  const Buffer restored(restore_checkpoint(directory / "c", {}, false));
  EXPECT_EQ(restored.size(), 64u);
  EXPECT_EQ(restored.ring().priorities->raw_of(kNext), 9.0F);
  EXPECT_EQ(verify(restored.ring(), restored.owners()), std::vector<std::string>{});
}

// A manifest is believed for what its checksum covers; that it fits the ring is checked besides.
TEST(Checkpoint, AManifestOfAnotherRingThatClaimsToBeOfThisOneIsNotBuiltOn) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  const Buffer small(Segment::create({}, config_of(8, SamplingStrategy::Uniform, 8), schema));
  Buffer buffer(new_segment(schema));
  write_checkpoint(small.ring(), directory / "c/");
  checkpoint::Manifest forged = checkpoint::read_manifest(directory / "c");
  forged.header.lineage = buffer.ring().counters().lineage.load();
  const std::vector<std::byte> bytes = checkpoint::pack(forged);
  os::File::open(directory / "c/manifest", os::Access::kReadWrite)
      .write_at(0, bytes.data(), bytes.size());
  NumberedRows rows(schema, 64);
  for (std::size_t i = 0; i < 64; ++i) rows.fill(i, i);
  buffer.add(64, rows.in(), nullptr, nullptr);
  EXPECT_EQ(write_checkpoint(buffer.ring(), directory / "c").rows, 64u);
  EXPECT_EQ(Buffer(restore_checkpoint(directory / "c", {}, false)).size(), 64u);
}

// What is damaged is not saved in the place of what was whole.
TEST(Checkpoint, OfADamagedSegmentIsRefusedAndTheOneBeforeStays) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  Buffer buffer(new_segment(schema));
  NumberedRows rows(schema, 64);
  for (std::size_t i = 0; i < 64; ++i) rows.fill(i, i);
  buffer.add(64, rows.in(), nullptr, nullptr);
  write_checkpoint(buffer.ring(), directory / "c");
  const std::vector<std::string> files = os::list_directory(directory / "c");
  buffer.add(8, rows.in(), nullptr, nullptr);
  const Ring& ring = buffer.ring();
  const auto refused = [&](auto& word, std::uint64_t damage, const char* why) {
    SCOPED_TRACE(why);
    const auto was = word.load();
    word.store(static_cast<decltype(was)>(damage));
    os::testing::expect_error(ErrorCode::kCorrupt, {directory / "c", "as it was", why},
                              [&] { write_checkpoint(ring, directory / "c"); });
    word.store(was);
    EXPECT_EQ(os::list_directory(directory / "c"), files);
    Buffer restored(restore_checkpoint(directory / "c", {}, false));
    std::vector<std::int64_t> ids(64);
    EXPECT_EQ(restored.latest(64, ids.data()), 64u);
    EXPECT_EQ(ids, testing::count_from(0, 64));
  };
  constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
  const std::uint64_t open = ring.segment->blocks()[0].word.load();
  refused(ring.segment->blocks()[0].word, open + kFar, "ahead of the head");
  refused(ring.rows.word(9), row_word(10, RowState::kCommitted), "rows of block 1");
  refused(ring.rows.word(9), row_word(9 + 64 * 7, RowState::kCommitted), "rows of block 1");
  refused(ring.segment->priorities()[9], PriorityWord{-1, 1}.pack(), "rows of block 1");
  refused(ring.counters().max_raw_bits, 0x7fc00000, "counters");
  write_checkpoint(ring, directory / "c");
  EXPECT_EQ(Buffer(restore_checkpoint(directory / "c", {}, false)).size(), 64u);
}

}  // namespace
}  // namespace replay_buffer
