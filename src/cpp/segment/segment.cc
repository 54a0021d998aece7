#include "segment/segment.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <string>

#include "os/crash_point.h"
#include "os/directory.h"
#include "os/process.h"
#include "replay_buffer/error.h"
#include "segment/checksum.h"

namespace replay_buffer {
namespace {

void write_columns(const Schema& schema, ColumnEntry* entries) {
  for (std::size_t i = 0; i < schema.size(); ++i) {
    ColumnEntry& e = entries[i];
    e = ColumnEntry{};
    std::copy(schema[i].name.begin(), schema[i].name.end(), e.name);
    e.dtype = static_cast<std::uint32_t>(schema[i].dtype);
    e.dimensions = static_cast<std::uint32_t>(schema[i].shape.size());
    std::copy(schema[i].shape.begin(), schema[i].shape.end(), e.shape);
    e.limit = schema[i].limit;
  }
}

// Fills a zeroed mapping. The checksum covers what never changes: the header up to the counters,
// and the columns.
void initialise(std::byte* base, const Layout& layout, float alpha) {
  auto* header = reinterpret_cast<Header*>(base);
  auto* columns = reinterpret_cast<ColumnEntry*>(base + layout.columns_at);
  write_columns(layout.schema, columns);
  header->magic = kMagic;
  header->version = kFormatVersion;
  header->header_bytes = sizeof(Header);
  header->total_bytes = layout.total_bytes;
  header->settings = layout.settings;
  header->checksum = header_checksum(*header, columns);
  header->counters.alpha_bits.store(std::bit_cast<std::uint32_t>(alpha), std::memory_order_relaxed);
  header->counters.max_raw_bits.store(std::bit_cast<std::uint32_t>(1.0F),
                                      std::memory_order_relaxed);
}

[[noreturn]] void corrupt(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, where + " is not a whole segment: " + what);
}

Column read_column(const ColumnEntry& e, const std::string& where) {
  const std::size_t length = strnlen(e.name, sizeof(e.name));
  if (length == sizeof(e.name) || e.dimensions > kMaxDimensions) {
    corrupt(where, "a column's entry makes no sense");
  }
  return {std::string(e.name, length), static_cast<DType>(e.dtype),
          std::vector<std::uint64_t>(e.shape, e.shape + e.dimensions), e.limit};
}

// Copies the header and the columns once and checks them; everything else is computed from that.
Layout read_layout(const os::File& file) {
  const std::string& where = file.name();
  const std::uint64_t size = file.size();
  alignas(Header) std::byte raw[sizeof(Header)];
  if (size < sizeof(Header)) corrupt(where, "it has " + std::to_string(size) + " bytes");
  file.read_at(0, raw, sizeof(raw));
  const auto* header = reinterpret_cast<const Header*>(raw);
  if (header->magic != kMagic) corrupt(where, "it does not begin like one");
  if (header->version != kFormatVersion || header->header_bytes != sizeof(Header)) {
    throw Error(ErrorCode::kIncompatible, where + " has format " + std::to_string(header->version) +
                                              ", this version of replay_buffer reads format " +
                                              std::to_string(kFormatVersion));
  }
  const std::uint32_t count = header->settings.column_count;
  if (count == 0 || count > kMaxColumns) corrupt(where, "it has " + std::to_string(count) + " columns");
  std::vector<ColumnEntry> entries(count);
  if (size < sizeof(Header) + count * sizeof(ColumnEntry)) corrupt(where, "it ends in its header");
  file.read_at(sizeof(Header), entries.data(), count * sizeof(ColumnEntry));
  if (header->checksum != header_checksum(*header, entries.data())) {
    corrupt(where, "the checksum of its header is wrong");
  }
  Schema schema;
  for (const ColumnEntry& entry : entries) schema.push_back(read_column(entry, where));
  Layout layout;
  try {
    layout = plan_layout(header->settings, schema);
  } catch (const Error& error) {
    corrupt(where, error.what());
  }
  if (layout.total_bytes != header->total_bytes || size < layout.total_bytes) {
    corrupt(where, "it has " + std::to_string(size) + " bytes where " +
                       std::to_string(layout.total_bytes) + " belong");
  }
  return layout;
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

os::File new_file(const Location& location, std::uint64_t bytes) {
  if (!location.named()) return os::File::anonymous(bytes);
  os::File file = os::File::create_hidden(directory_of(location.path()));
  REPLAY_CRASH_POINT("create.hidden");
  file.allocate(bytes);
  REPLAY_CRASH_POINT("create.allocated");
  return file;
}

// Opens the file at a location and locks it; a file that was removed in between is not the one.
os::File open_file(const Location& location, os::Access access) {
  for (;;) {
    os::File file = os::File::open(location.path(), access);
    file.lock_shared();
    REPLAY_CRASH_POINT("attach.locked");
    if (file.linked()) return file;
  }
}

}  // namespace

std::unique_ptr<Segment> Segment::create(const Location& location, const BufferConfig& config,
                                         const Schema& schema) {
  Layout layout = plan_layout(make_settings(config, schema), schema);
  if (location.kind == Location::Kind::kHeap) {
    os::Mapping mapping = os::Mapping::reserve(layout.total_bytes);
    initialise(mapping.data(), layout, config.alpha);
    return std::unique_ptr<Segment>(
        new Segment(location, os::File(), std::move(mapping), std::move(layout)));
  }
  os::File file = new_file(location, layout.total_bytes);
  os::Mapping mapping = os::Mapping::map(file, layout.total_bytes, os::Access::kReadWrite);
  initialise(mapping.data(), layout, config.alpha);
  file.lock_shared();
  REPLAY_CRASH_POINT("create.ready");
  if (location.named()) {
    try {
      file.link(location.path());
    } catch (const Error& error) {
      const bool replace = error.code() == ErrorCode::kAlreadyExists &&
                           location.kind == Location::Kind::kShm && remove(location, true);
      if (!replace) throw;
      file.link(location.path());
    }
    REPLAY_CRASH_POINT("create.linked");
    if (location.kind == Location::Kind::kFile) os::File::sync_directory(location.path());
  }
  return std::unique_ptr<Segment>(
      new Segment(location, std::move(file), std::move(mapping), std::move(layout)));
}

std::unique_ptr<Segment> Segment::open(const Location& location, os::Access access) {
  if (!location.named()) {
    throw Error(ErrorCode::kInvalidArgument,
                location.text() + " has no name by which it could be opened");
  }
  return adopt(open_file(location, access), location, access);
}

std::unique_ptr<Segment> Segment::adopt(os::File file, const Location& location,
                                        os::Access access) {
  file.lock_shared();
  Layout layout = read_layout(file);
  os::Mapping mapping = os::Mapping::map(file, layout.total_bytes, access);
  return std::unique_ptr<Segment>(
      new Segment(location, std::move(file), std::move(mapping), std::move(layout)));
}

bool Segment::remove(const Location& location, bool only_stale) {
  if (!location.named()) {
    throw Error(ErrorCode::kInvalidArgument, location.text() + " has no name to remove");
  }
  if (only_stale) {
    const os::File file = os::File::open(location.path(), os::Access::kReadWrite);
    if (!file.try_lock_exclusive()) return false;
    if (!file.linked()) return true;  // removed by somebody else meanwhile
    os::File::remove(location.path());
    return true;
  }
  os::File::remove(location.path());
  return true;
}

void Segment::reopen() {
  if (!file_) return;
  file_ = file_.reopen();
  file_.lock_shared();
}

}  // namespace replay_buffer
