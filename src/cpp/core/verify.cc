#include "core/verify.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>
#include <unordered_set>
#include <utility>

#include "segment/checksum.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kMostReported = 100;
constexpr std::size_t kMostFound = 1000;  // of one look: those that stay are among them
constexpr int kLooks = 10;
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);

bool valid_raw(float raw) { return raw >= 0 && std::isfinite(raw); }

// One look at the whole segment.
class Look {
 public:
  Look(const Ring& ring, const Owners& owners)
      : ring_(ring), owners_(owners), capacity_(ring.rows.capacity()) {}

  std::vector<std::string> all() {
    header();
    changes();
    for (std::size_t b = 0; b < ring_.blocks.block_count() && found_.size() < kMostFound; ++b) {
      block(b);
    }
    if (ring_.priorities) tree();
    return std::move(found_);
  }

 private:
  template <class... Parts>
  void report(const Parts&... parts) {
    if (found_.size() >= kMostFound) return;
    std::string sentence;
    const auto add = [&](const auto& part) {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
        sentence += std::to_string(part);
      } else {
        sentence += part;
      }
    };
    (add(parts), ...);
    found_.push_back(std::move(sentence));
  }

  void header() {
    const auto* header = reinterpret_cast<const Header*>(ring_.segment->base());
    const auto* columns =
        reinterpret_cast<const ColumnEntry*>(ring_.segment->base() + ring_.layout().columns_at);
    if (header->settings.column_count != ring_.settings().column_count ||
        header->checksum != header_checksum(*header, columns)) {
      report("the checksum of the header is wrong");
    }
    const std::uint64_t era = ring_.blocks.era();
    const std::uint64_t head = ring_.blocks.head();
    if (era > head) report("the era ", era, " is later than the head ", head);
    if (era % ring_.blocks.block_count() != 0) {
      report("the era ", era, " does not begin at the first block");
    }
    if (!valid_raw(ring_.alpha())) report("alpha is ", ring_.alpha());
    if (ring_.priorities && !valid_raw(ring_.priorities->max_raw())) {
      report("the largest priority is ", ring_.priorities->max_raw());
    }
  }

  void changes() {
    for (const Identity who : owners_.dead_in_a_change()) {
      report("owner ", who.owner, " died while it changed priorities or cleared, and nobody has ",
             "mended it");
    }
  }

  void block(std::size_t b) {
    const BlockWord held =
        BlockWord::unpack(ring_.segment->blocks()[b].word.load(std::memory_order_acquire));
    const bool sealed = held.state == BlockState::kSealed;
    if (held.state > BlockState::kReaping) {
      report("block ", b, " has no known state");
    } else if (sealed && (held.owner != 0 || held.epoch != 0)) {
      report("block ", b, " is sealed and names an owner");
    } else if (!sealed && owners_.dead({held.owner, held.epoch})) {
      report("block ", b, " is held by owner ", held.owner, ", who is dead");
    }
    // The block at the head may have been claimed by one who has not moved the head.
    const std::uint64_t head = ring_.blocks.head();
    const std::size_t count = ring_.blocks.block_count();
    if (held.lap > (head + 1) / count + (b < (head + 1) % count ? 1 : 0)) {
      report("block ", b, " is at lap ", held.lap, ", which the head ", head, " has not reached");
    }
    laps(b, held);
    rows(b, held);
  }

  void laps(std::size_t b, BlockWord held) {
    const Block& block = ring_.segment->blocks()[b];
    const std::uint64_t taken[] = {block.laps[0].taken.load(std::memory_order_relaxed),
                                   block.laps[1].taken.load(std::memory_order_relaxed)};
    if (std::max(taken[0] >> 32, taken[1] >> 32) != held.lap) {
      report("block ", b, " is at lap ", held.lap, " and remembers lap ",
             std::max(taken[0] >> 32, taken[1] >> 32));
    }
    const std::uint64_t most = ring_.blocks.rows_in(b) * ring_.settings().max_times_sampled;
    for (const std::uint64_t word : taken) {
      if ((word & 0xffffffff) > most) {
        report("block ", b, " has given out ", word & 0xffffffff, " draws of ", most);
      }
    }
  }

  void rows(std::size_t b, BlockWord held) {
    const std::size_t first = b * ring_.blocks.block_rows();
    const std::size_t n = ring_.blocks.rows_in(b);
    const Fill fill = ring_.blocks.fill(b);
    std::uint32_t written = 0;
    std::uint32_t committed = 0;
    std::uint32_t end = 0;  // of the arena, as far as rows have it
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t word = ring_.rows.word(first + i).load(std::memory_order_acquire);
      row(first + i, word, held);
      if (ring_.priorities) priority(first + i, word);
      if (ring_.rows.has_arenas() && row_committed(word)) arena(first + i, word, end);
      const std::uint64_t id = (std::uint64_t{held.lap} - 1) * capacity_ + first + i;
      if (word != 0 && row_id(word) == id) written = static_cast<std::uint32_t>(i + 1);
      if (row_committed(word)) ++committed;
    }
    if (fill.lap != static_cast<std::uint16_t>(held.lap)) {
      report("block ", b, " is at lap ", held.lap, " and counts rows of lap ", fill.lap);
    }
    // Row 0 looks, when it was cleared, as if it had never been written.
    if (fill.written != written &&
        !(b == 0 && held.lap == 1 && written == 0 && fill.written == 1)) {
      report("block ", b, " counts ", fill.written, " rows of lap ", held.lap, " and has ",
             written);
    }
    if (fill.committed != committed) {
      report("block ", b, " counts ", fill.committed, " committed rows and has ", committed);
    }
  }

  void row(std::size_t slot, std::uint64_t word, BlockWord held) {
    const std::uint64_t id = row_id(word);
    const auto state = static_cast<RowState>(word & 3);
    if (state == RowState::kEmpty) return;  // its id is that of a row that is gone
    if (state > RowState::kCommitted) {
      report("the row in slot ", slot, " has no known state");
    } else if (id % capacity_ != slot) {
      report("slot ", slot, " holds row ", id, ", which belongs in slot ", id % capacity_);
    } else if (id / capacity_ + 1 > held.lap) {
      report("slot ", slot, " holds row ", id, " of lap ", id / capacity_ + 1,
             ", and its block is at lap ", held.lap);
    } else if (state == RowState::kCommitted && held.state == BlockState::kSealed &&
               id / capacity_ < ring_.blocks.era() / ring_.blocks.block_count()) {
      report("row ", id, " was cleared and is still there");
    } else if (state == RowState::kWriting && held.state != BlockState::kOpen) {
      report("row ", id, " is being written in a block that is not open");
    } else if (state == RowState::kCommitted && ring_.layout().durable() &&
               !ring_.rows.sound(slot, word)) {
      report("the checksum of row ", id, " is wrong");
    }
  }

  // Rows have their bytes of the arena in the order of their slots, and none has another's.
  void arena(std::size_t slot, std::uint64_t word, std::uint32_t& end) {
    std::uint64_t at = ring_.rows.extent(slot).first;
    if (at < end) {
      report("row ", row_id(word), " begins at byte ", at, " of its arena, where others go on to ",
             end);
    }
    for (const std::uint32_t c : ring_.layout().arena_columns) {
      Cell cell;
      copy_shared(&cell, ring_.rows.cell(c, slot), sizeof(cell));
      if (cell.offset != at || cell.offset > ring_.rows.arena_bytes() ||
          cell.bytes() > ring_.rows.arena_bytes() - cell.offset) {
        report("column '", ring_.layout().schema[c].name, "' of row ", row_id(word),
               " lies outside of its arena");
        return;
      }
      at += cell.bytes();
    }
    end = static_cast<std::uint32_t>(at);
  }

  void priority(std::size_t slot, std::uint64_t word) {
    const PriorityWord held = ring_.priorities->of(slot);
    const bool none = held.lap == 0 || held.lap == Priorities::kGone;
    const bool weighed = row_weighed(word) && row_id(word) >= ring_.blocks.oldest_id();
    if (weighed && held.lap != row_id(word) / capacity_ + 1) {
      report("row ", row_id(word), " has no priority");
    } else if (!weighed && !none) {
      report("slot ", slot, " has a priority of lap ", held.lap, " and no row");
    } else if (!none && !valid_raw(held.raw)) {
      report("the priority in slot ", slot, " is ", held.raw);
    } else if (!none && held.raw > ring_.priorities->max_raw()) {
      report("the priority in slot ", slot, " is ", held.raw, ", the largest is ",
             ring_.priorities->max_raw());
    }
    const float leaf = ring_.priorities->tree().leaf(slot);
    const float wanted = ring_.priorities->weight_of(slot);
    if (!(leaf == wanted)) report("the leaf of slot ", slot, " is ", leaf, ", not ", wanted);
  }

  void tree() {
    const Tree& tree = ring_.priorities->tree();
    const std::size_t padded = TreeShape(capacity_).size(0);
    for (std::size_t slot = capacity_; slot < padded; ++slot) {
      if (!(tree.leaf(slot) == 0)) report("leaf ", slot, " belongs to no row and is not 0");
    }
    for (const Tree::Stale& stale : tree.stale(kMostFound)) {
      report("node ", stale.node, " at level ", stale.level, " of the tree has the ",
             stale.low ? "least leaf " : "sum ", stale.held, ", its children give ", stale.given);
    }
  }

  const Ring& ring_;
  const Owners& owners_;
  std::uint64_t capacity_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> verify(const Ring& ring, const Owners& owners) {
  std::vector<std::string> stay = Look(ring, owners).all();
  for (int look = 1; look < kLooks && !stay.empty(); ++look) {
    std::this_thread::sleep_for(kBetweenLooks);
    const std::vector<std::string> now = Look(ring, owners).all();
    const std::unordered_set<std::string> known(now.begin(), now.end());
    std::erase_if(stay, [&](const std::string& sentence) { return !known.contains(sentence); });
  }
  if (stay.size() > kMostReported) stay.resize(kMostReported);
  return stay;
}

}  // namespace replay_buffer
