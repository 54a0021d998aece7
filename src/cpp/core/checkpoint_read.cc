#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/checkpoint.h"
#include "core/checkpoint_format.h"
#include "core/limiter.h"
#include "os/crash_point.h"
#include "replay_buffer/error.h"
#include "segment/checksum.h"

namespace replay_buffer {
namespace checkpoint {
namespace {

[[noreturn]] void corrupt(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kCorrupt, path + " is not a whole checkpoint: " + what);
}

// A manifest and its files, which stay readable when a later checkpoint removes them.
struct Source {
  Manifest manifest;
  std::map<std::uint64_t, os::File> files;
};

bool open_files(const std::string& path, Source& source) {
  for (const FileEntry& entry : source.manifest.files) {
    try {
      os::File file = os::File::open(data_path(path, entry.number), os::Access::kRead);
      if (file.size() < entry.bytes) corrupt(path, file.name() + " was cut short");
      source.files.emplace(entry.number, std::move(file));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) return false;
      throw;
    }
  }
  return true;
}

Source open_source(const std::string& path) {
  std::uint64_t last = 0;
  for (;;) {
    Source source;
    source.manifest = read_manifest(path);
    if (open_files(path, source)) return source;
    // A checkpoint that was finished meanwhile has another manifest.
    const std::uint64_t checksum = source.manifest.header.checksum;
    if (checksum == last) corrupt(path, "one of its data files is gone");
    last = checksum;
  }
}

class Restorer {
 public:
  Restorer(const Source& source, const std::string& path, Segment& segment)
      : source_(source),
        path_(path),
        segment_(segment),
        rows_(segment),
        blocks_(segment),
        shape_(segment.layout()) {
    if (segment.layout().has_priorities()) priorities_.emplace(segment);
  }

  void run(bool limiter) {
    restore_counters(limiter);
    for (std::size_t b = 0; b < source_.manifest.blocks.size(); ++b) {
      restore_block(b, source_.manifest.blocks[b]);
      REPLAY_CRASH_POINT("restore.block");
    }
    blocks_.forget_lost_claims();
    if (priorities_) priorities_->refresh_all();
    if (!limiter) {
      const Ring ring(std::shared_ptr<Segment>(std::shared_ptr<void>(), &segment_));  // not its own
      const std::int64_t balance =
          fresh_balance(ring.settings(), blocks_.live_rows(), make_sampler(ring)->left());
      segment_.counters().balance.store(balance, std::memory_order_relaxed);
    }
  }

 private:
  void restore_counters(bool limiter) const {
    const SavedCounters& saved = source_.manifest.header.counters;
    Counters& c = segment_.counters();
    c.head.store(saved.head, std::memory_order_relaxed);
    c.era.store(saved.era, std::memory_order_relaxed);
    c.draws.store(saved.draws, std::memory_order_relaxed);
    c.rows_sampled.store(saved.rows_sampled, std::memory_order_relaxed);
    c.updates_applied.store(saved.updates_applied, std::memory_order_relaxed);
    c.updates_stale.store(saved.updates_stale, std::memory_order_relaxed);
    c.episodes.store(saved.episodes, std::memory_order_relaxed);
    c.episode_steps.store(saved.episode_steps, std::memory_order_relaxed);
    c.return_bits.store(saved.return_bits, std::memory_order_relaxed);
    c.max_raw_bits.store(saved.max_raw_bits, std::memory_order_relaxed);
    c.bytes_in.store(source_.manifest.header.bytes_in, std::memory_order_relaxed);
    c.bytes_kept.store(source_.manifest.header.bytes_kept, std::memory_order_relaxed);
    if (limiter) c.balance.store(saved.balance, std::memory_order_relaxed);
    segment_.owners()[0].rows_added.store(saved.rows_added, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kEpisodeCount && segment_.layout().has_steps(); ++i) {
      const SavedEpisode& one = source_.manifest.header.episodes[i];
      segment_.episodes()[i].steps.store(one.steps, std::memory_order_relaxed);
      segment_.episodes()[i].return_bits.store(one.return_bits, std::memory_order_relaxed);
    }
  }

  void restore_block(std::size_t b, const BlockEntry& entry) {
    Block& block = segment_.blocks()[b];
    block.word.store(BlockWord{entry.lap, 0, 0, BlockState::kSealed}.pack(),
                     std::memory_order_relaxed);
    block.before.store(entry.before, std::memory_order_relaxed);
    for (std::size_t l = 0; l < 2; ++l) {
      block.laps[l].back.store(entry.back[l], std::memory_order_relaxed);
      block.laps[l].on.store(entry.on[l], std::memory_order_relaxed);
      block.laps[l].taken.store(entry.taken[l], std::memory_order_relaxed);
    }
    const std::size_t first = b * blocks_.block_rows();
    if (entry.kind == BlockKind::kRows) read_rows(first, entry);
    if (entry.kind == BlockKind::kWords) read_words(first, entry);
    blocks_.set_fill(b, settle_rows(b, first, entry));
    if (entry.priorities.bytes != 0) read_priorities(first, entry);
  }

  void read(const Piece& piece, std::uint64_t at, std::byte* to, std::size_t bytes) const {
    source_.files.at(piece.file).read_at(piece.offset + at, to, bytes);
  }

  void read_rows(std::size_t first, const BlockEntry& entry) {
    std::uint64_t checksum = 0;
    std::uint64_t offset = 0;
    for (std::size_t at = 0; at < entry.rows; at += shape_.chunk_rows) {
      const std::size_t n = std::min<std::size_t>(shape_.chunk_rows, entry.rows - at);
      chunk_.resize(n * shape_.row_bytes);
      read(entry.data, offset, chunk_.data(), chunk_.size());
      offset += chunk_.size();
      checksum = long_checksum64(chunk_, checksum);
      const std::byte* from = chunk_.data();
      for (const Section& section : shape_.sections) {
        std::memcpy(segment_.base() + section.base + (first + at) * section.stride, from,
                    n * section.stride);
        from += n * section.stride;
      }
    }
    if (offset < entry.data.bytes) {
      std::byte* arena = segment_.arena(first / blocks_.block_rows());
      read(entry.data, offset, arena, entry.data.bytes - offset);
      checksum = long_checksum64({arena, entry.data.bytes - offset}, checksum);
    }
    check(entry.data, checksum);
  }

  void read_words(std::size_t first, const BlockEntry& entry) {
    chunk_.resize(entry.data.bytes);
    read(entry.data, 0, chunk_.data(), chunk_.size());
    check(entry.data, long_checksum64(chunk_, 0));
    for (std::size_t i = 0; i < entry.rows; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, chunk_.data() + i * sizeof(word), sizeof(word));
      rows_.word(first + i).store(word, std::memory_order_relaxed);
    }
  }

  // Looks at every row word, takes out what a clear() took out meanwhile, and counts the rest.
  Fill settle_rows(std::size_t b, std::size_t first, const BlockEntry& entry) const {
    const std::size_t capacity = rows_.capacity();
    std::vector<std::uint64_t> words(entry.rows);
    for (std::size_t i = 0; i < entry.rows; ++i) {
      words[i] = rows_.word(first + i).load(std::memory_order_relaxed);
    }
    if (!possible_rows(words, first, capacity, entry.lap)) {
      corrupt(path_, "a row word makes no sense");
    }
    Fill fill{static_cast<std::uint16_t>(entry.lap), 0, 0};
    for (std::size_t i = 0; i < entry.rows; ++i) {
      const std::uint64_t seen = words[i];
      if (seen == 0) continue;
      const std::uint64_t id = row_id(seen);
      const std::uint64_t lap = id / capacity + 1;
      if (lap == entry.lap) fill.written = static_cast<std::uint32_t>(i + 1);
      if (priorities_) {
        segment_.priorities()[first + i].store(PriorityWord{0, Priorities::kGone}.pack(),
                                               std::memory_order_relaxed);
      }
      if (!row_committed(seen)) continue;
      if ((lap - 1) * blocks_.block_count() + b < source_.manifest.header.counters.era) {
        rows_.word(first + i).store(row_word(id, RowState::kEmpty), std::memory_order_relaxed);
        continue;
      }
      ++fill.committed;
      if (segment_.layout().durable()) {
        segment_.checks()[first + i].store(rows_.check(first + i, seen), std::memory_order_relaxed);
      }
    }
    return fill;
  }

  void read_priorities(std::size_t first, const BlockEntry& entry) {
    std::vector<float> raws(entry.rows);
    read(entry.priorities, 0, reinterpret_cast<std::byte*>(raws.data()), entry.priorities.bytes);
    check(entry.priorities, long_checksum64(std::as_bytes(std::span(raws))));
    for (std::size_t i = 0; i < raws.size(); ++i) {
      const std::uint64_t word = rows_.word(first + i).load(std::memory_order_relaxed);
      const auto lap = static_cast<std::uint32_t>(row_id(word) / rows_.capacity() + 1);
      if (segment_.layout().is_queue()) {
        give_back(first + i,
                  {lap, row_committed(word) ? std::bit_cast<std::uint32_t>(raws[i]) : 0});
        continue;
      }
      if (!possible_priority(raws[i])) corrupt(path_, "a priority makes no sense");
      if (!row_weighed(word)) continue;
      segment_.priorities()[first + i].store(PriorityWord{raws[i], lap}.pack(),
                                             std::memory_order_relaxed);
    }
  }

  void give_back(std::size_t slot, GivenBack draws) const {
    if (draws.draws > segment_.layout().settings.max_times_sampled) {
      corrupt(path_, "a row was given back more often than it was drawn");
    }
    if (draws.draws == 0) return;
    segment_.given_back()[slot].store(draws.pack(), std::memory_order_relaxed);
    segment_.counters().given_back.fetch_add(draws.draws, std::memory_order_relaxed);
  }

  void check(const Piece& piece, std::uint64_t checksum) const {
    if (checksum != piece.checksum) {
      corrupt(path_, "the checksum of " + std::to_string(piece.bytes) + " bytes at offset " +
                         std::to_string(piece.offset) + " of " + kDataPrefix +
                         std::to_string(piece.file) + " is wrong");
    }
  }

  const Source& source_;
  const std::string& path_;
  Segment& segment_;
  Rows rows_;
  Blocks blocks_;
  std::optional<Priorities> priorities_;
  Shape shape_;
  std::vector<std::byte> chunk_;
};

}  // namespace
}  // namespace checkpoint

CheckpointKind checkpoint_kind(const std::string& path) {
  checkpoint::Manifest manifest = checkpoint::read_manifest(path);
  return {checkpoint::config_of(manifest.header), std::move(manifest.schema)};
}

std::unique_ptr<Segment> restore_checkpoint(const std::string& path, const Location& location,
                                            bool limiter, std::vector<Room>* room,
                                            Existing existing) {
  const checkpoint::Source source = checkpoint::open_source(path);
  const checkpoint::ManifestHeader& header = source.manifest.header;
  if (room != nullptr) room->assign(header.room, header.room + header.room_count);
  return Segment::create(
      location, checkpoint::config_of(header), source.manifest.schema,
      [&](Segment& segment) { checkpoint::Restorer(source, path, segment).run(limiter); },
      existing);
}

}  // namespace replay_buffer
