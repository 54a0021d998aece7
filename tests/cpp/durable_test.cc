// Files after a power cut: the disk has some pages as they were and others as they became.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "core/buffer.h"
#include "core/verify.h"
#include "numbered.h"
#include "os/process.h"
#include "os_child.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::Directory;
using testing::code_of;
using testing::config_of;
using testing::NumberedRows;

Location file_at(const std::string& path) { return {Location::Kind::kFile, path}; }

std::vector<std::byte> read_all(const std::string& path) {
  const os::File file = os::File::open(path, os::Access::kRead);
  std::vector<std::byte> bytes(file.size());
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

void write_all(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Header& header_in(std::vector<std::byte>& bytes) {
  return *reinterpret_cast<Header*>(bytes.data());
}

std::vector<std::int64_t> add(Buffer& buffer, const Schema& schema, std::uint64_t from,
                              std::size_t n) {
  NumberedRows rows(schema, n);
  for (std::size_t i = 0; i < n; ++i) rows.fill(i, from + i);
  std::vector<std::int64_t> ids(n);
  buffer.add(n, rows.in(), nullptr, ids.data());
  return ids;
}

// A file as the disk has it while somebody writes to it, and of another boot.
struct Image {
  std::vector<std::byte> bytes;
  Layout layout;
};

Image image_of(const Directory& directory, SamplingStrategy strategy, bool durable, std::size_t n,
               const Schema& schema) {
  BufferConfig config = config_of(300, strategy, 16);
  config.durable = durable;
  const std::string path = directory / "source";
  Image image;
  {
    Buffer buffer(Segment::create(file_at(path), config, schema));
    const std::vector<std::int64_t> ids = add(buffer, schema, 0, n);
    if (buffer.ring().priorities && n > 10) {
      const std::vector<std::int64_t> last(ids.end() - 10, ids.end());
      buffer.update(last, std::vector<float>(10, 3.0F));
    }
    image = {read_all(path), buffer.layout()};
  }
  os::File::remove(path);
  header_in(image.bytes).counters.boot.store(12345);
  return image;
}

// Everything that comes back is whole, and the buffer works on.
std::size_t check_and_use(const std::string& path, const Schema& schema) {
  Buffer buffer(Segment::open(file_at(path), os::Access::kReadWrite));
  EXPECT_EQ(verify(buffer.ring(), buffer.owners()), std::vector<std::string>{});
  std::vector<std::int64_t> ids(buffer.capacity());
  ids.resize(buffer.latest(ids.size(), ids.data()));
  const std::size_t size = buffer.size();
  NumberedRows rows(schema, ids.size() + 1);
  EXPECT_EQ(buffer.get(ids, rows.out(), nullptr), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(rows.whole(i, static_cast<std::uint64_t>(ids[i]))) << ids[i];
  }
  add(buffer, schema, 0, 2 * buffer.capacity());
  EXPECT_GE(buffer.size(), buffer.capacity() - 2 * buffer.ring().blocks.block_rows());
  std::vector<std::int64_t> drawn(8);
  NumberedRows out(schema, 8);
  std::vector<float> weights(8);
  buffer.sample({8, out.out(), drawn.data(), weights.data()}, 0.4F);
  EXPECT_EQ(verify(buffer.ring(), buffer.owners()), std::vector<std::string>{});
  return size;
}

class Durable : public ::testing::TestWithParam<SamplingStrategy> {};

TEST_P(Durable, EveryWholeRowComesBack) {
  const Schema schema = testing::small_schema();
  for (const std::size_t n : {0u, 1u, 16u, 299u, 300u, 301u, 1000u}) {
    const Directory directory;
    const Image image = image_of(directory, GetParam(), true, n, schema);
    write_all(directory / "file", image.bytes);
    EXPECT_EQ(check_and_use(directory / "file", schema), std::min<std::size_t>(n, 300)) << n;
  }
}

TEST_P(Durable, ADamagedRowIsLeftOut) {
  const Schema schema = testing::large_schema(2000);
  const Directory directory;
  Image image = image_of(directory, GetParam(), true, 450, schema);
  const ColumnPlace& frame = image.layout.places[1];
  image.bytes[frame.base + 7 * frame.stride + 1999] ^= std::byte{1};  // its last byte
  image.bytes[image.layout.words_at + 100 * image.layout.word_stride + 3] ^=
      std::byte{4};  // its id
  const std::size_t zeroed = frame.base + 200 * frame.stride;
  std::fill_n(image.bytes.begin() + static_cast<std::ptrdiff_t>(zeroed), 4096, std::byte{0});
  write_all(directory / "file", image.bytes);
  const std::size_t size = check_and_use(directory / "file", schema);
  EXPECT_GE(size, 300u - 2 - 4);
  EXPECT_LE(size, 300u - 2 - 2);
}

TEST_P(Durable, AnyDamageBehindTheHeaderIsMended) {
  const Schema schema = testing::small_schema();
  std::mt19937_64 random(7);
  for (int round = 0; round < 60; ++round) {
    const Directory directory;
    Image image = image_of(directory, GetParam(), true, random() % 1000, schema);
    const std::size_t from = round % 3 == 0 ? offsetof(Header, counters) : image.layout.owners_at;
    for (std::uint64_t i = random() % 8; i > 0; --i) {
      const std::size_t at = from + random() % (image.bytes.size() - from);
      const std::size_t n = std::min<std::size_t>(random() % 2 ? 4096 : 8, image.bytes.size() - at);
      const bool zero = random() % 2 == 0;
      for (std::size_t k = 0; k < n; ++k) {
        image.bytes[at + k] = zero ? std::byte{0} : static_cast<std::byte>(random());
      }
    }
    header_in(image.bytes).counters.boot.store(12345);
    // A column entry that was hit is an error of its own.
    write_all(directory / "file", image.bytes);
    try {
      check_and_use(directory / "file", schema);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      EXPECT_EQ(round % 3, 0) << error.what();
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST_P(Durable, NonsenseInBlocksAndHeadIsNotBelieved) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  Image image = image_of(directory, GetParam(), true, 450, schema);
  auto* blocks = reinterpret_cast<Block*>(image.bytes.data() + image.layout.blocks_at);
  blocks[3].word.store(~std::uint64_t{0});
  blocks[4].word.store(0);
  blocks[5].laps[0].taken.store(~std::uint64_t{0});
  blocks[6].before.store(~std::uint64_t{0});
  header_in(image.bytes).counters.head.store(~std::uint64_t{0} - 5);
  header_in(image.bytes).counters.era.store(~std::uint64_t{0} - 5);
  write_all(directory / "file", image.bytes);
  EXPECT_EQ(check_and_use(directory / "file", schema), 300u);
}

// All rows that are there, whole.
void check_rows(const Buffer& buffer, const Schema& schema) {
  std::vector<std::int64_t> ids(buffer.capacity());
  ids.resize(buffer.latest(ids.size(), ids.data()));
  NumberedRows rows(schema, ids.size() + 1);
  EXPECT_EQ(buffer.get(ids, rows.out(), nullptr), 0u);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_TRUE(rows.whole(i)) << ids[i];
  EXPECT_EQ(verify(buffer.ring(), buffer.owners()), std::vector<std::string>{});
}

TEST_P(Durable, OfValuesThatVaryInSizeAnyMixtureOfPagesGivesWholeRows) {
  constexpr std::size_t kPiece = 512;
  const Schema schema = testing::varied_schema();
  std::mt19937_64 random(11);
  for (std::uint64_t round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const Directory directory;
    const std::string path = directory / "file";
    BufferConfig config = config_of(60, GetParam(), 8);
    config.durable = true;
    config.arena_bytes = 2048 + 1024 * (round % 4);
    std::vector<std::byte> bytes;
    std::vector<std::byte> later;
    {
      Buffer buffer(Segment::create(file_at(path), config, schema));
      add(buffer, schema, 0, 20 + random() % 150);
      bytes = read_all(path);
      add(buffer, schema, 1000, 1 + random() % 120);
      later = read_all(path);
    }
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      if (random() % 2 == 0) std::memcpy(bytes.data() + at, later.data() + at, kPiece);
    }
    header_in(bytes).counters.boot.store(12345);
    write_all(path, bytes);
    Buffer buffer(Segment::open(file_at(path), os::Access::kReadWrite));
    check_rows(buffer, schema);
    for (std::uint64_t more = 0; more < 20; ++more) {
      add(buffer, schema, 5000 + 7 * more, 7);
      check_rows(buffer, schema);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Durable,
                         ::testing::Values(SamplingStrategy::Uniform, SamplingStrategy::Prioritized,
                                           SamplingStrategy::Fifo));

std::uint64_t boot_in(const std::string& path) {
  std::vector<std::byte> bytes = read_all(path);
  return header_in(bytes).counters.boot.load();
}

TEST(PowerCut, AFileThatOthersHaveOpenForReadingIsRecoveredToo) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  Image image = image_of(directory, SamplingStrategy::Uniform, true, 300, schema);
  const ColumnPlace& column = image.layout.places[0];
  image.bytes[column.base + 7 * column.stride] ^= std::byte{1};
  write_all(directory / "file", image.bytes);
  const auto watcher = Segment::open(file_at(directory / "file"), os::Access::kRead);
  EXPECT_EQ(check_and_use(directory / "file", schema), 299u);
}

TEST(PowerCut, WhoOnlyReadsIsRefusedUntilSomebodyHasRecoveredTheFile) {
  const Schema schema = testing::small_schema();
  for (const bool durable : {true, false}) {
    const Directory directory;
    const Image image = image_of(directory, SamplingStrategy::Uniform, durable, 300, schema);
    write_all(directory / "file", image.bytes);
    const auto read = [&] {
      const Buffer reader(Segment::open(file_at(directory / "file"), os::Access::kRead));
    };
    EXPECT_EQ(code_of(read), ErrorCode::kCorrupt);
    if (!durable) continue;
    const Buffer writer(Segment::open(file_at(directory / "file"), os::Access::kReadWrite));
    EXPECT_EQ(code_of(read), ErrorCode{});
  }
}

// A file counts as open from the moment it has its path: its pages are on the disk, or not.
TEST(PowerCut, AFileThatWasJustMadeIsNotTakenForOneThatWasClosed) {
  const Directory directory;
  const auto segment =
      Segment::create(file_at(directory / "file"), config_of(10, SamplingStrategy::Uniform, 2),
                      testing::small_schema());
  EXPECT_EQ(boot_in(directory / "file"), os::boot());
}

TEST(PowerCut, TheLastWriterClosesTheFileWhoeverStillReads) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  const std::string path = directory / "file";
  std::unique_ptr<Buffer> first = std::make_unique<Buffer>(
      Segment::create(file_at(path), config_of(10, SamplingStrategy::Uniform, 2), schema));
  std::unique_ptr<Buffer> second =
      std::make_unique<Buffer>(Segment::open(file_at(path), os::Access::kReadWrite));
  const Buffer reader(Segment::open(file_at(path), os::Access::kRead));
  first.reset();
  EXPECT_EQ(boot_in(path), os::boot()) << "another one writes";
  second.reset();
  EXPECT_EQ(boot_in(path), 0u);
  const Buffer third(Segment::open(file_at(path), os::Access::kReadWrite));
  EXPECT_EQ(boot_in(path), os::boot());
}

TEST(PowerCut, AForkedChildThatDoesNothingKeepsNobodyFromTheFile) {
  const Schema schema = testing::small_schema();
  const Directory directory;
  const std::string path = directory / "file";
  std::unique_ptr<Buffer> buffer = std::make_unique<Buffer>(
      Segment::create(file_at(path), config_of(10, SamplingStrategy::Uniform, 2), schema));
  const Child child([] {
    for (;;) ::pause();
    return 0;
  });
  buffer.reset();
  EXPECT_EQ(boot_in(path), 0u);
  const Buffer again(Segment::open(file_at(path), os::Access::kReadWrite));
  const Buffer reader(Segment::open(file_at(path), os::Access::kRead));
}

TEST(NotDurable, AFileThatWasOpenInAPowerCutIsRefused) {
  const Directory directory;
  const Image image =
      image_of(directory, SamplingStrategy::Uniform, false, 100, testing::small_schema());
  write_all(directory / "file", image.bytes);
  EXPECT_EQ(code_of([&] { Segment::open(file_at(directory / "file"), os::Access::kRead); }),
            ErrorCode{});
  EXPECT_EQ(
      code_of([&] {
        const Buffer buffer(Segment::open(file_at(directory / "file"), os::Access::kReadWrite));
      }),
      ErrorCode::kCorrupt);
}

TEST(NotDurable, AFileOfAKilledProcessOpensWithAllItsRows) {
  for (const bool durable : {false, true}) {
    const Schema schema = testing::small_schema();
    const Directory directory;
    BufferConfig config = config_of(300, SamplingStrategy::Prioritized, 16);
    config.durable = durable;
    Child child([&] {
      Buffer buffer(Segment::create(file_at(directory / "file"), config, schema));
      add(buffer, schema, 0, 450);
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
    EXPECT_EQ(child.join(), 128 + SIGKILL);
    EXPECT_EQ(check_and_use(directory / "file", schema), 300u);
  }
}

}  // namespace
}  // namespace replay_buffer
