// What was put together from parts of different times, a checkpoint made while a writer went on or
// a file after a power cut, may have a block that says its writer went on in another, and that
// other as it was before. Whoever claims it then is not the one who went on.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "core/checkpoint.h"
#include "core/checkpoint_format.h"
#include "core/streams.h"
#include "core/verify.h"
#include "os_child.h"
#include "stepped.h"

namespace replay_buffer {
namespace {

using os::testing::Directory;
using testing::Observation;
using testing::step_config;
using testing::step_schema;
using testing::Steps;

constexpr std::uint64_t kBlockRows = 8;
constexpr std::size_t kLost = 2;  // the block whose claim is lost

std::size_t endless(std::size_t, std::size_t) { return 1000; }

// Five streams in blocks 0 to 2.
void write_three_blocks(Buffer& buffer) {
  Steps steps(buffer, 1, 5, Autoreset::NextStep, endless);
  for (int i = 0; i < 4; ++i) steps.append();
  ASSERT_EQ(buffer.ring().blocks.head(), kLost + 1);
}

Observation observation(const Ring& ring, std::uint64_t slot) {
  Observation found;
  std::memcpy(&found, ring.rows.cell(0, slot), sizeof(found));
  return found;
}

// Somebody else claims the block, with fewer streams: rows in it that begin no episode lie where
// the first writer's would.
void expect_streams_apart(Buffer& buffer) {
  ASSERT_EQ(buffer.ring().blocks.head(), kLost);
  Steps others(buffer, 2, 1, Autoreset::NextStep, endless);
  for (std::uint64_t i = 0; i < kBlockRows; ++i) others.append();
  const Streams streams(buffer.ring());
  std::size_t pairs = 0;
  for (std::uint64_t slot = 0; slot < buffer.capacity(); ++slot) {
    Place row{};
    Place next{};
    if (!streams.at(slot, row) || !streams.next(row, next)) continue;
    ++pairs;
    EXPECT_EQ(observation(buffer.ring(), slot).stream,
              observation(buffer.ring(), next.slot).stream);
  }
  EXPECT_GT(pairs, 10u);
  EXPECT_EQ(verify(buffer.ring(), buffer.owners()), std::vector<std::string>{});
}

TEST(LostClaims, OfACheckpointThatWasMadeMeanwhile) {
  const Directory directory;
  Buffer buffer(Segment::create({}, step_config(64, kBlockRows), step_schema()));
  write_three_blocks(buffer);
  write_checkpoint(buffer.ring(), directory / "c");
  checkpoint::Manifest manifest = checkpoint::read_manifest(directory / "c");
  manifest.header.counters.head = kLost;
  manifest.blocks[kLost] = {};
  const std::vector<std::byte> bytes = checkpoint::pack(manifest);
  os::File::open(directory / "c/manifest", os::Access::kReadWrite)
      .write_at(0, bytes.data(), bytes.size());
  Buffer restored(restore_checkpoint(directory / "c", {}, false));
  expect_streams_apart(restored);
}

TEST(LostClaims, OfAPowerCut) {
  const Directory directory;
  BufferConfig config = step_config(64, kBlockRows);
  config.durable = true;
  std::vector<std::byte> bytes;
  {
    Buffer buffer(
        Segment::create({Location::Kind::kFile, directory / "source"}, config, step_schema()));
    write_three_blocks(buffer);
    const os::File file = os::File::open(directory / "source", os::Access::kRead);
    bytes.resize(file.size());
    file.read_at(0, bytes.data(), bytes.size());
    const Layout& layout = buffer.layout();
    auto& header = *reinterpret_cast<Header*>(bytes.data());
    header.counters.boot.store(12345);  // another
    header.counters.head.store(kLost);
    std::memset(bytes.data() + layout.blocks_at + kLost * sizeof(Block), 0, sizeof(Block));
    for (std::uint64_t i = 0; i < kBlockRows; ++i) {
      const std::size_t slot = kLost * kBlockRows + i;
      std::memset(bytes.data() + layout.words_at + slot * layout.word_stride, 0,
                  sizeof(std::uint64_t));
    }
  }
  std::ofstream(directory / "file", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  Buffer recovered(
      Segment::open({Location::Kind::kFile, directory / "file"}, os::Access::kReadWrite));
  expect_streams_apart(recovered);
}

}  // namespace
}  // namespace replay_buffer
