// Blocks that writers of steps gave back before they were full, for writers that come later.
//
// Without it a writer for each short episode would leave most of the ring empty: everyone claims a
// block of its own. Only known to the handle that wrote them; whoever goes on in one has to claim
// it again (Writer::resume), which fails when somebody else has it by now.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "os/process.h"
#include "os/thread_lock.h"

namespace replay_buffer {

class Unfilled {
 public:
  // The last writer in a block had so many streams.
  void put(std::uint64_t sequence, std::size_t streams) {
    const std::lock_guard guard(lock_);
    begin();
    if (size_ == blocks_.size()) {
      std::move(blocks_.begin() + 1, blocks_.end(), blocks_.begin());  // the oldest
      --size_;
    }
    blocks_[size_++] = {sequence, streams};
  }

  // The latest block for a writer of so many streams. Rows of the writer before point to where its
  // next step would have been, one for each of its streams: there the first rows of the new one
  // must be, so that it cannot have fewer.
  std::optional<std::uint64_t> take(std::size_t streams) {
    const std::lock_guard guard(lock_);
    begin();
    for (std::size_t i = size_; i-- > 0;) {
      if (blocks_[i].streams > streams) continue;
      const std::uint64_t sequence = blocks_[i].sequence;
      std::move(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                blocks_.begin() + static_cast<std::ptrdiff_t>(size_),
                blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      --size_;
      return sequence;
    }
    return {};
  }

 private:
  struct Left {
    std::uint64_t sequence = 0;
    std::size_t streams = 0;
  };

  // In the child of a fork: another thread may have been in the middle of a change.
  void begin() {
    if (generation_ != os::fork_generation()) size_ = 0;
    generation_ = os::fork_generation();
  }

  os::SpinLock lock_;  // protects what follows
  std::uint64_t generation_ = os::fork_generation();
  std::size_t size_ = 0;
  std::array<Left, 64> blocks_;
};

}  // namespace replay_buffer
