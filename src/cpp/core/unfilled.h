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
#include <vector>

#include "os/process.h"
#include "os/thread_lock.h"

namespace replay_buffer {

// A block that has room left, by its claim.
struct Room {
  std::uint64_t claim;
  std::uint64_t open;  // 1: its writer had it open when a checkpoint was made, and goes on there
};

class Unfilled {
 public:
  static constexpr std::size_t kMost = 64;

  // The last writer in a block had so many streams.
  void put(const Room& room, std::size_t streams) {
    const std::lock_guard guard(lock_);
    begin();
    if (size_ == blocks_.size()) {
      std::move(blocks_.begin() + 1, blocks_.end(), blocks_.begin());  // the oldest
      --size_;
    }
    blocks_[size_++] = {room, streams};
  }

  // What is known of now, the latest last.
  std::vector<Room> all() {
    const std::lock_guard guard(lock_);
    begin();
    std::vector<Room> all(size_);
    for (std::size_t i = 0; i < size_; ++i) all[i] = blocks_[i].room;
    return all;
  }

  // The latest block for a writer of so many streams. Rows of the writer before point to where its
  // next step would have been, one for each of its streams: there the first rows of the new one
  // must be, so that it cannot have fewer. Blocks that were open in a checkpoint go first to
  // writers of as many streams, which stand for those that had them.
  std::optional<Room> take(std::size_t streams) {
    const std::lock_guard guard(lock_);
    begin();
    const std::optional<Room> same =
        take_if([&](const Left& left) { return left.room.open != 0 && left.streams == streams; });
    return same ? same : take_if([&](const Left& left) { return left.streams <= streams; });
  }

 private:
  struct Left {
    Room room{};
    std::size_t streams = 0;
  };

  template <class Wanted>
  std::optional<Room> take_if(const Wanted& wanted) {
    for (std::size_t i = size_; i-- > 0;) {
      if (!wanted(blocks_[i])) continue;
      const Room room = blocks_[i].room;
      std::move(blocks_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                blocks_.begin() + static_cast<std::ptrdiff_t>(size_),
                blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      --size_;
      return room;
    }
    return {};
  }

  // In the child of a fork: another thread may have been in the middle of a change.
  void begin() {
    if (generation_ != os::fork_generation()) size_ = 0;
    generation_ = os::fork_generation();
  }

  os::SpinLock lock_;  // protects what follows
  std::uint64_t generation_ = os::fork_generation();
  std::size_t size_ = 0;
  std::array<Left, kMost> blocks_;
};

}  // namespace replay_buffer
