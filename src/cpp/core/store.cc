#include "replay_buffer/store.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/checkpoint.h"
#include "core/codec.h"
#include "os/cpu.h"
#include "os/process.h"
#include "replay_buffer/batch.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

const Priorities& priorities_of(const Buffer& buffer) {
  if (!buffer.ring().priorities) {
    throw Error(ErrorCode::kInvalidArgument,
                "this buffer keeps no priorities: only SamplingStrategy::Prioritized and Rank do");
  }
  return *buffer.ring().priorities;
}

// Ids are below 2^56, so that they are the same with and without a sign.
std::int64_t* as_signed(std::size_t* ids) { return reinterpret_cast<std::int64_t*>(ids); }
std::span<const std::int64_t> as_signed(std::span<const std::size_t> ids) {
  static_assert(sizeof(std::size_t) == sizeof(std::int64_t));
  return {reinterpret_cast<const std::int64_t*>(ids.data()), ids.size()};
}

// As Python says it: "obs float32[8]".
std::string said(const Column& column) {
  static constexpr const char* kNames[] = {"none",    "bool",    "int8",   "int16",  "int32",
                                           "int64",   "uint8",   "uint16", "uint32", "uint64",
                                           "float16", "float32", "float64"};
  std::string text = column.name + " " + kNames[static_cast<std::size_t>(column.dtype)];
  for (std::size_t i = 0; i < column.shape.size(); ++i) {
    text += i == 0 ? "[" : ",";
    text += column.shape[i] == 0 ? "any" : std::to_string(column.shape[i]);
  }
  return column.shape.empty() ? text : text + "]";
}

void check_same(const Schema& there, const Schema& wanted, const std::string& location) {
  const auto differ = [&](const std::string& what) {
    throw Error(ErrorCode::kSchemaMismatch, location + " has other columns: " + what);
  };
  if (there.size() != wanted.size()) {
    differ(std::to_string(there.size()) + ", not " + std::to_string(wanted.size()));
  }
  for (std::size_t i = 0; i < there.size(); ++i) {
    if (there[i].name != wanted[i].name || there[i].dtype != wanted[i].dtype ||
        there[i].shape != wanted[i].shape) {
      differ("'" + said(there[i]) + "', not '" + said(wanted[i]) + "'");
    }
  }
}

// Options that were chosen, not given, may be any.
void check_same(const Settings& there, const BufferConfig& config, const Schema& schema,
                const std::string& location) {
  const Settings wanted = make_settings(config, with_codecs(config, schema));
  const auto check = [&](const char* name, auto found, auto given) {
    if (found == given) return;
    throw Error(ErrorCode::kInvalidArgument, location + " was made with another config: " + name +
                                                 " is " + std::to_string(found) + ", not " +
                                                 std::to_string(given));
  };
  check("capacity", there.capacity, wanted.capacity);
  check("strategy", there.strategy, wanted.strategy);
  check("storage", there.storage, wanted.storage);
  check("weights", there.weights, wanted.weights);
  check("cer", there.cer, wanted.cer);
  check("max_times_sampled", there.max_times_sampled, wanted.max_times_sampled);
  check("beta", there.beta, wanted.beta);
  check("beta_end", there.beta_end, wanted.beta_end);
  check("beta_steps", there.beta_steps, wanted.beta_steps);
  check("epsilon", there.epsilon, wanted.epsilon);
  check("min_size", there.min_size, wanted.min_size);
  check("samples_per_insert", there.samples_per_insert, wanted.samples_per_insert);
  check("tolerance", there.tolerance, wanted.tolerance);
  check("durable", there.durable, wanted.durable);
  if (config.block_rows != 0) check("block_rows", there.block_rows, wanted.block_rows);
  if (config.arena_bytes != 0) check("arena_bytes", there.arena_bytes, wanted.arena_bytes);
}

void check_storage(std::uint32_t there, Storage wanted, const std::string& location) {
  if (there == static_cast<std::uint32_t>(wanted)) return;
  throw Error(ErrorCode::kSchemaMismatch,
              location + (wanted == Storage::Steps ? " holds transitions, not steps"
                                                   : " holds steps, not transitions"));
}

// With the mean length of values that may have any. Private memory is only reserved, so there it is
// a generous one.
Schema planned(const BufferConfig& config, const Location& location, Schema schema) {
  constexpr std::size_t kGenerous = std::size_t{64} << 10;
  for (Column& column : schema) {
    if (!column.variable() || column.expected != 0) continue;
    column.expected = config.expected;
    if (config.expected == 0 && location.kind == Location::Kind::kHeap) {
      column.expected = static_cast<std::uint32_t>(
          std::max<std::size_t>(1, kGenerous / std::max<std::size_t>(1, column.item_bytes())));
    }
  }
  return schema;
}

// A whole number of any type.
struct Number {
  bool negative;
  std::uint64_t magnitude;
};

template <class T>
Number number_as(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if constexpr (std::is_signed_v<T>) {
    if (value < 0) return {true, ~static_cast<std::uint64_t>(std::int64_t{value}) + 1};
  }
  return {false, static_cast<std::uint64_t>(value)};
}

Number number_at(const void* at, DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return number_as<std::int8_t>(at);
    case DType::kInt16:
      return number_as<std::int16_t>(at);
    case DType::kInt32:
      return number_as<std::int32_t>(at);
    case DType::kInt64:
      return number_as<std::int64_t>(at);
    case DType::kUInt8:
      return number_as<std::uint8_t>(at);
    case DType::kUInt16:
      return number_as<std::uint16_t>(at);
    case DType::kUInt32:
      return number_as<std::uint32_t>(at);
    case DType::kUInt64:
      return number_as<std::uint64_t>(at);
    default:
      return {false, 0};  // only whole numbers have limits
  }
}

// A compressed value, in memory of this thread.
const std::byte* unpacked(const Rows& rows, std::size_t column, std::size_t slot) {
  static thread_local std::vector<std::vector<std::byte>> memory;
  if (memory.size() <= column) memory.resize(column + 1);
  memory[column].resize(rows.bytes(column));
  rows.copy_cell(column, slot, memory[column].data());
  return memory[column].data();
}

}  // namespace

void detail::refuse_batch_size(std::size_t n) {
  throw Error(ErrorCode::kInvalidArgument,
              n == 0 ? "a batch has at least one row"
                     : "a batch has fewer than 2^31 rows, not " + std::to_string(n));
}

void detail::refuse_memory(std::size_t n) {
  throw Error(ErrorCode::kOutOfSpace, std::to_string(n) + " rows do not fit in memory");
}

Store::Store(const BufferConfig& config, const Schema& schema)
    : Store(create("heap:", config, schema, false)) {}
Store::Store(std::unique_ptr<Buffer> buffer)
    : buffer_(std::move(buffer)), steps_(buffer_->layout().has_steps()) {
  const Schema& schema = buffer_->layout().schema;
  for (std::size_t c = 0; c < schema.size(); ++c) {
    if (schema[c].limit != 0) limited_.push_back(c);
  }
  checked_ = steps_ || !limited_.empty();
}
Store::~Store() = default;
Store::Store(Store&& other) noexcept = default;
Store& Store::operator=(Store&& other) noexcept = default;

Store Store::create(const std::string& location, const BufferConfig& config, const Schema& schema,
                    bool overwrite) {
  os::watch_forks();
  const Location where = Location::parse(location);
  const Schema columns = with_codecs(config, planned(config, where, schema));
  check_codecs(columns);
  const Existing existing = overwrite ? Existing::kReplace : Existing::kRefuse;
  return Store(std::make_unique<Buffer>(Segment::create(where, config, columns, {}, existing)));
}

Store Store::open_or_create(const std::string& location, const BufferConfig& config,
                            const Schema& schema) {
  for (;;) {
    try {
      Store store = open(location, schema, config.storage, false);
      check_same(store.buffer_->layout().settings, config, schema, location);
      return store;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
    }
    try {
      return create(location, config, schema, false);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAlreadyExists) throw;  // somebody else was faster
    }
  }
}

Store Store::open(const std::string& location, const Schema& schema, Storage storage,
                  bool readonly) {
  os::watch_forks();
  std::unique_ptr<Segment> segment = Segment::open(
      Location::parse(location), readonly ? os::Access::kRead : os::Access::kReadWrite);
  const Layout& layout = segment->layout();
  check_storage(layout.settings.storage, storage, location);
  check_same(layout.schema, schema, location);
  return Store(std::make_unique<Buffer>(std::move(segment)));
}

Store Store::restore(const std::string& path, const std::string& location, const Schema& schema,
                     Storage storage, bool overwrite) {
  os::watch_forks();
  const CheckpointKind kind = checkpoint_kind(path);
  check_storage(static_cast<std::uint32_t>(kind.config.storage), storage, path);
  check_same(kind.schema, schema, path);
  std::vector<Room> room;
  auto buffer = std::make_unique<Buffer>(
      restore_checkpoint(path, Location::parse(location), false, &room,
                         overwrite ? Existing::kReplace : Existing::kRefuse));
  buffer->resume(room);
  return Store(std::move(buffer));
}

BufferConfig Store::saved_config(const std::string& path) { return checkpoint_kind(path).config; }

void Store::unlink(const std::string& location) { Segment::unlink(Location::parse(location)); }

BufferConfig Store::config() const {
  return config_of(buffer_->layout().settings, buffer_->ring().alpha());
}

float Store::beta() const { return buffer_->beta(); }

// Rows without links would be no steps.
void Store::check_transitions() const {
  if (!steps_) return;
  throw Error(ErrorCode::kInvalidArgument,
              "this buffer holds steps: a writer adds them, and views are drawn");
}

void Store::check_row(const void* const* columns) const {
  check_transitions();
  for (const std::size_t c : limited_) {
    const Column& column = buffer_->layout().schema[c];
    const Number value = number_at(columns[c], column.dtype);
    if (!value.negative && value.magnitude < column.limit) continue;
    throw Error(ErrorCode::kSchemaMismatch,
                "column '" + column.name + "': expected 0 to " + std::to_string(column.limit - 1) +
                    ", got " + (value.negative ? "-" : "") + std::to_string(value.magnitude));
  }
}

std::size_t Store::add(const void* const* columns, const float* priority) {
  if (priority != nullptr && !(std::isfinite(*priority) && *priority >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "a priority must be finite and >= 0, not " +
                                                 std::to_string(*priority) + "; nothing was added");
  }
  if (checked_) [[unlikely]]
    check_row(columns);
  std::int64_t id = 0;
  Share share;
  if (buffer_->limiter().active()) share = buffer_->take_share(Want::kAdd, 1);
  buffer_->add(1, reinterpret_cast<const std::byte* const*>(columns), priority, &id);
  share.keep();
  return static_cast<std::size_t>(id);
}

void Store::sample(std::size_t n, void* const* columns, std::size_t step, std::size_t* ids,
                   float* weights, float beta) {
  check_transitions();
  detail::check_batch_size(n);
  if (!(std::isfinite(beta) && beta >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "beta must be a finite number >= 0");
  }
  Share share;
  if (buffer_->limiter().active()) share = buffer_->take_share(Want::kDraw, n);
  buffer_->sample({n, reinterpret_cast<std::byte* const*>(columns), as_signed(ids), weights, step},
                  beta);
  share.keep();
}

std::size_t Store::get(std::span<const std::size_t> ids, void* const* columns,
                       std::size_t step) const {
  return buffer_->get(as_signed(ids), reinterpret_cast<std::byte* const*>(columns), nullptr, step);
}

std::size_t Store::update_priorities(std::span<const std::size_t> ids,
                                     std::span<const float> priorities) {
  (void)priorities_of(*buffer_);
  return buffer_->update(as_signed(ids), priorities).applied;
}

// The words of many rows are asked for before the first of them is waited for.
void Store::priorities(std::span<const std::size_t> ids, float* priorities,
                       std::size_t step) const {
  constexpr std::size_t kChunk = 64;
  const Priorities& words = priorities_of(*buffer_);
  const std::atomic<std::uint64_t>* memory = buffer_->ring().segment->priorities();
  const std::uint64_t capacity = buffer_->capacity();
  auto* out = reinterpret_cast<std::byte*>(priorities);
  std::uint64_t slots[kChunk];
  for (std::size_t from = 0; from < ids.size(); from += kChunk) {
    const std::span<const std::size_t> some =
        ids.subspan(from, std::min(kChunk, ids.size() - from));
    for (std::size_t i = 0; i < some.size(); ++i) {
      slots[i] = some[i] % capacity;
      os::prefetch_read(memory + slots[i]);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      const PriorityWord word = words.of(slots[i]);
      const bool own = word.lap == some[i] / capacity + 1;
      const float raw = own ? word.raw : std::numeric_limits<float>::quiet_NaN();
      std::memcpy(out + (from + i) * step, &raw, sizeof(raw));
    }
  }
}

bool Store::begin_read(std::size_t id, const void** columns) const {
  const Rows& rows = buffer_->ring().rows;
  if (!end_read(id)) return false;
  const std::size_t slot = id % rows.capacity();
  for (std::size_t c = 0; c < rows.columns(); ++c) {
    columns[c] = rows.place(c).in_arena ? unpacked(rows, c, slot) : rows.cell(c, slot);
  }
  return true;
}

bool Store::end_read(std::size_t id) const {
  return buffer_->ring().holds(static_cast<std::int64_t>(id));
}

std::size_t Store::latest(std::size_t n, std::size_t* ids) const {
  return buffer_->latest(n, as_signed(ids));
}
std::size_t Store::size() const { return buffer_->size(); }
std::size_t Store::capacity() const { return buffer_->capacity(); }
bool Store::is_full() const { return buffer_->is_full(); }
void Store::clear() { buffer_->clear(); }

CheckpointResult Store::checkpoint(const std::string& path) const {
  return write_checkpoint(buffer_->ring(), path, buffer_->room());
}

Stats Store::stats() const { return buffer_->stats(); }

}  // namespace replay_buffer
