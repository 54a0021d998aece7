// A writer: fills blocks of the ring, row after row.
//
// Thread safety: none; the holder serialises calls. Several writers may write at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/ring.h"
#include "core/unfilled.h"

namespace replay_buffer {

class Writer {
 public:
  // The ring and the reaper must outlive the writer.
  Writer(const Ring& ring, Identity me, const Reaper* reaper = nullptr)
      : ring_(ring), me_(me), reaper_(reaper) {}
  ~Writer() { close(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Writes n rows. Row i of column c is at columns[c] + i * bytes(c). `raws`, when not null, holds
  // n raw priorities, each finite and >= 0 (checked by the caller). `ids`, when not null, gets the
  // row ids. `marks`, of steps, says what each row is in its stream; there a null column becomes
  // zero. Every row is published when the call returns.
  // Where values vary in size, a column whose length varies is a Ragged, and `packed` may hold the
  // rows packed already. Throws kSchemaMismatch, with nothing written, for a row that is too large.
  void append(std::size_t n, const std::byte* const* columns, const float* raws, std::int64_t* ids,
              const Mark* marks = nullptr, const Packed* packed = nullptr);

  // Rows of one chain lie in blocks that are linked. A writer begins another chain, with the next
  // number, when it was closed or the buffer cleared. begin() has a row ready to be written: what
  // chain() says is then true of the next row.
  void begin();
  std::uint64_t chain() const { return chain_; }

  // Goes on in the block that was claimed at `sequence`, as a chain of its own. False when it has
  // no room left or somebody else has it. REQUIRES: the writer holds no block.
  bool resume(const Room& room);
  // The claim of the open block, if it has room left: for somebody to resume() when this one is
  // closed.
  std::optional<std::uint64_t> unfilled() const {
    if (!open_ || cursor_ == claim_.rows) return {};
    return claim_.sequence;
  }

  // Seals the open block. The writer can go on; it then claims another.
  void close();

  // For the copy of a writer in a forked child: its block is the parent's, or was mended. It goes
  // on as `me`.
  void become(Identity me) {
    open_ = linked_ = false;
    me_ = me;
  }

 private:
  void claim();
  void seal();
  void forget_older_laps();
  template <bool kPacked>
  void write_run(std::size_t n, const std::byte* const* columns, std::size_t from,
                 const float* raws, std::int64_t* ids, const Mark* marks, const Packed* packed);
  void append_packed(std::size_t n, const std::byte* const* columns, const float* raws,
                     std::int64_t* ids, const Mark* marks, const Packed& packed);
  std::size_t fitting(std::size_t n, std::size_t from, const Packed& packed) const;
  std::uint32_t make_room(std::size_t row, std::uint32_t bytes);

  const Ring& ring_;
  Identity me_;
  const Reaper* reaper_;
  bool open_ = false;
  Claim claim_;
  std::size_t cursor_ = 0;  // rows of the claim already written
  std::uint32_t used_ = 0;  // bytes of the block's arena that these have
  std::size_t taken_ = 0;   // rows from the first on that have none of the bytes behind these
  std::uint64_t era_ = 0;
  std::uint64_t chain_ = 0;
  bool linked_ = false;  // the next claim goes on where claim_ ended
  bool first_ = true;    // no row of this chain is written yet
};

}  // namespace replay_buffer
