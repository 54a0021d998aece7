// The files of a checkpoint, byte by byte; docs/internals/checkpoint.md draws the same.
//
//   path/lock       nothing in it; who writes a checkpoint holds the exclusive lock on it
//   path/manifest   ManifestHeader, ColumnEntry[], FileEntry[], BlockEntry[]
//   path/data-<n>   pieces: rows of blocks, priorities of blocks
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/unfilled.h"
#include "os/file.h"
#include "segment/layout.h"

namespace replay_buffer::checkpoint {

inline constexpr std::uint64_t kManifestMagic = 0x504b43594c504552;  // "REPLYCKP", little endian
inline constexpr std::uint32_t kManifestVersion = 3;
inline constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
inline constexpr const char* kManifest = "manifest";
inline constexpr const char* kNewManifest = "manifest.new";
inline constexpr const char* kLock = "lock";
inline constexpr const char* kDataPrefix = "data-";

struct SavedCounters {
  std::uint64_t head;
  std::uint64_t era;
  std::uint64_t draws;
  std::uint64_t rows_sampled;
  std::uint64_t updates_applied;
  std::uint64_t updates_stale;
  std::uint64_t rows_added;
  std::int64_t balance;
  std::uint64_t episodes;
  std::uint64_t episode_steps;
  std::uint64_t return_bits;
  std::uint32_t alpha_bits;
  std::uint32_t max_raw_bits;
};

// One of the episodes that ended last.
struct SavedEpisode {
  std::uint64_t steps;
  std::uint64_t return_bits;
};

inline constexpr std::size_t kMostRoom = Unfilled::kMost;

struct ManifestHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t total_bytes;
  std::uint64_t checksum;  // long_checksum64 of the whole manifest, this field as 0
  std::uint64_t lineage;   // of the segment it was made of
  Settings settings;
  SavedCounters counters;
  std::uint64_t file_count;
  std::uint64_t block_count;
  std::uint64_t bytes_in;  // see Counters
  std::uint64_t bytes_kept;
  SavedEpisode episodes[kEpisodeCount];  // where rows are steps
  std::uint64_t room_count;
  Room room[kMostRoom];  // blocks that writers go on in, the next one last
};

struct FileEntry {
  std::uint64_t number;
  std::uint64_t bytes;
};

// Bytes of a data file. No file has number 0: there is nothing.
struct Piece {
  std::uint64_t file;
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t checksum;  // rows: folded chunk by chunk
};

enum class BlockKind : std::uint32_t {
  kNothing = 0,  // no row was ever written
  kRows = 1,
  kWords = 2,  // no row is committed: row words alone
};

struct BlockEntry {
  std::uint32_t lap;
  BlockKind kind;
  std::uint64_t rows;    // of the piece: the block's first ones, up to the last ever written
  std::uint64_t digest;  // of their row words, as they are in the piece
  std::uint64_t before;
  std::uint64_t back[2];
  std::uint64_t on[2];
  std::uint64_t taken[2];
  Piece data;
  // For each row of the piece: f32, its raw priority, 0 where no row is; in a queue u32, the draws
  // of it that were given back.
  Piece priorities;
};

static_assert(sizeof(SavedCounters) == 96);
static_assert(sizeof(ManifestHeader) == 304 + 16 * kEpisodeCount + 16 * kMostRoom);
static_assert(sizeof(BlockEntry) == 144);
static_assert(std::is_trivially_copyable_v<ManifestHeader> &&
              std::is_trivially_copyable_v<BlockEntry>);

// A run of the segment that holds something of every row, `stride` bytes each.
struct Section {
  std::size_t base;
  std::size_t stride;
};

// How rows lie in a piece: in chunks of so many rows, and in a chunk section after section. Behind
// them, where values vary in size, the block's arena as far as rows have it.
struct Shape {
  explicit Shape(const Layout& layout);

  // Without the arena.
  std::uint64_t bytes_of(BlockKind kind, std::uint64_t rows) const;

  std::vector<Section> sections;  // the first one begins with the row words
  std::size_t row_bytes = 0;
  std::size_t chunk_rows = 0;
};

struct Manifest {
  ManifestHeader header{};
  Schema schema;
  std::vector<FileEntry> files;
  std::vector<BlockEntry> blocks;
};

std::string data_path(const std::string& directory, std::uint64_t number);
// The number of a data file; 0 for another name.
std::uint64_t data_number(const std::string& name);

std::vector<std::byte> pack(const Manifest& manifest);
// Reads and checks everything that can be checked without the data files: whoever uses a manifest
// may rely on its lengths and offsets. Throws kNotFound, kCorrupt, kIncompatible.
Manifest read_manifest(const std::string& directory);
Manifest read_manifest(const os::File& file);

// Whether a block at this lap can have these row words from slot `first` on: ids that belong there,
// and no row half written. Restore refuses others, and no checkpoint is made of them.
bool possible_rows(std::span<const std::uint64_t> words, std::uint64_t first,
                   std::uint64_t capacity, std::uint32_t lap);
bool possible_priority(float raw);

// The options the buffer was made with.
BufferConfig config_of(const ManifestHeader& header);

}  // namespace replay_buffer::checkpoint
