#include "segment/segment.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "os/byte_lock.h"
#include "os/clock.h"
#include "os/crash_point.h"
#include "os/directory.h"
#include "os/process.h"
#include "replay_buffer/error.h"
#include "segment/checksum.h"
#include "segment/column_entries.h"
#include "segment/owners.h"

namespace replay_buffer {

std::uint64_t random_number() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) | random();
}

namespace {

// The byte of those who write to a file: behind the end of any segment, before those of owners.cc.
constexpr std::uint64_t kWritersAt = (std::uint64_t{1} << 61) - 1;
constexpr std::uint64_t kPatienceNs = 10'000'000'000;
// Private segments of more bytes than this ask for huge pages: random rows of so many bytes miss in
// the address translation, and a few times 2 MiB more is little beside them.
constexpr std::size_t kHugeFrom = std::size_t{256} << 20;
// Unless values are planned to be this long: to copy one takes long beside such a miss, and of
// values that turn out shorter each block would take huge pages that stay empty.
constexpr std::size_t kLongValue = std::size_t{64} << 10;

bool wants_huge_pages(const Layout& layout) {
  const auto planned_long = [](const Column& column) {
    return column.variable() && column.expected * column.item_bytes() >= kLongValue;
  };
  return layout.total_bytes > kHugeFrom &&
         std::none_of(layout.schema.begin(), layout.schema.end(), planned_long);
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
  header->counters.lineage.store(random_number(), std::memory_order_relaxed);
}

[[noreturn]] void corrupt(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, where + " is not a whole segment: " + what);
}

void check_named(const Location& location) {
  if (location.named()) return;
  throw Error(ErrorCode::kInvalidArgument, location.text() + " has no name to remove");
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
  if (count == 0 || count > kMaxColumns)
    corrupt(where, "it has " + std::to_string(count) + " columns");
  std::vector<ColumnEntry> entries(count);
  if (size < sizeof(Header) + count * sizeof(ColumnEntry)) corrupt(where, "it ends in its header");
  file.read_at(sizeof(Header), entries.data(), count * sizeof(ColumnEntry));
  if (header->checksum != header_checksum(*header, entries.data())) {
    corrupt(where, "the checksum of its header is wrong");
  }
  const Schema schema = read_columns(entries, where);
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
os::File open_file(const Location& location, os::Access access) try {
  for (;;) {
    os::File file = os::File::open(location.path(), access);
    file.lock_shared();
    REPLAY_CRASH_POINT("attach.locked");
    if (file.linked()) return file;
  }
} catch (const Error& error) {
  if (error.code() != ErrorCode::kNotFound) throw;
  throw Error(ErrorCode::kNotFound,
              "there is no buffer " + location.text() + ": no file " + location.path());
}

bool begins_like_one(const Location& location) {
  const os::File file = os::File::open(location.path(), os::Access::kRead);
  std::uint64_t magic = 0;
  if (file.size() >= sizeof(magic)) file.read_at(0, &magic, sizeof(magic));
  return magic == kMagic;
}

bool exists(const Location& location) {
  try {
    (void)os::File::open(location.path(), os::Access::kRead);
    return true;
  } catch (const Error& error) {
    return error.code() != ErrorCode::kNotFound;
  }
}

// Whether what is there is something else: a directory, a file of another kind.
bool foreign(const Location& location) try {
  return !begins_like_one(location);
} catch (const Error& error) {
  return error.code() != ErrorCode::kPermissionDenied && error.code() != ErrorCode::kNotFound;
}

// Who has a segment open, for messages.
std::string holders_of(const Location& location) try {
  if (os::File::open(location.path(), os::Access::kRead).try_lock_exclusive()) {
    return "nobody has it open";
  }
  const std::unique_ptr<Segment> segment = Segment::open(location, os::Access::kRead);
  const std::string writers = Owners(*segment).living();
  return writers.empty() ? "open for reading only" : "open for writing in " + writers;
} catch (const Error& error) {
  return error.what();
}

Error already_exists(const Location& location) {
  if (os::leads_nowhere(location.path())) {
    return Error(ErrorCode::kAlreadyExists,
                 location.path() + " is a symbolic link that leads nowhere; remove it");
  }
  if (foreign(location)) {
    return Error(ErrorCode::kAlreadyExists, location.text() +
                                                " exists already, and is not a "
                                                "replay buffer: choose another name, or remove it");
  }
  return Error(ErrorCode::kAlreadyExists,
               location.text() + " exists already: " + holders_of(location) +
                   ". open() or open_or_create() go on with its rows, create() with "
                   "overwrite=True replaces them, unlink() removes them");
}

}  // namespace

std::unique_ptr<Segment> Segment::create(const Location& location, const BufferConfig& config,
                                         const Schema& schema, const Prepare& prepare,
                                         Existing existing) {
  if (location.named() && existing == Existing::kRefuse && exists(location)) {
    throw already_exists(location);  // before memory is taken for another one
  }
  const Schema columns = with_codecs(config, schema);
  Layout layout = plan_layout(make_settings(config, columns), columns);
  os::File file;
  os::Mapping mapping;
  if (location.kind == Location::Kind::kHeap) {
    mapping = os::Mapping::reserve(layout.total_bytes, wants_huge_pages(layout));
  } else {
    file = new_file(location, layout.total_bytes);
    mapping = os::Mapping::map(file, layout.total_bytes, os::Access::kReadWrite);
  }
  initialise(mapping.data(), layout, config.alpha);
  std::unique_ptr<Segment> segment(
      new Segment(location, std::move(file), std::move(mapping), std::move(layout)));
  if (prepare) prepare(*segment);
  if (segment->file_) segment->file_.lock_shared();
  if (location.kind == Location::Kind::kFile) {
    // From the moment it has its path it counts as open: what is in it need not be on the disk.
    segment->share();
    segment->counters().boot.store(os::boot(), std::memory_order_relaxed);
    segment->sync_header();
    REPLAY_CRASH_POINT("create.synced");
  }
  REPLAY_CRASH_POINT("create.ready");
  if (location.named()) segment->publish(existing);
  return segment;
}

// Gives the file its path; from here on others can open it.
void Segment::publish(Existing existing) {
  for (bool linked = false; !linked;) {
    try {
      file_.link(location_.path());
      linked = true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAlreadyExists) throw;
      if (existing == Existing::kRefuse) throw already_exists(location_);
      if (os::leads_nowhere(location_.path())) throw already_exists(location_);
      try {
        unlink(location_);
      } catch (const Error& gone) {
        if (gone.code() != ErrorCode::kNotFound) throw;  // else somebody else removed it
      }
      REPLAY_CRASH_POINT("create.replaced");
    }
  }
  REPLAY_CRASH_POINT("create.linked");
  if (location_.kind == Location::Kind::kFile) os::File::sync_directory(location_.path());
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
  check_named(location);
  if (!only_stale) {
    os::File::remove(location.path());
    return true;
  }
  const os::File file = os::File::open(location.path(), os::Access::kReadWrite);
  if (!file.try_lock_exclusive()) return false;
  file.remove_own_path();  // unless somebody else has done so meanwhile
  return true;
}

bool Segment::remove(const Location& location, const SegmentIdentity& only) {
  check_named(location);
  os::File file;
  try {
    file = os::File::open(location.path(), os::Access::kReadWrite);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return false;
    throw;
  }
  if (file.identity() != only.file || file.size() < sizeof(Header)) return false;
  std::uint64_t lineage = 0;
  file.read_at(offsetof(Header, counters) + offsetof(Counters, lineage), &lineage, sizeof(lineage));
  return lineage == only.lineage && file.remove_own_path();
}

void Segment::unlink(const Location& location) {
  check_named(location);
  // In the directory of shared memory the name says whose it is.
  if (location.kind == Location::Kind::kFile && !begins_like_one(location)) {
    throw Error(ErrorCode::kCorrupt, location.text() +
                                         " is not a replay buffer and is left alone; remove the "
                                         "file yourself if it is to go");
  }
  os::File::remove(location.path());
}

void Segment::share() const {
  const std::uint64_t start = os::monotonic_ns();
  // Not by a call that blocks: who is alone may be stopped.
  while (!os::byte_lock::try_lock_shared(file_, kWritersAt)) {
    if (os::monotonic_ns() - start > kPatienceNs) {
      throw Error(ErrorCode::kTimeout, "another process has been recovering or closing " +
                                           location_.text() + " for 10 seconds");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Two that ask at once refuse each other: so each gives way, and asks again. The last one succeeds.
bool Segment::try_alone() const {
  if (!file_.intact()) return false;  // somebody closed it: there is no telling
  if (os::byte_lock::try_lock(file_, kWritersAt)) return true;
  leave();
  return os::byte_lock::try_lock(file_, kWritersAt);
}

void Segment::leave() const {
  if (file_.intact()) os::byte_lock::unlock(file_, kWritersAt);
}

void Segment::begin_lineage() const {
  counters().lineage.store(random_number(), std::memory_order_relaxed);
}

void Segment::reopen() {
  if (!file_) return;
  file_ = file_.reopen();
  file_.lock_shared();
  if (location_.kind == Location::Kind::kFile && writable()) share();
}

}  // namespace replay_buffer
