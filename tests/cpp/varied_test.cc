// Values that vary in size: of any length, and compressed. They lie in arenas, which are written
// over and over; no row is ever seen with bytes of another.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>

#include "core/buffer.h"
#include "core/checkpoint.h"
#include "core/step_writer.h"
#include "core/verify.h"
#include "crowd.h"
#include "numbered.h"
#include "os_child.h"
#include "replay_buffer/buffer.h"
#include "sanitized.h"

namespace replay_buffer {
namespace {

using os::testing::Directory;
using testing::config_of;
using testing::crowd;
using testing::NumberedBuffer;
using testing::NumberedRows;
using testing::varied_schema;

const std::vector<std::string> kNothing;

BufferConfig tight(std::uint64_t capacity, std::uint64_t block_rows, std::uint64_t arena_bytes,
                   SamplingStrategy strategy = SamplingStrategy::Uniform) {
  BufferConfig config = config_of(capacity, strategy, block_rows);
  config.arena_bytes = arena_bytes;
  return config;
}

// Every row that is there, by whatever way, is whole; and is the one it says it is.
void check_all(NumberedBuffer& b, std::map<std::int64_t, std::uint64_t>& added) {
  const std::vector<std::int64_t> ids = b.latest(b.buffer.capacity());
  ASSERT_EQ(ids.size(), b.buffer.size());
  NumberedRows rows(b.schema, ids.size() + 1);
  ASSERT_EQ(b.buffer.get(ids, rows.out(), nullptr), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(rows.whole(i, added[ids[i]])) << ids[i];
  ASSERT_EQ(ids.back(), added.rbegin()->first);
  const NumberedBuffer::Drawn drawn = b.sample(5);
  for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(drawn.rows.whole(i, added[drawn.ids[i]]));
}

class Varied : public ::testing::TestWithParam<SamplingStrategy> {};

TEST_P(Varied, RowsAreWholeAtEveryOffsetOfARingThatGoesRound) {
  for (const std::uint64_t capacity : {1, 2, 7, 24, 50}) {
    for (const std::uint64_t block_rows : {1, 3, 8}) {
      if (block_rows > capacity) continue;
      for (const std::uint64_t arena : {1536, 4096, 65536}) {
        SCOPED_TRACE(std::to_string(capacity) + " rows in blocks of " + std::to_string(block_rows) +
                     ", arenas of " + std::to_string(arena));
        NumberedBuffer b(tight(capacity, block_rows, arena, GetParam()), varied_schema());
        std::map<std::int64_t, std::uint64_t> added;
        for (std::uint64_t turn = 0; turn < 60; ++turn) {
          const std::uint64_t first = b.numbers;
          const std::vector<std::int64_t> ids = b.add(1 + turn % 4);
          for (std::size_t i = 0; i < ids.size(); ++i) added[ids[i]] = first + i;
          check_all(b, added);
          if (HasFatalFailure()) return;
        }
        EXPECT_EQ(verify(b.buffer.ring(), b.buffer.owners()), kNothing);
        b.buffer.clear();
        EXPECT_EQ(b.buffer.size(), 0u);
        const std::uint64_t first = b.numbers;
        const std::vector<std::int64_t> ids = b.add(3);
        for (std::size_t i = 0; i < ids.size(); ++i) added[ids[i]] = first + i;
        check_all(b, added);
        EXPECT_EQ(verify(b.buffer.ring(), b.buffer.owners()), kNothing);
      }
    }
  }
}

TEST_P(Varied, ACheckpointHasEveryRowAndGoesOn) {
  for (std::size_t rows = 0; rows < 90; rows += 7) {
    const Directory directory;
    NumberedBuffer b(tight(40, 8, 2048, GetParam()), varied_schema());
    for (std::size_t i = 0; i < rows; ++i) b.add(1);
    write_checkpoint(b.buffer.ring(), directory / "c");
    b.add(3);
    const CheckpointResult saved =
        write_checkpoint(b.buffer.ring(), directory / "c", b.buffer.room());
    EXPECT_EQ(saved.rows, b.buffer.size());
    std::vector<Room> room;
    Buffer restored(restore_checkpoint(directory / "c", {}, false, &room));
    restored.resume(room);
    std::vector<std::int64_t> ids = b.latest(40);
    std::vector<std::int64_t> found(40);
    found.resize(restored.latest(40, found.data()));
    ASSERT_EQ(found, ids);
    NumberedRows ours(b.schema, ids.size());
    NumberedRows theirs(b.schema, ids.size());
    ASSERT_EQ(b.buffer.get(ids, ours.out(), nullptr), 0u);
    ASSERT_EQ(restored.get(ids, theirs.out(), nullptr), 0u);
    for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(theirs.whole(i, ours.number(i)));
    EXPECT_EQ(verify(restored.ring(), restored.owners()), kNothing);
    NumberedRows more(b.schema, 60);
    for (std::size_t i = 0; i < 60; ++i) more.fill(i, 1000 + i);
    restored.add(60, more.in(), nullptr, nullptr);
    found.resize(40);
    found.resize(restored.latest(40, found.data()));
    NumberedRows last(b.schema, found.size());
    ASSERT_EQ(restored.get(found, last.out(), nullptr), 0u);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_TRUE(last.whole(i));
    EXPECT_EQ(verify(restored.ring(), restored.owners()), kNothing);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Varied,
                         ::testing::Values(SamplingStrategy::Uniform,
                                           SamplingStrategy::Prioritized));

TEST(Varied, AQueueGivesEachRowOnceInOrder) {
  NumberedBuffer b(tight(64, 8, 2048, SamplingStrategy::Fifo), varied_schema());
  std::uint64_t next = 0;
  for (int turn = 0; turn < 40; ++turn) {
    b.add(5);
    const NumberedBuffer::Drawn drawn = b.sample(5);
    for (std::size_t i = 0; i < 5; ++i) ASSERT_TRUE(drawn.rows.whole(i, next++));
  }
}

TEST(Varied, ThreadsSeeWholeRowsWhileOthersWrite) {
  const std::size_t rounds = testing::rounds(3000);
  NumberedBuffer b(tight(64, 8, 2048, SamplingStrategy::Prioritized), varied_schema());
  b.add(64);
  std::atomic<int> writing{2};
  crowd(5, [&](std::size_t who) {
    if (who < 2) {
      NumberedRows rows(b.schema, 3);
      for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < 3; ++i) rows.fill(i, (who << 32) + round * 3 + i);
        b.buffer.add(1 + round % 3, rows.in(), nullptr, nullptr);
      }
      --writing;
      return;
    }
    const Directory directory;
    NumberedRows rows(b.schema, 64);
    std::vector<std::int64_t> ids(64);
    std::vector<float> weights(64);
    while (writing.load() != 0) {
      if (who == 4) {
        write_checkpoint(b.buffer.ring(), directory / "c");
        const Buffer restored(restore_checkpoint(directory / "c", {}, false));
        ids.resize(64);
        ids.resize(restored.latest(64, ids.data()));
        restored.get(ids, rows.out(), nullptr);
        for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(rows.whole(i)) << ids[i];
        continue;
      }
      const std::size_t n = who == 2 ? 64 : 8;
      b.buffer.sample({n, rows.out(), ids.data(), weights.data()}, 0.4F);
      for (std::size_t i = 0; i < n; ++i) ASSERT_TRUE(rows.whole(i)) << ids[i];
    }
  });
  EXPECT_EQ(verify(b.buffer.ring(), b.buffer.owners()), kNothing);
}

TEST(Varied, ARowThatFitsNoArenaIsRefusedWithItsColumn) {
  const Schema schema = {{"number", DType::kUInt64, {}}, {"tokens", DType::kInt32, {0}}};
  Buffer buffer(Segment::create({}, tight(10, 2, 1024), schema));
  const std::uint64_t numbers[] = {1, 2};
  const std::vector<std::int32_t> values(400);
  const std::int64_t offsets[] = {0, 100, 400};
  const Ragged tokens{values.data(), offsets};
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(numbers),
                                reinterpret_cast<const std::byte*>(&tokens)};
  try {
    buffer.add(2, columns, nullptr, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSchemaMismatch);
    const std::string said = error.what();
    EXPECT_NE(said.find("'tokens'"), std::string::npos) << said;
    EXPECT_NE(said.find("1200"), std::string::npos) << said;
    EXPECT_NE(said.find("1024"), std::string::npos) << said;
  }
  EXPECT_EQ(buffer.size(), 0u);
  buffer.add(1, columns, nullptr, nullptr);
  EXPECT_EQ(buffer.size(), 1u);
}

// ------------------------------------------------------------------------------------------ codecs

TEST(Codecs, AValueComesBackAndDamageIsNoticedOrHarmless) {
  if (!testing::have_codecs()) GTEST_SKIP() << "built without blosc2";
  std::mt19937_64 random(3);
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    for (const std::size_t width : {1, 2, 4, 8}) {
      for (const std::size_t bytes : {8u, 64u, 72u, 1000u, 7056u, 28224u, 300'000u}) {
        for (const int kind : {0, 1, 2}) {  // all alike, zeros, noise
          std::vector<std::byte> value(bytes, kind == 0 ? std::byte{77} : std::byte{0});
          for (std::byte& byte : value) {
            if (kind == 2) byte = static_cast<std::byte>(random());
          }
          std::vector<std::byte> small(bytes);
          const std::size_t taken = compress(codec, width, value, small.data());
          ASSERT_LT(taken, bytes);
          if (bytes >= 1000) {
            ASSERT_EQ(taken == 0, kind == 2) << bytes;
          }
          if (taken == 0) continue;
          small.resize(taken);
          ASSERT_EQ(decompressed_bytes(small), bytes);
          std::vector<std::byte> back(bytes);
          ASSERT_TRUE(decompress(small, back)) << bytes << " " << kind;
          ASSERT_EQ(back, value);
          for (int i = 0; i < 200; ++i) {
            std::vector<std::byte> bad = small;
            for (std::uint64_t k = 1 + random() % 4; k > 0; --k) {
              bad[random() % (random() % 2 ? bad.size() : std::min<std::size_t>(40, bad.size()))] =
                  static_cast<std::byte>(random());
            }
            if (random() % 8 == 0) bad.resize(random() % bad.size());
            (void)decompress(bad, back);
          }
        }
      }
    }
  }
}

TEST(Codecs, LargeByteColumnsOfATypedBufferAreCompressedWhenTheConfigSaysSo) {
  if (!testing::have_codecs()) GTEST_SKIP() << "built without blosc2";
  using Frame = std::array<std::uint8_t, 4096>;
  BufferConfig config = config_of(100);
  config.enable_compression = true;
  ReplayBuffer<Frame, int> buffer(config);
  Frame frame{};
  std::int64_t id = 0;
  for (int i = 0; i < 250; ++i) {
    frame.fill(static_cast<std::uint8_t>(i));
    id = buffer.add({frame, i, 1.0F, frame, false});
  }
  for (const auto& row : buffer.sample(64)) {
    EXPECT_EQ(row.observation[4095], static_cast<std::uint8_t>(row.action));
    EXPECT_EQ(row.next_observation[0], static_cast<std::uint8_t>(row.action));
  }
  EXPECT_TRUE(buffer.visit(id, [](const Frame& seen, int action, auto&&...) {
    EXPECT_EQ(seen[4000], static_cast<std::uint8_t>(action));
  }));
}

// ------------------------------------------------------------------------------------------- steps

// Steps of K streams; the frame of a step is filled with a number that tells stream and time.
struct Steps {
  explicit Steps(std::uint64_t arena_bytes)
      : schema{
            {"obs", DType::kUInt8, {600}, 0, testing::have_codecs() ? Codec::kLz4 : Codec::kNone},
            {"reward", DType::kFloat32, {}}} {
    BufferConfig config = config_of(96, SamplingStrategy::Uniform, 16);
    config.storage = Storage::Steps;
    config.arena_bytes = arena_bytes;
    buffer = std::make_unique<Buffer>(Segment::create({}, config, schema));
  }
  Schema schema;
  std::unique_ptr<Buffer> buffer;
};

void fill_frame(std::byte* frame, std::size_t stream, std::size_t time) {
  std::mt19937 noise(static_cast<unsigned>(stream * 1000 + time));
  // How well frames compress differs from one to the next.
  for (std::size_t i = 0; i < 600; ++i) {
    frame[i] = i < time * 53 % 600 ? static_cast<std::byte>(noise()) : std::byte{0};
  }
  frame[598] = static_cast<std::byte>(stream);
  frame[599] = static_cast<std::byte>(time);
}

TEST(VariedSteps, FrameStacksAndSuccessorsAreThoseOfTheStreamThoughBlocksAreLeftEarly) {
  constexpr std::size_t kStreams = 3;
  for (const std::uint64_t arena : {3072, 5000, 65536}) {
    Steps steps(testing::have_codecs() ? arena : 0);
    StepWriter writer(*steps.buffer, kStreams, Autoreset::SameStep, {true, false}, 1);
    std::vector<std::byte> obs(kStreams * 600);
    std::vector<std::byte> last(kStreams * 600);
    std::array<float, kStreams> reward{};
    std::size_t made = 0;
    for (std::size_t time = 0; time < 200; ++time) {
      std::array<std::uint8_t, kStreams> terminated{};
      std::array<std::uint8_t, kStreams> truncated{};
      for (std::size_t s = 0; s < kStreams; ++s) {
        fill_frame(obs.data() + s * 600, s, time);
        fill_frame(last.data() + s * 600, s, time + 1);
        terminated[s] = (time + 7 * s) % 23 == 22;
      }
      const std::byte* columns[] = {obs.data(), reinterpret_cast<const std::byte*>(reward.data())};
      const std::byte* finals[] = {last.data(), nullptr};
      writer.append({columns, finals, terminated.data(), truncated.data()});
      if (time < 10) continue;
      ViewSpec spec;
      spec.stack = 4;
      spec.steps = 2;
      spec.reward = 1;
      const View view(steps.buffer->ring(), spec);
      constexpr std::size_t kBatch = 16;
      std::vector<std::byte> stacks(kBatch * 4 * 600);
      std::vector<std::byte> nexts(kBatch * 4 * 600);
      std::vector<std::int32_t> counts(kBatch);
      std::vector<std::int64_t> ids(kBatch);
      const Output outputs[] = {
          {Role::kStart, 0, true, stacks.data()},
          {Role::kNext, 0, true, nexts.data()},
          {Role::kCount, -1, false, reinterpret_cast<std::byte*>(counts.data())}};
      ViewBatch batch;
      batch.rows = kBatch;
      batch.outputs = outputs;
      batch.ids = ids.data();
      Draw draw(batch.rows);
      steps.buffer->finish(draw, view, batch, 0);
      for (std::size_t i = 0; i < kBatch; ++i, ++made) {
        std::byte frame[600];
        const std::byte* newest = stacks.data() + (i * 4 + 3) * 600;
        const auto stream = std::to_integer<std::size_t>(newest[598]);
        const auto at = std::to_integer<std::size_t>(newest[599]);
        // Episodes begin at times with (time + 7 * stream) % 23 == 0, and at 0.
        const std::size_t phase = (at + 7 * stream) % 23;
        const std::size_t begin = phase > at ? 0 : at - phase;
        for (std::size_t k = 0; k < 4; ++k) {
          const std::size_t wanted = std::max(begin, at >= 3 - k ? at - (3 - k) : 0);
          fill_frame(frame, stream, wanted);
          ASSERT_EQ(std::memcmp(frame, stacks.data() + (i * 4 + k) * 600, 600), 0)
              << "stream " << stream << ", time " << at << ", frame " << k;
        }
        fill_frame(frame, stream, at + static_cast<std::size_t>(counts[i]));
        ASSERT_EQ(std::memcmp(frame, nexts.data() + (i * 4 + 3) * 600, 600), 0)
            << "stream " << stream << ", time " << at << ", after " << counts[i];
      }
    }
    EXPECT_GT(made, 0u);
    EXPECT_EQ(verify(steps.buffer->ring(), steps.buffer->owners()), kNothing);
  }
}

TEST(VariedSteps, AViewGivesValuesOfAnyLength) {
  BufferConfig config = config_of(32);
  config.storage = Storage::Steps;
  Buffer buffer(
      Segment::create({}, config, {{"obs", DType::kInt32, {0}}, {"reward", DType::kFloat32, {}}}));
  StepWriter writer(buffer, 1, Autoreset::SameStep, {true, false}, 1);
  const std::uint8_t no = 0;
  const float reward = 1;
  // Step i has i items, all of them i.
  for (std::int32_t i = 0; i < 5; ++i) {
    const std::vector<std::int32_t> items(static_cast<std::size_t>(i) + 1, i);
    const std::int64_t offsets[] = {0, i};
    const Ragged values{reinterpret_cast<const std::byte*>(items.data()), offsets};
    const std::byte* columns[] = {reinterpret_cast<const std::byte*>(&values),
                                  reinterpret_cast<const std::byte*>(&reward)};
    writer.append({columns, nullptr, &no, &no, nullptr, nullptr});
  }
  const View view(buffer.ring(), {});
  const std::int64_t wanted[] = {1, 3};
  OwnPieces next(2, 8);
  const Output outputs[] = {
      {Role::kNext, 0, false, reinterpret_cast<std::byte*>(static_cast<Pieces*>(&next))}};
  std::int64_t ids[2];
  std::uint8_t not_made[2];
  ViewBatch batch;
  batch.rows = 2;
  batch.outputs = outputs;
  batch.ids = ids;
  ASSERT_EQ(buffer.make(view, wanted, batch, not_made, 0), 0u);
  for (std::size_t row = 0; row < 2; ++row) {
    const auto number = static_cast<std::int32_t>(wanted[row] + 1);
    ASSERT_EQ(next.size(row), static_cast<std::size_t>(number) * sizeof(number));
    std::int32_t first = 0;
    std::memcpy(&first, next.data(row), sizeof(first));
    EXPECT_EQ(first, number);
  }
}

}  // namespace
}  // namespace replay_buffer
