// Every structure that processes share, and where each one lies in a segment.
//
//   0        Header          fixed: magic, version, Settings, checksum; then the live Counters
//   ...      ColumnEntry[]   the schema
//   ...      Owner[]         the process table
//   ...      Episode[]       the episodes that ended last           (steps)
//   ...      Block[]         one cache line per block
//   ...      fills[]         u64 per block: how full it is
//   ...      priorities[]    u64 per row: raw priority and lap    (prioritized, rank)
//   ...      weights[]       f32 per row: leaves of the tree      (likewise)
//   ...      sums            u64 per inner node of the tree       (likewise)
//   ...      lows            u64 per inner node: least leaf       (weights by global maximum)
//   ...      given_back[]    u64 per row: draws that failed        (fifo)
//   ...      checks[]        u64 per row: checksums               (durable)
//   ...      words[]         u64 per row: row words               (where padding would cost much)
//   ...      records         row word, Link (steps) and the small columns of a row, packed
//   ...      arrays          one per large column
//   ...      arenas          one per block: values whose size varies (Cell), one after the other
//
// The place of every section is a pure function of Settings and schema (plan_layout), so a segment
// stores no offset that could be wrong: an opener recomputes them from its private copy of the
// header. docs/internals/segment.md draws the same bytes.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "replay_buffer/config.h"
#include "replay_buffer/schema.h"

namespace replay_buffer {

inline constexpr std::uint64_t kMagic = 0x524642594c504552;  // "REPLYBFR", little endian
inline constexpr std::uint32_t kFormatVersion = 2;
inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kOwnerCount = 256;
inline constexpr std::uint64_t kMaxCapacity = std::uint64_t{1} << 40;
// A column of more bytes than this gets an array of its own.
inline constexpr std::size_t kPackedColumnBytes = 1024;

// ---------------------------------------------------------------------------------------- row word
// [ id : 56 | flags : 6 | state : 2 ], the seqlock of a row. All zero is a row never written.
enum class RowState : std::uint64_t { kEmpty = 0, kWriting = 1, kCommitted = 2 };

constexpr std::uint64_t row_word(std::uint64_t id, RowState state, std::uint64_t flags = 0) {
  return (id << 8) | (flags << 2) | static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t row_id(std::uint64_t word) { return word >> 8; }
constexpr std::uint64_t row_flags(std::uint64_t word) { return (word >> 2) & 63; }
constexpr bool row_committed(std::uint64_t word) {
  return (word & 3) == static_cast<std::uint64_t>(RowState::kCommitted);
}

// What a row is in its stream. A writer's first row is a kFirst in every storage; the others are
// for steps.
namespace row_flag {
inline constexpr std::uint64_t kFirst = 1;  // it begins an episode: what came before is another
inline constexpr std::uint64_t kFinal = 2;  // no step: the observation after an episode's last
inline constexpr std::uint64_t kTerminated =
    4;  // a step that ended its episode, in one of two ways
inline constexpr std::uint64_t kTruncated = 8;
inline constexpr std::uint64_t kEnded = kTerminated | kTruncated;
}  // namespace row_flag

// Whether a row has a priority: a final observation is never drawn.
constexpr bool row_weighed(std::uint64_t word) {
  return row_committed(word) && (row_flags(word) & row_flag::kFinal) == 0;
}

// Where the neighbours of a row lie in its stream: so many rows further, counted along the blocks
// that its writer filled one after the other. Stands in the record of every row that is a step.
struct Link {
  std::uint16_t ahead;   // 0: none
  std::uint16_t behind;  // 0: none
  std::uint32_t step;    // the row's number in its episode; a final observation's is its length
};

// Where a value lies whose size varies, because its length does or because it is compressed: so
// many bytes of its block's arena. Stands in the record in place of the value. Only the block's
// owner writes to the arena, from its start on in each lap, and before it overwrites bytes it takes
// out the rows of the lap before to which they belong: a row whose word is unchanged has its bytes.
struct Cell {
  std::uint32_t offset;
  std::uint32_t size;  // compressed : 1 | bytes : 31

  static constexpr std::uint32_t kCompressed = std::uint32_t{1} << 31;

  constexpr bool compressed() const { return (size & kCompressed) != 0; }
  constexpr std::uint32_t bytes() const { return size & ~kCompressed; }
};
inline constexpr std::uint64_t kMostArenaBytes = std::uint64_t{1} << 30;
// A column of fixed length and at most so many bytes is not worth compressing, and is stored as it
// is.
inline constexpr std::size_t kLeastCompressed = 64;

// -------------------------------------------------------------------------------------- block word
// [ lap : 32 | epoch : 16 | owner : 14 | state : 2 ]
// SEALED nobody writes in it; OPEN its owner does; REAPING its owner is dead, and the process named
// by the word is mending it.
enum class BlockState : std::uint64_t { kSealed = 0, kOpen = 1, kReaping = 2 };

struct BlockWord {
  std::uint32_t lap;
  std::uint16_t epoch;
  std::uint16_t owner;
  BlockState state;

  static constexpr BlockWord unpack(std::uint64_t w) {
    return {static_cast<std::uint32_t>(w >> 32), static_cast<std::uint16_t>(w >> 16),
            static_cast<std::uint16_t>((w >> 2) & 0x3fff), static_cast<BlockState>(w & 3)};
  }
  constexpr std::uint64_t pack() const {
    return (std::uint64_t{lap} << 32) | (std::uint64_t{epoch} << 16) | (std::uint64_t{owner} << 2) |
           static_cast<std::uint64_t>(state);
  }
};

// The last lap that a claim may give. Larger numbers are marks, which no lap is mistaken for.
inline constexpr std::uint32_t kLastLap = ~std::uint32_t{0} - 255;
// The same of a ring: all ids fit into the 56 bits of a row word.
constexpr std::uint32_t last_lap(std::uint64_t capacity) {
  const std::uint64_t fitting = (std::uint64_t{1} << 56) / capacity;
  return fitting < kLastLap ? static_cast<std::uint32_t>(fitting) : kLastLap;
}

// A block's laps are counted from 1, so that a zeroed block is "sealed at lap 0, nothing in it".
// Rows of two laps lie in a block while its owner overwrites it: `laps` says of both which blocks
// their writer filled before and after it, as distances in claims (sequence numbers); 0 is none.
struct alignas(kLine) Block {
  struct Lap {
    std::atomic<std::uint64_t> back;  // lap : 32 | claims back : 32
    std::atomic<std::uint64_t> on;    // lap : 32 | claims on : 32
    // lap : 32 | of that lap, Fifo: draws given out; else: rows after which the writer went on to
    // the next block because the arena was full, 0: it was not : 32
    std::atomic<std::uint64_t> taken;
  };
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> before;  // lap : 32 | rows written : 32, of the lap before this one
  Lap laps[2];
};

// [ raw priority (float) : 32 | lap : 32 ] for each row: the truth that the tree is computed from.
// The lap names the row, so that a late update cannot hit the one that took its slot.
struct PriorityWord {
  float raw;
  std::uint32_t lap;

  static PriorityWord unpack(std::uint64_t w) {
    return {std::bit_cast<float>(static_cast<std::uint32_t>(w >> 32)),
            static_cast<std::uint32_t>(w)};
  }
  std::uint64_t pack() const {
    return (std::uint64_t{std::bit_cast<std::uint32_t>(raw)} << 32) | lap;
  }
};

// [ lap : 32 | draws : 32 ] for each row of a queue: draws of the row that were taken for batches
// which then failed. They are given out again before all others.
struct GivenBack {
  std::uint32_t lap;
  std::uint32_t draws;

  static constexpr GivenBack unpack(std::uint64_t w) {
    return {static_cast<std::uint32_t>(w >> 32), static_cast<std::uint32_t>(w)};
  }
  constexpr std::uint64_t pack() const { return (std::uint64_t{lap} << 32) | draws; }
};

// [ lap : 16 | written : 24 | committed : 24 ] for each block, stored by its holder: rows of that
// lap so far (the lap's low bits), and committed rows of any lap.
struct Fill {
  std::uint16_t lap;
  std::uint32_t written;
  std::uint32_t committed;

  static constexpr std::uint32_t kMost = (1U << 24) - 1;

  static constexpr Fill unpack(std::uint64_t w) {
    return {static_cast<std::uint16_t>(w >> 48), static_cast<std::uint32_t>((w >> 24) & kMost),
            static_cast<std::uint32_t>(w & kMost)};
  }
  constexpr std::uint64_t pack() const {
    return (std::uint64_t{lap} << 48) | (std::uint64_t{written} << 24) | committed;
  }
  // Rows written in `of`; 0 when the block is still at an earlier lap.
  constexpr std::uint32_t written_in(std::uint32_t of) const {
    return lap == static_cast<std::uint16_t>(of) ? written : 0;
  }
};

// ------------------------------------------------------------------------------------------ header
struct Settings {
  std::uint64_t capacity;
  std::uint64_t block_rows;
  std::uint32_t strategy;
  std::uint32_t weights;
  std::uint32_t cer;
  std::uint32_t max_times_sampled;
  float beta;
  float epsilon;
  std::uint64_t seed;
  std::uint32_t column_count;
  std::uint32_t durable;
  std::uint64_t min_size;     // rate limiter: rows before the first draw
  double samples_per_insert;  // 0: no limit
  double tolerance;           // how far the two may drift apart, in rows drawn
  std::uint64_t beta_steps;   // beta goes to beta_end in so many draws; 0: it stays
  float beta_end;
  std::uint32_t storage;
  std::uint64_t arena_bytes;  // of each block; 0: there are no arenas
  std::uint32_t enable_compression;
  std::uint32_t reserved[5];
};

struct alignas(kLine) Counters {
  // Claiming. `head` is the sequence number of the next block to claim: block head % count, lap
  // head / count + 1. `era` is the head at the last clear(); rows older than it are gone.
  alignas(kLine) std::atomic<std::uint64_t> head;
  std::atomic<std::uint64_t> era;
  // Drawing. Calls of sample() so far: the counter of the generator.
  alignas(kLine) std::atomic<std::uint64_t> draws;
  std::atomic<std::uint64_t> rows_sampled;
  // times : 32 | draws : 32, in given_back[]: how often draws were given back, and how many are
  // there. Never fewer than there are, except while somebody is giving back or taking.
  std::atomic<std::uint64_t> given_back;
  // Priorities: read by every add and update, written seldom. Floats as bits.
  alignas(kLine) std::atomic<std::uint32_t> alpha_bits;
  std::atomic<std::uint32_t> max_raw_bits;
  alignas(kLine) std::atomic<std::uint64_t> updates_applied;
  std::atomic<std::uint64_t> updates_stale;
  // Rate limiter: what inserts have earned and draws have not spent, in 1 / kBalanceUnit rows. Who
  // waits sleeps on `bell`.
  alignas(kLine) std::atomic<std::int64_t> balance;
  std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> waiting;
  // The boot of the machine in which the segment was last opened for writing, 0 when it was closed
  // properly: after a power cut memory and disk may differ.
  alignas(kLine) std::atomic<std::uint64_t> boot;
  // A random number by which a checkpoint knows the rows it was made of: within one lineage a row
  // id is never given to two rows.
  std::atomic<std::uint64_t> lineage;
  // Bytes of values that were compressed, before and after.
  std::atomic<std::uint64_t> bytes_in;
  std::atomic<std::uint64_t> bytes_kept;
  // Episodes that ended: how many, their steps, and the sum of their returns (a double, as bits).
  alignas(kLine) std::atomic<std::uint64_t> episodes;
  std::atomic<std::uint64_t> episode_steps;
  std::atomic<std::uint64_t> return_bits;
};
inline constexpr std::int64_t kBalanceUnit = std::int64_t{1} << 20;

// One of the episodes that ended last: statistics, which may be torn when many end at once.
struct Episode {
  std::atomic<std::uint64_t> steps;
  std::atomic<std::uint64_t> return_bits;
};
inline constexpr std::size_t kEpisodeCount = 128;

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t total_bytes;
  std::uint64_t checksum;  // of everything above and of Settings and ColumnEntry[], this field as 0
  Settings settings;
  Counters counters;
};

struct ColumnEntry {
  char name[kMaxNameBytes + 1];
  std::uint32_t dtype;
  std::uint32_t dimensions;
  std::uint64_t shape[kMaxDimensions];
  std::uint64_t limit;
  std::uint16_t codec;
  std::uint16_t padded;
  std::uint32_t expected;
  double ratio;  // 0: 1
};

// One handle that has the segment open for writing.
struct alignas(kLine) Owner {
  // epoch : 32 | calls under way that change priorities or clear : 32. The epoch grows each time
  // the slot is taken. Calls under way of a dead owner have left something half done.
  std::atomic<std::uint64_t> activity;
  std::atomic<std::uint32_t> pid;    // 0: nobody
  std::atomic<std::uint32_t> waits;  // what for, see core/limiter.h
  std::atomic<std::uint64_t> start_time;
  std::atomic<std::uint64_t> pid_namespace;
  std::atomic<std::uint64_t> rows_added;   // by all who had the slot
  std::atomic<std::uint64_t> rows_before;  // of those, the ones of owners before this one
  std::atomic<std::uint64_t> announced;    // by calls under way that add to a limited queue
};

static_assert(sizeof(Cell) == 8 && std::is_trivially_copyable_v<Cell>);
static_assert(sizeof(Link) == 8 && std::is_trivially_copyable_v<Link>);
static_assert(sizeof(Block) == kLine);
static_assert(sizeof(Settings) == 128);
static_assert(sizeof(Counters) == 7 * kLine);
static_assert(sizeof(Header) == 10 * kLine && offsetof(Header, counters) == 3 * kLine);
static_assert(sizeof(ColumnEntry) == 192);
static_assert(sizeof(Owner) == kLine);
static_assert(std::is_trivially_copyable_v<Settings> && std::is_trivially_copyable_v<ColumnEntry>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// -------------------------------------------------------------------------------------- the layout
// Where one column lies: address(row) = segment + base + row * stride. There stands the value, or
// its Cell.
struct ColumnPlace {
  std::size_t base;
  std::size_t stride;
  std::size_t bytes;       // of a value; 0 where its length varies
  bool own_array = false;  // not in the records
  bool in_arena = false;   // a Cell
  Codec codec = Codec::kNone;
  std::uint8_t width = 1;  // of an element
  std::size_t item = 0;    // bytes of an item, where the length varies

  bool variable() const { return item != 0; }
};

struct Layout {
  Settings settings;
  Schema schema;
  std::size_t block_count;

  std::size_t columns_at;
  std::size_t owners_at;
  std::size_t episodes_at;
  std::size_t blocks_at;
  std::size_t fills_at;
  std::size_t priorities_at;
  std::size_t weights_at;
  std::size_t sums_at;
  std::size_t lows_at;
  std::size_t given_back_at;
  std::size_t checks_at;
  std::size_t words_at;  // row words lie word_stride apart: in the records, or by themselves
  std::size_t word_stride;
  std::size_t records_at;
  std::size_t record_stride;
  ColumnPlace link;  // of each row's Link; no bytes where rows are transitions
  std::vector<ColumnPlace> places;
  std::size_t arenas_at;
  std::vector<std::uint32_t> arena_columns;  // those with a Cell, in the order their bytes lie in
  std::size_t total_bytes;
  std::size_t row_bytes;  // raw data of one row; of values whose length varies, what is expected

  bool has_priorities() const;
  bool has_lows() const;
  bool is_queue() const {
    return settings.strategy == static_cast<std::uint32_t>(SamplingStrategy::Fifo);
  }
  // Whether a row has something besides its bytes: a raw priority, or draws that were given back.
  bool has_numbers() const { return has_priorities() || is_queue(); }
  bool durable() const { return settings.durable != 0; }
  bool has_arenas() const { return !arena_columns.empty(); }
  bool has_steps() const { return settings.storage == static_cast<std::uint32_t>(Storage::Steps); }
  // Rows of block b: block_rows, fewer in the last one.
  std::size_t rows_in(std::size_t block) const;
};

// The schema of a new segment: with the codecs that `enable_compression` asks for, and how many
// items to expect where nobody has said it.
Schema with_codecs(const BufferConfig& config, Schema schema);

// The settings and layout of a new segment. Throws kInvalidArgument, naming what is wrong.
Settings make_settings(const BufferConfig& config, const Schema& schema);
Layout plan_layout(const Settings& settings, const Schema& schema);

// The config that such settings were made of; alpha is a counter, since it can change.
BufferConfig config_of(const Settings& settings, float alpha);

}  // namespace replay_buffer
