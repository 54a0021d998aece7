// A writer: fills blocks of the ring, row after row.
//
// Thread safety: none; the holder serialises calls. Several writers may write at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ring.h"

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
  // row ids. Every row is published when the call returns.
  void append(std::size_t n, const std::byte* const* columns, const float* raws, std::int64_t* ids);

  // Goes on in the newest block of the ring, if it has room left and nobody holds it.
  void resume();

  // Seals the open block. The writer can go on; it then claims another.
  void close();

  // For the copy of a writer in a forked child, which may have been in the middle of a row. In
  // memory of its own: counts the rows of the open block anew and seals it.
  void abandon();
  // In shared memory: the block is the parent's. The writer goes on as `me`.
  void become(Identity me) {
    open_ = false;
    me_ = me;
  }

 private:
  void claim();
  void write_run(std::size_t n, const std::byte* const* columns, std::size_t from,
                 const float* raws, std::int64_t* ids);

  const Ring& ring_;
  Identity me_;
  const Reaper* reaper_;
  bool open_ = false;
  Claim claim_;
  std::size_t cursor_ = 0;  // rows of the claim already written
  std::uint64_t era_ = 0;
};

}  // namespace replay_buffer
