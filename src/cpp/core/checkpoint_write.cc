#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/checkpoint.h"
#include "core/checkpoint_copy.h"
#include "core/room.h"
#include "os/crash_point.h"
#include "os/directory.h"
#include "replay_buffer/error.h"
#include "segment/checksum.h"

namespace replay_buffer {
namespace checkpoint {
namespace {

// A data file of which less than this part is in use is written anew, and so are the smallest ones
// when there are too many.
constexpr std::uint64_t kLeastUse = 2;  // one half
constexpr std::size_t kMostFiles = 32;
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kStartBytes = std::size_t{8} << 20;

os::File lock_directory(const std::string& path) {
  const std::string lock = path + "/" + kLock;
  for (;;) {
    try {
      os::File file = os::File::open(lock, os::Access::kReadWrite);
      if (file.try_lock_exclusive()) return file;
      throw Error(ErrorCode::kBusy, "another checkpoint to " + path + " is under way");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
    if (os::leads_nowhere(lock)) {
      throw Error(ErrorCode::kInvalidArgument,
                  lock + " is a symbolic link to nothing; put an empty file in its place");
    }
    try {
      os::File::create_hidden(path).link(lock);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAlreadyExists) throw;
    }
  }
}

// Makes the directory, or sees to it that it is one whose files may be replaced.
os::File open_directory(const std::string& path) {
  if (os::make_directory(path)) {
    os::File::sync_directory(path);
  } else {
    const std::vector<std::string> names = os::list_directory(path);
    const bool ours = std::find(names.begin(), names.end(), kLock) != names.end();
    const bool empty = std::all_of(names.begin(), names.end(), [](const std::string& name) {
      return name.rfind(os::kHiddenPrefix, 0) == 0;
    });
    if (!ours && !empty) {
      throw Error(ErrorCode::kInvalidArgument,
                  path + " is a directory with other files, not a checkpoint");
    }
  }
  return lock_directory(path);
}

// The manifest that is there, if it can be built on: of the same rows, and whole.
std::optional<Manifest> last_manifest(const std::string& path, const Ring& ring) {
  Manifest last;
  try {
    last = read_manifest(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kCorrupt) return {};
    throw;
  }
  const std::uint64_t lineage = ring.counters().lineage.load(std::memory_order_relaxed);
  if (lineage == 0 || last.header.lineage != lineage) return {};
  if (last.blocks.size() != ring.blocks.block_count()) return {};  // a forged one
  try {
    for (const FileEntry& entry : last.files) {
      const os::File file = os::File::open(data_path(path, entry.number), os::Access::kRead);
      if (file.size() < entry.bytes) return {};
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    return {};
  }
  return last;
}

// A data file being written. It has no name until it is complete.
class DataFile {
 public:
  DataFile(const std::string& directory, std::uint64_t number)
      : number_(number), file_(os::File::create_hidden(directory)) {}

  // Memory for the next bytes, and: they are there.
  std::byte* room(std::size_t bytes) {
    if (buffer_.size() < used_ + bytes) {
      flush();
      if (buffer_.size() < bytes) buffer_.resize(std::max(bytes, kBufferBytes));
    }
    return buffer_.data() + used_;
  }
  void done(std::size_t bytes) { used_ += bytes; }

  Piece put(const void* data, std::size_t bytes) {
    const std::span<const std::byte> raw(static_cast<const std::byte*>(data), bytes);
    const Piece piece{number_, offset(), bytes, long_checksum64(raw)};
    std::copy(raw.begin(), raw.end(), room(bytes));
    done(bytes);
    return piece;
  }

  std::uint64_t number() const { return number_; }
  std::uint64_t offset() const { return flushed_ + used_; }
  const os::File& file() const { return file_; }

  void finish() {
    flush();
    REPLAY_CRASH_POINT("checkpoint.data_written");
    file_.sync();
    REPLAY_CRASH_POINT("checkpoint.data_synced");
  }
  void link(const std::string& path) {
    file_.link(path);
    REPLAY_CRASH_POINT("checkpoint.data_linked");
  }

 private:
  // The disk writes while the next rows are copied.
  void flush() {
    file_.write_at(flushed_, buffer_.data(), used_);
    flushed_ += used_;
    used_ = 0;
    if (flushed_ - started_ < kStartBytes) return;
    file_.start_writing(started_, flushed_ - started_);
    started_ = flushed_;
  }

  std::uint64_t number_;
  os::File file_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  std::uint64_t flushed_ = 0;
  std::uint64_t started_ = 0;  // up to here the disk was told to write
};

std::uint64_t next_number(const std::string& path, const std::optional<Manifest>& last) {
  std::uint64_t most = 0;
  for (const std::string& name : os::list_directory(path)) most = std::max(most, data_number(name));
  if (last) {
    for (const FileEntry& file : last->files) most = std::max(most, file.number);
  }
  return most + 1;
}

class Checkpointer {
 public:
  Checkpointer(const Ring& ring, const std::string& path, std::span<const Room> room)
      : ring_(ring),
        room_(room),
        path_(path),
        lock_(open_directory(path)),
        last_(last_manifest(path, ring)),
        copier_(ring),
        data_(path, next_number(path, last_)) {}

  CheckpointResult run() {
    REPLAY_CRASH_POINT("checkpoint.locked");
    Counters& counters = ring_.counters();
    Manifest m;
    m.schema = ring_.layout().schema;
    m.header.settings = ring_.settings();
    m.header.lineage = counters.lineage.load(std::memory_order_relaxed);
    m.blocks.resize(ring_.blocks.block_count());
    const std::uint64_t head = ring_.blocks.head();
    copy_blocks(m, head);
    save_counters(m, head);
    save_room(m.header);
    list_files(m);
    publish(m);
    return result_;
  }

 private:
  // The oldest first: those are overwritten next.
  void copy_blocks(Manifest& m, std::uint64_t head) {
    const std::size_t count = m.blocks.size();
    std::vector<bool> kept(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t b = (head + i) % count;
      kept[b] = last_ && keep(b, m.blocks[b]);
    }
    const std::set<std::uint64_t> condemned = condemn(m);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t b = (head + i) % count;
      BlockEntry& entry = m.blocks[b];
      if (kept[b] && !condemned.contains(entry.data.file) &&
          !condemned.contains(entry.priorities.file)) {
        continue;
      }
      if (kept[b]) result_.rows -= rows_[b];
      copy(b, entry);
    }
  }

  // Uses the pieces of the last checkpoint for a block, if they still hold.
  bool keep(std::size_t b, BlockEntry& entry) {
    const BlockEntry& last = last_->blocks[b];
    if (!copier_.unchanged(b, last)) return false;
    entry = last;
    if (entry.priorities.bytes != 0) {
      const std::vector<float>& raws = copier_.raws();
      if (long_checksum64(std::as_bytes(std::span(raws))) != entry.priorities.checksum) {
        entry.priorities = data_.put(raws.data(), raws.size() * sizeof(float));
      }
    }
    describe(b, entry);
    return true;
  }

  void copy(std::size_t b, BlockEntry& entry) {
    const std::uint64_t offset = data_.offset();
    std::uint64_t checksum = 0;
    std::byte* chunk = nullptr;
    entry = copier_.copy(
        b, [&](std::size_t bytes) { return chunk = data_.room(bytes); },
        [&](std::size_t bytes) {
          checksum = long_checksum64({chunk, bytes}, checksum);
          data_.done(bytes);
        });
    if (entry.rows != 0) {
      entry.data = {data_.number(), offset, data_.offset() - offset, checksum};
      REPLAY_CRASH_POINT("checkpoint.block");
      if (ring_.layout().has_numbers() && entry.kind == BlockKind::kRows) {
        const std::vector<float>& raws = copier_.raws();
        entry.priorities = data_.put(raws.data(), raws.size() * sizeof(float));
      }
    }
    describe(b, entry);
  }

  void describe(std::size_t b, BlockEntry& entry) {
    copier_.describe(b, entry);
    const std::size_t first = b * ring_.blocks.block_rows();
    const std::vector<float>& raws = copier_.raws();
    if (!possible_rows(copier_.words(), first, ring_.rows.capacity(), entry.lap) ||
        !std::all_of(raws.begin(), raws.end(), possible_priority)) {
      refuse("the rows of block " + std::to_string(b) + " make no sense");
    }
    rows_[b] = copier_.live();
    result_.rows += copier_.live();
  }

  // Bytes in use of each file.
  static std::map<std::uint64_t, std::uint64_t> uses(const Manifest& m) {
    std::map<std::uint64_t, std::uint64_t> bytes;
    for (const BlockEntry& entry : m.blocks) {
      if (entry.data.bytes != 0) bytes[entry.data.file] += entry.data.bytes;
      if (entry.priorities.bytes != 0) bytes[entry.priorities.file] += entry.priorities.bytes;
    }
    return bytes;
  }

  // The files of the last checkpoint that are not worth keeping.
  std::set<std::uint64_t> condemn(const Manifest& m) const {
    std::set<std::uint64_t> condemned;
    if (!last_) return condemned;
    std::map<std::uint64_t, std::uint64_t> used = uses(m);
    used.erase(data_.number());
    for (const FileEntry& file : last_->files) {
      if (used.contains(file.number) && used[file.number] < file.bytes / kLeastUse) {
        condemned.insert(file.number);
        used.erase(file.number);
      }
    }
    if (used.size() < kMostFiles) return condemned;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;
    sizes.reserve(used.size());
    for (const auto& [number, bytes] : used) sizes.emplace_back(bytes, number);
    std::sort(sizes.begin(), sizes.end());
    for (std::size_t i = 0; i < kMostFiles / 2; ++i) condemned.insert(sizes[i].second);
    return condemned;
  }

  void save_counters(Manifest& m, std::uint64_t head_before) {
    const Counters& c = ring_.counters();
    SavedCounters& saved = m.header.counters;
    // Who sees a row that clear() took out sees its era, and restore takes out the others.
    saved.era = ring_.blocks.era();
    // Behind each claim that is in the checkpoint: those made before the copy began, and those that
    // a block was copied with. The ring's own head may not have come to the last one yet.
    saved.head = std::max(head_before, saved.era);
    for (std::size_t b = 0; b < m.blocks.size(); ++b) {
      const std::uint64_t lap = m.blocks[b].lap;
      if (lap != 0) saved.head = std::max(saved.head, (lap - 1) * m.blocks.size() + b + 1);
    }
    if (saved.head > ring_.blocks.head() + 1) refuse("a block is ahead of the head");
    saved.draws = c.draws.load(std::memory_order_relaxed);
    saved.rows_sampled = c.rows_sampled.load(std::memory_order_relaxed);
    saved.updates_applied = c.updates_applied.load(std::memory_order_relaxed);
    saved.updates_stale = c.updates_stale.load(std::memory_order_relaxed);
    saved.episodes = c.episodes.load(std::memory_order_relaxed);
    saved.episode_steps = c.episode_steps.load(std::memory_order_relaxed);
    saved.return_bits = c.return_bits.load(std::memory_order_relaxed);
    saved.rows_added = ring_.rows_added();
    saved.balance = c.balance.load(std::memory_order_relaxed);
    saved.alpha_bits = c.alpha_bits.load(std::memory_order_relaxed);
    saved.max_raw_bits = c.max_raw_bits.load(std::memory_order_relaxed);
    m.header.bytes_in = c.bytes_in.load(std::memory_order_relaxed);
    m.header.bytes_kept = c.bytes_kept.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < kEpisodeCount && ring_.layout().has_steps(); ++i) {
      const Episode& one = ring_.segment->episodes()[i];
      m.header.episodes[i] = {one.steps.load(std::memory_order_relaxed),
                              one.return_bits.load(std::memory_order_relaxed)};
    }
  }

  // Writers of steps take up the last block that was closed, but for those that are open now: they
  // begin with the oldest. What add() goes on in is the caller's own block, or the newest.
  void save_room(ManifestHeader& header) const {
    std::vector<Room> room = open_room(ring_, copier_.owners());
    if (ring_.layout().has_steps()) {
      std::reverse(room.begin(), room.end());
      room.insert(room.begin(), room_.begin(), room_.end());
    } else {
      room.insert(room.end(), room_.begin(), room_.end());
    }
    header.room_count = std::min(room.size(), kMostRoom);
    std::copy_n(room.end() - static_cast<std::ptrdiff_t>(header.room_count), header.room_count,
                header.room);
  }

  void list_files(Manifest& m) {
    for (const auto& [number, used] : uses(m)) {
      if (number == data_.number()) {
        m.files.push_back({number, data_.offset()});
      } else {
        const auto file = std::find_if(last_->files.begin(), last_->files.end(),
                                       [n = number](const FileEntry& f) { return f.number == n; });
        m.files.push_back(*file);
      }
      result_.bytes += m.files.back().bytes;
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kCorrupt,
                "nothing was saved to " + path_ + ", which is as it was; what is in " +
                    ring_.segment->location().text() + " could not be restored: " + why);
  }

  // Reads the new checkpoint back: all that restore looks at before it takes any rows. Those were
  // looked at when they were copied.
  void check(const os::File& manifest) const {
    for (const FileEntry& entry : read_manifest(manifest).files) {
      const std::uint64_t size =
          entry.number == data_.number()
              ? data_.file().size()
              : os::File::open(data_path(path_, entry.number), os::Access::kRead).size();
      if (size < entry.bytes) {
        throw Error(ErrorCode::kCorrupt, data_path(path_, entry.number) + " is too short");
      }
    }
  }

  // From the rename on the new checkpoint is the one.
  void publish(const Manifest& m) {
    if (data_.offset() != 0) data_.finish();
    const std::vector<std::byte> bytes = pack(m);
    os::File file = os::File::create_hidden(path_);
    file.write_at(0, bytes.data(), bytes.size());
    REPLAY_CRASH_POINT("checkpoint.manifest_written");
    file.sync();
    try {
      check(file);
    } catch (const Error& error) {
      refuse(error.what());
    }
    if (data_.offset() != 0) data_.link(data_path(path_, data_.number()));
    const std::string next = path_ + "/" + kNewManifest;
    try {
      os::File::remove(next);  // of one that was killed
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
    file.link(next);
    REPLAY_CRASH_POINT("checkpoint.manifest_linked");
    os::File::sync_directory(next);
    os::File::rename_over(next, path_ + "/" + kManifest);
    REPLAY_CRASH_POINT("checkpoint.renamed");
    result_.bytes += bytes.size();
    result_.bytes_written = data_.offset() + bytes.size();
    remove_unused(m);
  }

  void remove_unused(const Manifest& m) const {
    for (const std::string& name : os::list_directory(path_)) {
      const std::uint64_t number = data_number(name);
      const bool used = std::any_of(m.files.begin(), m.files.end(),
                                    [&](const FileEntry& f) { return f.number == number; });
      if (number == 0 || used) continue;
      os::File::remove(data_path(path_, number));
      REPLAY_CRASH_POINT("checkpoint.removed");
    }
    os::remove_abandoned(path_);
  }

  const Ring& ring_;
  std::span<const Room> room_;
  std::string path_;
  os::File lock_;
  std::optional<Manifest> last_;
  BlockCopier copier_;
  DataFile data_;
  std::map<std::size_t, std::uint64_t> rows_;
  CheckpointResult result_;
};

}  // namespace
}  // namespace checkpoint

CheckpointResult write_checkpoint(const Ring& ring, const std::string& path,
                                  std::span<const Room> room) {
  // "a/" is "a": its entry, which has to be on the disk too, is in the directory above.
  const std::size_t last = path.find_last_not_of('/');
  const std::string plain = last == std::string::npos ? path : path.substr(0, last + 1);
  return checkpoint::Checkpointer(ring, plain, room).run();
}

}  // namespace replay_buffer
