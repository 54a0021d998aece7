#include "core/checkpoint.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/buffer.h"
#include "core/verify.h"
#include "numbered.h"
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
                         config_of(64, SamplingStrategy::kPrioritized, 8), schema);
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

}  // namespace
}  // namespace replay_buffer
