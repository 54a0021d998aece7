// A writer of steps: K streams, one step of each at a time.
//
// A call writes one row for each stream, and behind these, where an episode ended and its last
// observation came with it, one row for that: so every step has a successor, and none is of another
// episode. Rows carry the way to their neighbours (Link), and each stream's state is only here: who
// closes the writer, or dies, cuts the episodes that are open. Where the way is lost under an open
// writer, as by clear(), an episode goes on without its start: its rows keep their numbers, none is
// a first one, and the episode has no return.
//
// Thread safety: calls are serialised by a lock of this process. In the child of a fork the writer
// is an owner of its own, and loses its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "replay_buffer/store_writer.h"

namespace replay_buffer {

class StepWriter {
 public:
  // `observed` says of each column whether a final observation has it; `reward` is the column whose
  // sum is the return, -1: none. Throws kInvalidArgument.
  StepWriter(Buffer& buffer, std::size_t streams, Autoreset autoreset, std::vector<bool> observed,
             int reward);
  ~StepWriter();
  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;

  std::size_t streams() const { return streams_.size(); }

  // Steps that an append() would add to what learners can draw: streams whose next row is not a
  // last observation.
  std::size_t next_steps() const;

  // Of each stream, whether its next row is a last observation.
  std::vector<bool> ending() const;

  // Writes one step of each stream. Throws kInvalidArgument, with nothing written, when an episode
  // ended whose last observation is missing.
  void append(const StepBatch& batch);

  // Cuts the episode of a stream: its last row has no successor.
  void end(std::size_t stream);

  // Cuts all episodes and gives the block back. The writer can go on.
  void close();

 private:
  struct Stream {
    bool open = false;        // its last row has a successor yet to come
    bool ending = false;      // NextStep: that is the episode's last observation
    bool whole = false;       // its episode began in this chain
    bool linked = false;      // it has a last row in this chain
    std::uint64_t last = 0;   // where, counted in rows of the chain
    std::uint32_t steps = 0;  // of its episode
    double sum = 0;           // of its rewards
  };

  void rejoin();
  void resume();
  void begin_chain();
  void check(const StepBatch& batch) const;
  Mark mark(std::size_t stream, bool end, std::size_t extra, std::size_t extras,
            std::uint64_t flags);
  Mark final_mark(std::size_t stream, std::size_t extra, std::size_t extras);
  const std::byte* row_of(const std::byte* values, std::size_t column, std::size_t i,
                          Ragged& ragged) const;
  void write_step(const StepBatch& batch);
  void write(const StepBatch& batch, std::size_t from, std::size_t end, bool final);
  void take_back();
  void finish_episode(const Stream& stream) const;
  double reward_of(const StepBatch& batch, std::size_t stream) const;

  Buffer& buffer_;
  const Ring& ring_;
  Autoreset autoreset_;
  std::vector<bool> observed_;
  int reward_;
  mutable os::SpinLock lock_;  // protects what follows
  Writer writer_;
  std::uint64_t generation_;  // of forks
  std::uint64_t chain_ = 0;
  std::uint64_t position_ = 0;  // rows of the chain so far
  std::vector<Stream> streams_;
  std::vector<Mark> marks_;
  std::vector<std::uint8_t> ending_;  // as it was before a call
  std::vector<std::uint8_t> flags_;   // of the call's steps; read once: the caller's may change
};

}  // namespace replay_buffer
