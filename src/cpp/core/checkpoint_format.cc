#include "core/checkpoint_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <span>

#include "replay_buffer/error.h"
#include "segment/checksum.h"
#include "segment/column_entries.h"

namespace replay_buffer::checkpoint {
namespace {

constexpr std::uint64_t kNoId = ~std::uint64_t{0};

[[noreturn]] void corrupt(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, where + " is not a whole checkpoint: " + what);
}

std::uint64_t checksum_of(const std::vector<std::byte>& bytes) {
  ManifestHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.checksum = 0;
  const std::uint64_t seed = long_checksum64(std::as_bytes(std::span(&header, 1)));
  return long_checksum64(std::span(bytes).subspan(sizeof(ManifestHeader)), seed);
}

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t& at, const std::vector<T>& items) {
  if (!items.empty()) std::memcpy(bytes.data() + at, items.data(), items.size() * sizeof(T));
  at += items.size() * sizeof(T);
}

template <class T>
std::vector<T> take(const std::vector<std::byte>& bytes, std::size_t& at, std::size_t n) {
  std::vector<T> items(n);
  if (n != 0) std::memcpy(items.data(), bytes.data() + at, n * sizeof(T));
  at += n * sizeof(T);
  return items;
}

// What a header claims, before anything is allocated for it.
void check_header(const ManifestHeader& h, std::uint64_t size, const std::string& where) {
  if (h.magic != kManifestMagic) corrupt(where, "it does not begin like one");
  if (h.version != kManifestVersion || h.header_bytes != sizeof(ManifestHeader)) {
    throw Error(ErrorCode::kIncompatible, where + " has format " + std::to_string(h.version) +
                                              ", this version of replay_buffer reads format " +
                                              std::to_string(kManifestVersion));
  }
  const std::uint64_t columns = h.settings.column_count;
  if (columns == 0 || columns > kMaxColumns) corrupt(where, "its columns make no sense");
  if (h.room_count > kMostRoom) corrupt(where, "its blocks with room make no sense");
  if (h.file_count > size || h.block_count > size || h.total_bytes != size ||
      sizeof(h) + columns * sizeof(ColumnEntry) + h.file_count * sizeof(FileEntry) +
              h.block_count * sizeof(BlockEntry) !=
          size) {
    corrupt(where, "it has " + std::to_string(size) + " bytes, which do not fit its header");
  }
}

void check_counters(const SavedCounters& c, const Layout& layout, const std::string& where) {
  const std::uint64_t last = last_lap(layout.settings.capacity);
  const bool fine = c.head <= last * layout.block_count && c.era <= c.head &&
                    c.era % layout.block_count == 0 &&
                    possible_priority(std::bit_cast<float>(c.alpha_bits)) &&
                    possible_priority(std::bit_cast<float>(c.max_raw_bits));
  if (!fine) corrupt(where, "its counters make no sense");
}

class PieceCheck {
 public:
  PieceCheck(const Manifest& manifest, const std::string& where) : where_(where) {
    for (const FileEntry& file : manifest.files) {
      if (file.number == 0 || !bytes_.emplace(file.number, file.bytes).second) {
        corrupt(where, "its list of files makes no sense");
      }
    }
  }

  // A piece has `bytes` bytes and up to `more`.
  void operator()(const Piece& piece, std::uint64_t bytes, std::uint64_t more = 0) const {
    if (piece.bytes < bytes || piece.bytes - bytes > more) {
      corrupt(where_, "a piece has not the size of its rows");
    }
    if (piece.bytes == 0) return;
    const auto file = bytes_.find(piece.file);
    if (file == bytes_.end() || piece.offset > file->second ||
        piece.bytes > file->second - piece.offset) {
      corrupt(where_, "a piece lies in no file");
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> bytes_;
  std::string where_;
};

void check_blocks(const Manifest& m, const Layout& layout, const std::string& where) {
  const Shape shape(layout);
  const PieceCheck check(m, where);
  for (std::size_t b = 0; b < m.blocks.size(); ++b) {
    const BlockEntry& e = m.blocks[b];
    const std::uint64_t sequence = (std::uint64_t{e.lap} - 1) * layout.block_count + b;
    const bool fine = e.kind <= BlockKind::kWords && e.rows <= layout.rows_in(b) &&
                      (e.before & 0xffffffff) <= layout.rows_in(b) &&
                      (e.kind == BlockKind::kNothing) == (e.rows == 0) &&
                      (e.lap == 0 ? e.rows == 0 : sequence < m.header.counters.head);
    if (!fine) corrupt(where, "the entry of a block makes no sense");
    check(e.data, shape.bytes_of(e.kind, e.rows),
          e.kind == BlockKind::kRows ? layout.settings.arena_bytes : 0);
    const bool weighed = layout.has_numbers() && e.kind == BlockKind::kRows;
    check(e.priorities, weighed ? e.rows * sizeof(float) : 0);
  }
}

}  // namespace

Shape::Shape(const Layout& layout) {
  if (layout.words_at != layout.records_at) {
    sections.push_back({layout.words_at, layout.word_stride});
  }
  if (layout.record_stride != 0) sections.push_back({layout.records_at, layout.record_stride});
  for (const ColumnPlace& place : layout.places) {
    if (place.own_array) sections.push_back({place.base, place.stride});
  }
  for (const Section& section : sections) row_bytes += section.stride;
  chunk_rows = std::max<std::size_t>(1, kChunkBytes / row_bytes);
}

std::uint64_t Shape::bytes_of(BlockKind kind, std::uint64_t rows) const {
  switch (kind) {
    case BlockKind::kNothing:
      return 0;
    case BlockKind::kRows:
      return rows * row_bytes;
    case BlockKind::kWords:
      return rows * sizeof(std::uint64_t);
  }
  return 0;
}

std::string data_path(const std::string& directory, std::uint64_t number) {
  return directory + "/" + kDataPrefix + std::to_string(number);
}

std::uint64_t data_number(const std::string& name) {
  const std::string prefix = kDataPrefix;
  if (name.rfind(prefix, 0) != 0 || name.size() == prefix.size() || name.size() > 24) return 0;
  std::uint64_t number = 0;
  for (const char c : name.substr(prefix.size())) {
    if (c < '0' || c > '9') return 0;
    number = number * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return prefix + std::to_string(number) == name ? number : 0;
}

std::vector<std::byte> pack(const Manifest& manifest) {
  std::vector<ColumnEntry> columns(manifest.schema.size());
  write_columns(manifest.schema, columns.data());
  ManifestHeader header = manifest.header;
  header.magic = kManifestMagic;
  header.version = kManifestVersion;
  header.header_bytes = sizeof(header);
  header.checksum = 0;
  header.file_count = manifest.files.size();
  header.block_count = manifest.blocks.size();
  header.total_bytes = sizeof(header) + columns.size() * sizeof(ColumnEntry) +
                       manifest.files.size() * sizeof(FileEntry) +
                       manifest.blocks.size() * sizeof(BlockEntry);
  std::vector<std::byte> bytes(header.total_bytes);
  std::size_t at = sizeof(header);
  put(bytes, at, columns);
  put(bytes, at, manifest.files);
  put(bytes, at, manifest.blocks);
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

bool possible_rows(std::span<const std::uint64_t> words, std::uint64_t first,
                   std::uint64_t capacity, std::uint32_t lap) {
  std::uint64_t begin = kNoId;  // the id that the first of these slots has in the lap of a row
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == 0) continue;
    const auto state = static_cast<RowState>(words[i] & 3);
    if (state != RowState::kEmpty && state != RowState::kCommitted) return false;
    if (row_id(words[i]) - i == begin) continue;
    begin = row_id(words[i]) - i;
    if (begin % capacity != first || begin / capacity + 1 > lap) return false;
  }
  return true;
}

bool possible_priority(float raw) { return std::isfinite(raw) && raw >= 0; }

Manifest read_manifest(const std::string& directory) {
  return read_manifest(os::File::open(directory + "/" + kManifest, os::Access::kRead));
}

Manifest read_manifest(const os::File& file) {
  const std::string& where = file.name();
  const std::uint64_t size = file.size();
  Manifest m;
  if (size < sizeof(m.header)) corrupt(where, "it has " + std::to_string(size) + " bytes");
  file.read_at(0, &m.header, sizeof(m.header));
  check_header(m.header, size, where);
  std::vector<std::byte> bytes(size);
  file.read_at(0, bytes.data(), size);
  if (checksum_of(bytes) != m.header.checksum) corrupt(where, "its checksum is wrong");
  std::size_t at = sizeof(m.header);
  m.schema = read_columns(take<ColumnEntry>(bytes, at, m.header.settings.column_count), where);
  m.files = take<FileEntry>(bytes, at, m.header.file_count);
  m.blocks = take<BlockEntry>(bytes, at, m.header.block_count);
  Layout layout;
  try {
    layout = plan_layout(m.header.settings, m.schema);
  } catch (const Error& error) {
    corrupt(where, error.what());
  }
  if (m.blocks.size() != layout.block_count) corrupt(where, "its blocks are not those of a buffer");
  check_counters(m.header.counters, layout, where);
  check_blocks(m, layout, where);
  return m;
}

BufferConfig config_of(const ManifestHeader& header) {
  return replay_buffer::config_of(header.settings,
                                  std::bit_cast<float>(header.counters.alpha_bits));
}

}  // namespace replay_buffer::checkpoint
