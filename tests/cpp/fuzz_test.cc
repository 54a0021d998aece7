// Damaged segments: whatever bytes a segment holds, a call on it ends, with an error that names
// what is wrong or with values that mean nothing. It never leaves the segment's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/random.h"
#include "core/verify.h"
#include "damaged.h"
#include "numbered.h"
#include "os/process.h"
#include "segment/checksum.h"
#include "segment/segment.h"

namespace replay_buffer {
namespace {

using testing::attempt;
using testing::Bytes;
using testing::Clock;
using testing::Codes;
using testing::NumberedRows;
using testing::open_copy;
using testing::Specimen;
using testing::specimen_of;
using testing::Surroundings;
using testing::Watchdog;

std::vector<Specimen> all_specimens() {
  const Schema small = testing::small_schema();
  std::vector<Specimen> all;
  const auto add = [&](const std::string& name, const BufferConfig& config, const Schema& schema,
                       std::size_t rows) {
    all.push_back(specimen_of(name, config, schema, rows));
  };
  using S = SamplingStrategy;
  add("uniform", testing::config_of(300, S::Uniform, 16), small, 100);
  add("uniform, lapped", testing::config_of(300, S::Uniform, 16), small, 777);
  add("one row", testing::config_of(1), small, 3);
  add("prioritized", testing::config_of(300, S::Prioritized, 16), small, 450);
  BufferConfig config = testing::config_of(273, S::Prioritized, 8);
  config.weights = WeightScale::GlobalMax;
  config.cer = true;
  add("prioritized by the global maximum, combined", config, testing::apart_schema(), 100);
  config = testing::config_of(4100, S::Prioritized);
  config.weights = WeightScale::None;
  add("four levels", config, {{"number", DType::kUInt64, {}}}, 4200);
  add("rank", testing::config_of(100, S::Rank, 8), small, 170);
  config = testing::config_of(100, S::Rank, 8);
  config.cer = true;
  add("rank, combined", config, small, 30);
  add("epochs", testing::config_of(100, S::WithoutReplacement, 8), small, 150);
  config = testing::config_of(100, S::Fifo, 8);
  config.max_times_sampled = 3;
  add("queue", config, small, 150);
  add("stack", testing::config_of(100, S::Lifo, 8), small, 150);
  config = testing::config_of(100, S::Prioritized, 8);
  config.durable = true;
  add("durable", config, small, 150);
  config = testing::config_of(100, S::Prioritized, 8);
  config.durable = true;
  add("varied", config, testing::varied_schema(), 150);
  config = testing::config_of(60, S::Uniform, 8);
  config.arena_bytes = 2048;
  add("varied, arenas that are soon full", config, testing::varied_schema(), 150);
  add("large rows", testing::config_of(50, S::Uniform, 4), testing::large_schema(5000), 70);
  return all;
}

struct Section {
  std::size_t at;
  std::size_t bytes;
};

std::vector<Section> sections_of(const Layout& l) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const std::size_t capacity = l.settings.capacity;
  std::vector<Section> all{{0, offsetof(Header, counters)},
                           {offsetof(Header, counters), sizeof(Counters)},
                           {l.columns_at, l.schema.size() * sizeof(ColumnEntry)},
                           {l.owners_at, kOwnerCount * sizeof(Owner)},
                           {l.owners_at, 4 * sizeof(Owner)},
                           {l.blocks_at, l.block_count * sizeof(Block)},
                           {l.fills_at, l.block_count * kWord},
                           {l.words_at, capacity * l.word_stride},
                           {l.records_at, capacity * l.record_stride},
                           {0, l.total_bytes}};
  if (l.has_priorities()) {
    const std::size_t inner = TreeShape(capacity).inner_nodes() * kWord;
    all.push_back({l.priorities_at, capacity * kWord});
    all.push_back({l.weights_at, capacity * sizeof(float)});
    all.push_back({l.sums_at, inner});
    if (l.has_lows()) all.push_back({l.lows_at, inner});
  }
  if (l.durable()) all.push_back({l.checks_at, capacity * kWord});
  if (l.has_arenas()) {
    all.push_back({l.arenas_at, l.block_count * l.settings.arena_bytes});
    all.push_back({l.arenas_at, 512});
  }
  return all;
}

// Values that break things: limits of their types, and what this segment counts with.
std::uint64_t odd_value(Random& random, const Layout& l) {
  const std::uint64_t all[] = {0,
                               1,
                               2,
                               3,
                               ~std::uint64_t{0},
                               std::uint64_t{1} << 31,
                               (std::uint64_t{1} << 32) - 1,
                               std::uint64_t{1} << 32,
                               std::uint64_t{1} << 63,
                               (std::uint64_t{1} << 63) - 1,
                               l.settings.capacity,
                               l.settings.capacity - 1,
                               l.block_count,
                               l.settings.block_rows,
                               0x7f800000,  // infinity
                               0x7fc00000,  // not a number
                               0x7f800000ULL << 32,
                               0x00000001'00000001,
                               0xff7fffff'7f7fffff};
  return all[random.below(std::size(all))] + random.below(2) * random.below(3);
}

// Damages up to a few places of one section.
void damage(std::byte* base, const Layout& layout, Random& random) {
  const std::vector<Section> sections = sections_of(layout);
  const Section section = sections[random.below(sections.size())];
  const std::size_t places = 1 + random.below(random.below(4) == 0 ? 200 : 4);
  for (std::size_t i = 0; i < places; ++i) {
    std::byte* at = base + section.at + random.below(section.bytes);
    const std::size_t room = section.bytes - static_cast<std::size_t>(at - base - section.at);
    const std::size_t run = std::min(room, random.below(8) == 0 ? random.below(2000) : 8);
    switch (random.below(6)) {
      case 0:
        *at ^= static_cast<std::byte>(1U << random.below(8));
        break;
      case 1:
        *at = static_cast<std::byte>(random.next());
        break;
      case 2:
        for (std::size_t b = 0; b < run; ++b) at[b] = static_cast<std::byte>(random.next());
        break;
      case 3:
        std::memset(at, random.below(2) == 0 ? 0 : 0xff, run);
        break;
      case 4: {  // a line from elsewhere in the section
        const std::byte* from = base + section.at + random.below(section.bytes - run + 1);
        std::memmove(at, from, run);
        break;
      }
      default: {
        const std::uint64_t value = odd_value(random, layout);
        const std::size_t offset = static_cast<std::size_t>(at - base) / 8 * 8;
        std::memcpy(base + offset, &value, sizeof(value));
        break;
      }
    }
  }
}

// Blocks held by processes that live: this one and the first of the system.
void forge_owners(std::byte* base, const Layout& layout, Random& random) {
  auto* owners = reinterpret_cast<Owner*>(base + layout.owners_at);
  auto* blocks = reinterpret_cast<Block*>(base + layout.blocks_at);
  const os::ProcessIdentity self = os::self();
  const bool all_slots = random.below(4) == 0;
  for (std::uint16_t slot = 0; slot < (all_slots ? kOwnerCount : 8); ++slot) {
    const bool first = random.below(2) == 0;
    owners[slot].pid.store(first ? 1 : self.pid);
    owners[slot].start_time.store(first ? 0 : self.start_time + random.below(2));
    owners[slot].pid_namespace.store(self.pid_namespace);
    owners[slot].activity.store((std::uint64_t{7} << 32) | random.below(3));
  }
  const std::size_t share = random.below(3);
  for (std::size_t b = 0; b < layout.block_count; ++b) {
    if (random.below(2) < share) continue;
    BlockWord word = BlockWord::unpack(blocks[b].word.load());
    word.epoch = 7;
    word.owner = static_cast<std::uint16_t>(random.below(300));
    word.state = static_cast<BlockState>(1 + random.below(3));
    blocks[b].word.store(word.pack());
  }
}

void repair_checksum(Bytes& bytes) {
  auto* header = reinterpret_cast<Header*>(bytes.data());
  const std::size_t columns = header->settings.column_count;
  if (sizeof(Header) + columns * sizeof(ColumnEntry) > bytes.size()) return;
  header->checksum =
      header_checksum(*header, reinterpret_cast<const ColumnEntry*>(bytes.data() + sizeof(Header)));
}

// Values of any length in place, byte by byte.
void read_in_place(const Ring& ring, std::int64_t id) {
  const std::size_t slot = static_cast<std::uint64_t>(id) % ring.rows.capacity();
  (void)ring.holds(id);
  for (std::size_t c = 0; c < ring.rows.columns(); ++c) {
    if (!ring.rows.place(c).variable()) continue;
    const std::span<const std::byte> piece = ring.rows.piece(c, slot);
    ASSERT_EQ(piece.size() % ring.rows.place(c).item, 0u);
    if (piece.empty()) continue;
    const std::byte* const arena = ring.segment->arena(slot / ring.settings().block_rows);
    ASSERT_GE(piece.data(), arena);
    ASSERT_LE(piece.data() + piece.size(), arena + ring.settings().arena_bytes);
  }
}

// A bit of everything a user does.
void use(Buffer& buffer, Random& random, Codes& codes) {
  const Schema& schema = buffer.layout().schema;
  const std::size_t n = 1 + random.below(64);
  NumberedRows rows(schema, n);
  std::vector<std::int64_t> ids(n);
  std::vector<float> floats(n, 0.5F);
  switch (random.below(8)) {
    case 0:
    case 1: {
      const bool raws = buffer.ring().priorities.has_value() && random.below(2) == 0;
      attempt(codes, [&] { buffer.add(n, rows.in(), raws ? floats.data() : nullptr, ids.data()); });
      break;
    }
    case 2:
    case 3:
      attempt(codes, [&] { buffer.sample({n, rows.out(), ids.data(), floats.data()}, 0.4F); });
      if (!buffer.ring().priorities) break;
      attempt(codes, [&] { buffer.update(ids, std::vector<float>(n, 2.0F)); });
      break;
    case 4:
      attempt(codes, [&] {
        ids.resize(buffer.latest(n, ids.data()));
        std::vector<std::uint8_t> gone(n);
        buffer.get(ids, rows.out(), gone.data());
      });
      for (const std::int64_t id : ids) read_in_place(buffer.ring(), id);
      break;
    case 5:
      for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random.next());
      for (const std::int64_t id : ids) read_in_place(buffer.ring(), id);
      attempt(codes, [&] { buffer.get(ids, rows.out(), nullptr); });
      if (!buffer.ring().priorities) break;
      attempt(codes, [&] { buffer.update(ids, floats); });
      attempt(codes, [&] { (void)buffer.ring().priorities->raw_of(ids[0]); });
      break;
    case 6:
      attempt(codes, [&] { (void)(buffer.size() + buffer.ring().rows_added() + buffer.drawn()); });
      attempt(codes, [&] { buffer.release(); });
      if (random.below(4) == 0) attempt(codes, [&] { buffer.clear(); });
      break;
    default:
      if (buffer.ring().priorities) attempt(codes, [&] { buffer.set_alpha(0.7F); });
      attempt(codes, [&] { (void)buffer.owners().all_dead(); });
      if (random.below(30) != 0) break;  // it takes its time to be sure
      attempt(codes, [&] { (void)verify(buffer.ring(), buffer.owners()); });
      break;
  }
}

struct Seen {
  Codes opened;
  Codes used;
  std::size_t rounds = 0;
  std::size_t surrounded = 0;
};

// One round: a damaged copy is opened and used, and damaged further under the user's hands.
void run_round(const Specimen& specimen, Random random, const Surroundings& surroundings,
               Seen& seen) {
  Bytes bytes = specimen.bytes;
  const std::size_t damages = random.below(3);
  for (std::size_t i = 0; i < damages; ++i) damage(bytes.data(), specimen.layout, random);
  if (random.below(25) == 0) forge_owners(bytes.data(), specimen.layout, random);
  if (random.below(2) == 0) repair_checksum(bytes);
  if (random.below(20) == 0) bytes.resize(1 + random.below(bytes.size()));
  const os::Access access = random.below(3) == 0 ? os::Access::kRead : os::Access::kReadWrite;

  ++seen.rounds;
  std::unique_ptr<Buffer> buffer;
  attempt(seen.opened, [&] { buffer = std::make_unique<Buffer>(open_copy(bytes, access)); });
  if (!buffer) return;
  if (surroundings.hold(buffer->ring().segment->base())) ++seen.surrounded;
  for (std::size_t i = 0; i < 12; ++i) {
    use(*buffer, random, seen.used);
    if (buffer->writable() && random.below(4) == 0) {
      damage(buffer->ring().segment->base(), buffer->layout(), random);
    }
  }
}

TEST(Fuzz, ADamagedSegmentGivesAnErrorOrValuesThatMeanNothing) {
  const char* chosen = std::getenv("REPLAY_FUZZ_ROUND");  // one round, to look at it
  const std::vector<Specimen> specimens = all_specimens();
  const auto size = [](const Specimen& specimen) { return specimen.bytes.size(); };
  const Surroundings surroundings(size(std::ranges::min(specimens, {}, size)),
                                  size(std::ranges::max(specimens, {}, size)));
  Watchdog watchdog;
  Seen seen;
  const auto play = [&](std::uint64_t round) {
    watchdog.begin(round);
    const Specimen& specimen = specimens[round % specimens.size()];
    SCOPED_TRACE("round " + std::to_string(round) + ", " + specimen.name);
    run_round(specimen, Random(20, round), surroundings, seen);
  };
  if (chosen != nullptr) {
    play(std::strtoull(chosen, nullptr, 10));
    return;
  }
  const Clock::time_point end = testing::fuzz_until();
  for (std::uint64_t round = 0; Clock::now() < end; ++round) {
    play(round);
    if (HasFatalFailure()) return;
  }
  // The damage reaches what it is meant to: some segments are refused, most can be opened.
  EXPECT_GT(seen.opened[ErrorCode::kCorrupt], 0u);
  EXPECT_GT(seen.opened[ErrorCode{}], seen.rounds / 3);
  EXPECT_GT(seen.used[ErrorCode{}], seen.rounds);
  RecordProperty("rounds", static_cast<int>(seen.rounds));
  RecordProperty("surrounded", static_cast<int>(seen.surrounded));
}

}  // namespace
}  // namespace replay_buffer
