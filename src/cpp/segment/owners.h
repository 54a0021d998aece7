// Owners: who writes to a segment, and whether they live.
//
// Every handle that writes takes a slot of the owner table and names itself in the blocks it
// claims. Whether it lives is asked of the kernel: of its pid and start time where those mean
// something (the same pid namespace of the same boot), else of a byte lock on the segment's file
// that goes with its open file description. A process that is stopped lives.
//
// Thread safety: all methods may be called by any thread or process at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "os/process.h"
#include "segment/segment.h"

namespace replay_buffer {

// A slot of the owner table at one time: the epoch is of the slot, in 16 bits.
struct Identity {
  std::uint16_t owner = 0;
  std::uint16_t epoch = 0;

  friend bool operator==(const Identity&, const Identity&) = default;
};

class Owners {
 public:
  // The segment must outlive it.
  explicit Owners(const Segment& segment) : segment_(segment) {}

  // Takes a slot. When a dead owner had it who left a call under way, the new owner has that call
  // under way, until it has mended what the dead one left and says finish_inherited(). Throws kBusy
  // when all slots are taken by live handles.
  Identity join() const;
  bool inherited(Identity me) const;
  void finish_inherited(Identity me) const;

  // Gives the slot back. REQUIRES: it holds no block.
  void leave(Identity me) const;

  // Whether the handle is gone for good, and writes no more.
  bool dead(Identity who) const;

  // Those who are dead and did not leave, as far as can be told now.
  std::vector<Identity> all_dead() const;
  // Those who are alive, and the owners of slots, for messages: "process 12 (this process), 14 (3
  // times)"; "" when there is none.
  std::string living() const;
  std::string names_of(const std::vector<std::size_t>& slots) const;
  // Dead ones among those that were changing priorities: cheap when there are none.
  std::vector<Identity> dead_in_a_change() const;

  Owner& slot(Identity who) const { return segment_.owners()[who.owner]; }

  // What `who`, who is dead, left was mended: strikes it out of the table where that can be done.
  void bury(Identity who) const;

  static os::ProcessIdentity process_of(const Owner& owner);
  static std::uint32_t epoch_of(std::uint64_t activity) {
    return static_cast<std::uint32_t>(activity >> 32);
  }
  static std::uint32_t calls_of(std::uint64_t activity) {
    return static_cast<std::uint32_t>(activity);
  }

  // Of whoever has the slot now, or had it last.
  Identity identity_of(std::size_t slot) const;

 private:
  bool take(std::size_t slot) const;
  void give_up(std::size_t slot) const;

  const Segment& segment_;
};

// Says, for as long as it lives, that its owner is changing priorities or clearing.
class Change {
 public:
  explicit Change(Owner& owner) : activity_(owner.activity) {
    activity_.fetch_add(1, std::memory_order_relaxed);
  }
  // Pairs with the acquire in dead_in_a_change(): who finds no call under way sees what they did.
  ~Change() { activity_.fetch_sub(1, std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<std::uint64_t>& activity_;
};

}  // namespace replay_buffer
