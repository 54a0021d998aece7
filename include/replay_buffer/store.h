// The untyped buffer behind the typed faces of buffer.h: rows of columns, addressed by pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "replay_buffer/config.h"
#include "replay_buffer/schema.h"
#include "replay_buffer/stats.h"

namespace replay_buffer {

class Buffer;
class StoreView;
class StoreWriter;

// Row ids are below 2^56, given once and never again.
//
// A column whose length varies is given as a Ragged and taken as Pieces, whose address stands in
// the place of the address of its values.
//
// Thread safety: every method may be called by any number of threads at once. Failures are thrown
// as replay_buffer::Error.
class Store {
 public:
  Store(const BufferConfig& config, const Schema& schema);
  ~Store();

  // The same at a location ("shm:name", "file:path", "heap:") where other processes can open it.
  // Throws kOutOfSpace, and kAlreadyExists where there is one, unless `overwrite` has it replaced.
  static Store create(const std::string& location, const BufferConfig& config, const Schema& schema,
                      bool overwrite);
  // One that exists, or where there is none a new one: of processes that call this at once one
  // creates it. Throws what the two throw, and kInvalidArgument when the one that exists was made
  // with another config. Its seed and alpha are its own.
  static Store open_or_create(const std::string& location, const BufferConfig& config,
                              const Schema& schema);
  // One that exists, with the config it was made with. Throws kNotFound, kCorrupt, kIncompatible,
  // kPermissionDenied, and kSchemaMismatch unless its rows are such and have the columns `schema`.
  static Store open(const std::string& location, const Schema& schema, Storage storage,
                    bool readonly);
  // A new one at a location, from what checkpoint() saved. Throws what create() and open() throw.
  static Store restore(const std::string& path, const std::string& location, const Schema& schema,
                       Storage storage, bool overwrite);
  // The config of the buffer that a checkpoint holds. Throws kNotFound, kCorrupt, kIncompatible.
  static BufferConfig saved_config(const std::string& path);
  // Removes the name; the buffer lives on where it is open. Throws kNotFound.
  static void unlink(const std::string& location);

  BufferConfig config() const;
  // The importance-weight exponent of the next batch: the config's, or where its schedule is.
  float beta() const;

  Store(Store&& other) noexcept;
  Store& operator=(Store&& other) noexcept;

  // Transitions, not steps; see StoreWriter and StoreView for those.
  //
  // Adds one row; columns[c] points at the bytes of column c. `priority`, when not null, must be
  // finite and >= 0. Returns the row id. Waits where the rate limiter says so, as sample() does.
  // Throws kSchemaMismatch for a value that is not below its column's limit, or is too long.
  std::size_t add(const void* const* columns, const float* priority);

  // Draws n rows. Row i of column c goes to columns[c] + i * step. `weights` may be null. Throws
  // kNotEnoughRows when there is nothing to draw from, kInvalidArgument for no row or 2^31 of them,
  // kOutOfSpace.
  void sample(std::size_t n, void* const* columns, std::size_t step, std::size_t* ids,
              float* weights, float beta);

  // Copies rows by id, to where sample() puts them. Returns how many of them are gone; their places
  // hold nothing of use.
  std::size_t get(std::span<const std::size_t> ids, void* const* columns, std::size_t step) const;

  // Sets raw priorities. All or nothing: throws kInvalidArgument, before any write, when a value is
  // NaN, infinite or negative, an id was never given to a row, the lengths differ, or the strategy
  // keeps no priorities. Rows that are gone are skipped. Returns how many were updated.
  std::size_t update_priorities(std::span<const std::size_t> ids,
                                std::span<const float> priorities);
  // The raw priority of row ids[i], NaN when the row is gone, goes to `priorities` + i * step
  // bytes.
  void priorities(std::span<const std::size_t> ids, float* priorities, std::size_t step) const;

  // A row in place. begin_read() gives the addresses of its columns, or false when the row is gone;
  // what was read there is whole only if end_read() with the same id then returns true. A value
  // that is compressed is given unpacked, in memory that this thread's next begin_read() uses
  // again. REQUIRES: no column's length varies.
  bool begin_read(std::size_t id, const void** columns) const;
  bool end_read(std::size_t id) const;

  // Ids of the newest n rows, oldest first. Returns how many there are.
  std::size_t latest(std::size_t n, std::size_t* ids) const;

  std::size_t size() const;
  std::size_t capacity() const;
  // Whether rows that are added now take the room of others.
  bool is_full() const;
  void clear();

  // Saves all rows in a directory, while others write: a new one, or one with an earlier checkpoint
  // of this buffer, of which it then replaces what has changed. Throws kBusy, kOutOfSpace, and
  // kInvalidArgument when something else is there.
  CheckpointResult checkpoint(const std::string& path) const;

  Stats stats() const;

 private:
  friend class StoreView;
  friend class StoreWriter;

  explicit Store(std::unique_ptr<Buffer> buffer);
  void check_transitions() const;
  void check_row(const void* const* columns) const;

  std::unique_ptr<Buffer> buffer_;
  bool steps_;
  bool checked_;                      // rows need a look before they are added
  std::vector<std::size_t> limited_;  // columns
};

}  // namespace replay_buffer
