#include "segment/layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string>

#include "replay_buffer/error.h"
#include "segment/tree_shape.h"

namespace replay_buffer {
namespace {

constexpr std::size_t kMaxSegmentBytes = std::size_t{1} << 46;

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Adds a section of n * size bytes and returns where it starts; refuses what cannot be addressed.
std::size_t take(std::size_t& end, std::size_t n, std::size_t size, std::size_t alignment) {
  const std::size_t at = round_up(end, alignment);
  if (size != 0 && n > kMaxSegmentBytes / size) {
    invalid("a buffer of this capacity and row size would need more than 64 TiB");
  }
  end = at + n * size;
  if (end > kMaxSegmentBytes) {
    invalid("a buffer of this capacity and row size would need more than 64 TiB");
  }
  return at;
}

// Blocks are large enough that claiming one is rare, small enough that a buffer has many.
std::uint64_t choose_block_rows(std::uint64_t capacity) {
  constexpr std::uint64_t kWantedBlocks = 64;
  const std::uint64_t most = capacity > 16'000'000 ? 4096 : 1024;
  std::uint64_t rows = 1;
  while (rows * 2 <= most && rows * 2 * kWantedBlocks <= capacity) rows *= 2;
  return rows;
}

bool in_arena(const Column& c) {
  return c.variable() || (c.codec != Codec::kNone && c.bytes() > kLeastCompressed);
}

// Items of a value of any length, where nobody says how many to expect.
constexpr std::uint32_t kExpectedItems = 64;

// What a value is expected to take before it is compressed.
std::uint64_t expected_bytes(const Column& c) {
  if (!c.variable()) return c.bytes();
  const std::uint64_t items = c.expected != 0 ? c.expected : kExpectedItems;
  return std::min(items * c.item_bytes(), kMostArenaBytes);
}

// Enough for the values that are expected in a block of so many rows, with some to spare where they
// may turn out larger; in any case for one row of fixed lengths that does not compress, and for one
// that is many times longer than expected. 0 where no value varies in size.
std::uint64_t choose_arena_bytes(const Schema& schema, std::uint64_t rows) {
  constexpr std::uint64_t kLeast = 4096;
  constexpr std::uint64_t kLonger = 16;
  double planned = 0;
  std::uint64_t one = 0;
  for (const Column& c : schema) {
    if (!in_arena(c)) continue;
    const std::uint64_t raw = std::min(expected_bytes(c), kMostArenaBytes);
    const double spare = c.variable() || c.ratio > 1 ? 1.125 : 1;
    const double ratio = c.ratio >= 1 ? c.ratio : 1;  // else it is refused later
    planned += static_cast<double>(raw) / ratio * spare * static_cast<double>(rows);
    one += c.variable() ? kLonger * raw : raw;
  }
  if (one == 0) return 0;
  const double wanted = std::min(planned, static_cast<double>(kMaxSegmentBytes));
  return round_up(std::max({kLeast, one, static_cast<std::uint64_t>(wanted)}), kLine);
}

// Whether a text is UTF-8, as names are for whoever shows them.
bool is_utf8(const std::string& text) {
  std::size_t more = 0;  // bytes that the character still needs
  std::uint32_t code = 0;
  std::uint32_t least = 0;  // what needs a character of that length
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xc0) == 0x80;
    if (continues != (more > 0) || byte > 0xf4) return false;
    if (continues) {
      code = (code << 6) | (byte & 0x3fU);
      if (--more > 0) continue;
      const bool surrogate = code >= 0xd800 && code < 0xe000;
      if (code < least || surrogate || code > 0x10ffff) return false;
    } else if (byte >= 0x80) {
      more = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
      code = byte & (0x3fU >> more);
    }
  }
  return more == 0;
}

void check_schema(const Schema& schema) {
  if (schema.empty()) invalid("a schema needs at least one column");
  if (schema.size() > kMaxColumns) {
    invalid("a schema has at most " + std::to_string(kMaxColumns) + " columns, this one has " +
            std::to_string(schema.size()));
  }
  std::set<std::string> seen;
  for (const Column& c : schema) {
    const std::string where = "column '" + c.name + "': ";
    if (c.name.empty() || c.name.size() > kMaxNameBytes) {
      invalid(where + "a name has 1 to " + std::to_string(kMaxNameBytes) + " bytes");
    }
    if (!is_utf8(c.name)) invalid("the name of a column is not UTF-8");
    if (!seen.insert(c.name).second) invalid(where + "the name is used twice");
    if (dtype_bytes(c.dtype) == 0) invalid(where + "unknown dtype");
    if (c.shape.size() > kMaxDimensions) {
      invalid(where + "at most " + std::to_string(kMaxDimensions) + " dimensions");
    }
    std::uint64_t bytes = dtype_bytes(c.dtype);
    for (std::uint64_t d : std::span(c.shape).subspan(c.variable() ? 1 : 0)) {
      if (d == 0) invalid(where + "only the first dimension can vary");
      if (bytes > kMaxSegmentBytes / d) invalid(where + "one row would need more than 64 TiB");
      bytes *= d;
    }
    if (c.codec > Codec::kZstd) invalid(where + "unknown compression");
    if (!(c.ratio >= 1 && c.ratio <= 1000)) {
      invalid(where + "the expected ratio of compression must be between 1 and 1,000");
    }
    if (in_arena(c) && bytes > kMostArenaBytes) {
      invalid(where + "one value would need more than 1 GiB");
    }
  }
}

void check_limiter(const Settings& s) {
  if (s.min_size > s.capacity) {
    invalid("min_size must be at most the capacity, not " + std::to_string(s.min_size));
  }
  if (!(s.tolerance >= 0 && s.tolerance <= 1e12)) {
    invalid("tolerance must be a number between 0 and 10^12");
  }
  if (s.samples_per_insert == 0) return;
  if (!(s.samples_per_insert >= 0.001 && s.samples_per_insert <= 1e6)) {
    invalid("samples_per_insert must be a number between 0.001 and 1,000,000");
  }
  if (static_cast<double>(s.min_size) * s.samples_per_insert > 1e12) {
    invalid("min_size times samples_per_insert must be at most 10^12");
  }
  if (2 * s.tolerance < s.samples_per_insert + 1) {
    invalid("tolerance must be at least (samples_per_insert + 1) / 2 = " +
            std::to_string((s.samples_per_insert + 1) / 2) +
            ": with less, add and sample could wait for each other for ever");
  }
  if (s.strategy == static_cast<std::uint32_t>(SamplingStrategy::Fifo) &&
      s.samples_per_insert > static_cast<double>(s.max_times_sampled)) {
    invalid("samples_per_insert must not be above max_times_sampled: a queue cannot give so many");
  }
}

void check_settings(const Settings& s) {
  if (s.capacity == 0 || s.capacity > kMaxCapacity) {
    invalid("capacity must be between 1 and 2^40 rows, not " + std::to_string(s.capacity));
  }
  if (s.arena_bytes > kMostArenaBytes || s.arena_bytes % 8 != 0) {
    invalid("arena_bytes must be a multiple of 8 and at most 1 GiB");
  }
  if (s.block_rows == 0 || s.block_rows > s.capacity || s.block_rows > Fill::kMost) {
    invalid("block_rows must be between 1 and the capacity (less than 2^24), not " +
            std::to_string(s.block_rows));
  }
  if (s.strategy > static_cast<std::uint32_t>(SamplingStrategy::Lifo)) invalid("unknown strategy");
  if (s.weights > static_cast<std::uint32_t>(WeightScale::None)) invalid("unknown weight scale");
  if (!(s.beta >= 0 && std::isfinite(s.beta))) invalid("beta must be a finite number >= 0");
  if (!(s.epsilon >= 0 && std::isfinite(s.epsilon)))
    invalid("epsilon must be a finite number >= 0");
  check_limiter(s);
  if (!(s.beta_end >= 0 && std::isfinite(s.beta_end))) invalid("beta must end at a number >= 0");
  if (s.max_times_sampled == 0) invalid("max_times_sampled must be at least 1");
  if (s.max_times_sampled * s.block_rows > (std::uint64_t{1} << 31)) {
    invalid("max_times_sampled is too large: a block can be drawn from 2^31 times");
  }
  const auto strategy = static_cast<SamplingStrategy>(s.strategy);
  if (s.storage > static_cast<std::uint32_t>(Storage::Steps)) invalid("unknown storage");
  if (s.storage == static_cast<std::uint32_t>(Storage::Steps)) {
    if (strategy != SamplingStrategy::Uniform && strategy != SamplingStrategy::Prioritized &&
        strategy != SamplingStrategy::Rank) {
      invalid("steps are drawn uniformly, by priority or by rank");
    }
    if (s.cer != 0) invalid("cer is for transitions: the newest step has no successor yet");
  }
  if (s.cer != 0 && (strategy == SamplingStrategy::Fifo || strategy == SamplingStrategy::Lifo ||
                     strategy == SamplingStrategy::WithoutReplacement)) {
    invalid("cer has no meaning with this strategy");
  }
}

}  // namespace

bool Layout::has_priorities() const {
  return settings.strategy == static_cast<std::uint32_t>(SamplingStrategy::Prioritized) ||
         settings.strategy == static_cast<std::uint32_t>(SamplingStrategy::Rank);
}

bool Layout::has_lows() const {
  return settings.strategy == static_cast<std::uint32_t>(SamplingStrategy::Prioritized) &&
         settings.weights == static_cast<std::uint32_t>(WeightScale::GlobalMax);
}

std::size_t Layout::rows_in(std::size_t block) const {
  return std::min<std::size_t>(settings.block_rows,
                               settings.capacity - block * settings.block_rows);
}

Settings make_settings(const BufferConfig& config, const Schema& schema) {
  Settings s{};
  s.capacity = config.capacity;
  s.block_rows = config.block_rows != 0 ? config.block_rows : choose_block_rows(config.capacity);
  s.strategy = static_cast<std::uint32_t>(config.strategy);
  s.storage = static_cast<std::uint32_t>(config.storage);
  s.weights = static_cast<std::uint32_t>(config.weights);
  s.cer = config.cer ? 1 : 0;
  s.max_times_sampled = config.max_times_sampled;
  s.beta = config.beta;
  s.epsilon = config.epsilon;
  s.seed = config.seed;
  s.column_count = static_cast<std::uint32_t>(schema.size());
  s.durable = config.durable ? 1 : 0;
  s.min_size = config.min_size;
  s.samples_per_insert = config.samples_per_insert;
  s.tolerance = config.tolerance;
  s.beta_steps = config.beta_steps;
  s.beta_end = config.beta_end;
  const auto arena = [&] { return choose_arena_bytes(schema, s.block_rows); };
  // A checkpoint holds an arena in memory while it is copied.
  constexpr std::uint64_t kHandy = std::uint64_t{32} << 20;
  while (config.block_rows == 0 && s.block_rows > 1 && arena() > kHandy) s.block_rows /= 2;
  s.arena_bytes = arena();
  if (s.arena_bytes != 0 && config.arena_bytes != 0) s.arena_bytes = config.arena_bytes;
  s.arena_bytes = std::min(s.arena_bytes, kMostArenaBytes);
  s.enable_compression = config.enable_compression ? 1 : 0;
  if (!(config.alpha >= 0 && std::isfinite(config.alpha))) {
    invalid("alpha must be a finite number >= 0");
  }
  check_settings(s);
  return s;
}

BufferConfig config_of(const Settings& s, float alpha) {
  BufferConfig config;
  config.capacity = s.capacity;
  config.strategy = static_cast<SamplingStrategy>(s.strategy);
  config.storage = static_cast<Storage>(s.storage);
  config.alpha = alpha;
  config.beta = s.beta;
  config.epsilon = s.epsilon;
  config.weights = static_cast<WeightScale>(s.weights);
  config.cer = s.cer != 0;
  config.max_times_sampled = s.max_times_sampled;
  config.seed = s.seed;
  config.block_rows = s.block_rows;
  config.min_size = s.min_size;
  config.samples_per_insert = s.samples_per_insert;
  config.tolerance = s.tolerance;
  config.durable = s.durable != 0;
  config.beta_end = s.beta_end;
  config.beta_steps = s.beta_steps;
  config.arena_bytes = s.arena_bytes;
  config.enable_compression = s.enable_compression != 0;
  return config;
}

Schema with_codecs(const BufferConfig& config, Schema schema) {
  constexpr std::size_t kLarge = 1024;
  for (Column& c : schema) {
    const bool wanted = c.codec == Codec::kNone && (c.variable() || c.bytes() > kLarge);
    if (config.enable_compression && wanted) c.codec = Codec::kLz4;
    if (c.variable() && c.expected == 0) c.expected = kExpectedItems;
  }
  return schema;
}

Layout plan_layout(const Settings& settings, const Schema& schema) {
  check_settings(settings);
  check_schema(schema);
  Layout l{};
  l.settings = settings;
  l.schema = schema;
  const std::size_t capacity = settings.capacity;
  l.block_count = (capacity + settings.block_rows - 1) / settings.block_rows;

  std::size_t end = sizeof(Header);
  l.columns_at = take(end, schema.size(), sizeof(ColumnEntry), kLine);
  l.owners_at = take(end, kOwnerCount, sizeof(Owner), kLine);
  if (l.has_steps()) l.episodes_at = take(end, kEpisodeCount, sizeof(Episode), kLine);
  l.blocks_at = take(end, l.block_count, sizeof(Block), kLine);
  l.fills_at = take(end, l.block_count, sizeof(std::uint64_t), kLine);
  if (l.has_priorities()) {
    const TreeShape shape(capacity);
    l.priorities_at = take(end, capacity, sizeof(std::uint64_t), kLine);
    l.weights_at = take(end, shape.size(0), sizeof(float), kLine);
    l.sums_at = take(end, shape.inner_nodes(), sizeof(std::uint64_t), 2 * kLine);
  }
  if (l.has_lows()) {
    l.lows_at = take(end, TreeShape(capacity).inner_nodes(), sizeof(std::uint64_t), 2 * kLine);
  }
  if (l.is_queue()) l.given_back_at = take(end, capacity, sizeof(std::uint64_t), kLine);
  if (l.durable()) l.checks_at = take(end, capacity, sizeof(std::uint64_t), kLine);

  // Wide elements first, so that only the end of a record is padded.
  l.places.resize(schema.size());
  std::size_t packed = 0;
  std::size_t alignment = 1;
  if (l.has_steps()) {
    l.link.bytes = sizeof(Link);
    packed = alignment = sizeof(Link);
  }
  std::size_t large = 0;
  for (std::size_t width : {8U, 4U, 2U, 1U}) {
    for (std::size_t i = 0; i < schema.size(); ++i) {
      const Column& column = schema[i];
      const bool cell = in_arena(column);
      const std::size_t stored = cell ? sizeof(Cell) : column.bytes();
      const std::size_t stored_width = cell ? sizeof(Cell) : dtype_bytes(column.dtype);
      if (stored_width != width) continue;
      ColumnPlace& place = l.places[i];
      place.bytes = column.bytes();
      place.width = static_cast<std::uint8_t>(dtype_bytes(column.dtype));
      l.row_bytes += expected_bytes(column);
      if (cell) {
        place.in_arena = true;
        place.codec = column.codec;
        place.item = column.variable() ? column.item_bytes() : 0;
        large += expected_bytes(column);
      }
      if (stored > kPackedColumnBytes) {
        place.own_array = true;
        large += round_up(stored, kLine);
        continue;
      }
      place.base = packed;
      packed += stored;
      alignment = std::max(alignment, width);
    }
  }
  // The word stands in front of its record, on the same cache line, unless the padding this takes
  // is what makes the buffer more than a tenth larger than its data; then the elements of a record
  // may even lie askew.
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const std::size_t together = round_up(kWord + packed, kWord);
  const std::size_t aligned = kWord + round_up(packed, alignment);
  const std::size_t squeezed = kWord + packed;  // cells need not be aligned: they are copied
  // What a row takes outside its record: its share of the sections so far and of the pages around
  // the records, and its large columns. In a small buffer that share is mostly the header's, which
  // no arrangement of rows makes up for.
  const std::size_t own =
      (l.has_priorities() ? 13 : 0) + (l.is_queue() ? 8 : 0) + (l.durable() ? 8 : 0);
  const std::size_t share = (end + 2 * kPage + capacity - 1) / capacity;
  const std::size_t beside = std::min(share, own + 4) + large;
  const auto costly = [&](std::size_t row) { return (row + beside) * 10 > l.row_bytes * 11; };
  const std::size_t apart = costly(aligned) ? squeezed : aligned;
  const bool inside = !(costly(together) && !costly(apart));
  // Records that begin at half lines cross fewer of them; a few bytes are worth that.
  const std::size_t halves = round_up(together, kLine / 2);
  const bool roomy = halves * 10 <= together * 11 &&
                     (l.row_bytes < 128 || (halves + beside) * 100 <= l.row_bytes * 109);
  if (!inside) l.words_at = take(end, capacity, kWord, kLine);
  l.record_stride = !inside ? apart - kWord : roomy ? halves : together;
  l.records_at = take(end, capacity, l.record_stride, kPage);
  if (inside) l.words_at = l.records_at;
  l.word_stride = inside ? l.record_stride : kWord;
  const std::size_t cells_at = l.records_at + (inside ? kWord : 0);
  l.link.base = cells_at;
  l.link.stride = l.record_stride;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    ColumnPlace& place = l.places[i];
    if (place.in_arena) l.arena_columns.push_back(static_cast<std::uint32_t>(i));
    if (!place.own_array) {
      place.base += cells_at;
      place.stride = l.record_stride;
    } else {
      place.stride = round_up(place.bytes, kLine);
      place.base = take(end, capacity, place.stride, kPage);
    }
  }
  if (l.has_arenas() != (settings.arena_bytes != 0)) invalid("arenas are for values that vary");
  if (l.has_arenas()) {
    std::size_t one = 0;  // a row that does not compress
    for (const std::uint32_t c : l.arena_columns) one += l.places[c].bytes;
    if (settings.arena_bytes < one) invalid("a block's arena is smaller than one row");
    l.arenas_at = take(end, l.block_count, settings.arena_bytes, kPage);
  }
  l.total_bytes = round_up(end, kPage);
  return l;
}

}  // namespace replay_buffer
