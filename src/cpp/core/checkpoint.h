// Checkpoints: a buffer saved in a directory while others write to it, and made again from there.
//
// What is saved: every row that was acknowledged before the call began and not overwritten during
// it, whole, with its id and its own priority; alpha, the generator, counters, what a queue has
// given out, and the balance of the rate limiter. Rows added meanwhile may be in it or not. A
// clear() meanwhile is in it altogether or not at all.
//
// A checkpoint to the path of an earlier one of the same buffer writes what has changed since.
// Whatever happens, kill -9 and power cuts included, the path holds the old checkpoint or the new
// one. docs/internals/checkpoint.md describes the files.
//
// Thread safety: all functions may be called by any thread at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ring.h"
#include "core/unfilled.h"
#include "replay_buffer/schema.h"
#include "replay_buffer/stats.h"

namespace replay_buffer {

// Saves the ring, which may be open for reading only. `path` is a directory: one that is not there
// and whose parent is, an empty one, or a checkpoint. Throws kBusy when another checkpoint to the
// path is under way, kInvalidArgument when the path holds something else, kIncompatible when it
// holds a checkpoint of a newer format, kOutOfSpace. `room` is what the caller knows of blocks that
// writers go on in (Buffer::room); those that are open are found.
CheckpointResult write_checkpoint(const Ring& ring, const std::string& path,
                                  std::span<const Room> room = {});

// What kind of buffer a checkpoint holds. Throws kNotFound, kCorrupt, kIncompatible.
struct CheckpointKind {
  BufferConfig config;
  Schema schema;
};
CheckpointKind checkpoint_kind(const std::string& path);

// A new segment with what a checkpoint holds; it appears at its location when it is complete. The
// balance of the rate limiter comes with it only when `limiter` says so. `room` gets what
// Buffer::resume() needs. Throws kNotFound, kCorrupt, kIncompatible, and what Segment::create()
// throws.
std::unique_ptr<Segment> restore_checkpoint(const std::string& path, const Location& location,
                                            bool limiter, std::vector<Room>* room = nullptr,
                                            Existing existing = Existing::kRefuse);

}  // namespace replay_buffer
