// Recovery: mending what a process left when it was killed.
//
// Everything here computes what should be there from what is certain (row words and priority
// words), and may be done again, by anybody, at any time: a process killed while mending leaves
// nothing that the next one does not mend.
//
// Thread safety: all methods may be called by any thread or process at any time, except recover().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/ring.h"
#include "segment/owners.h"

namespace replay_buffer {

class Recovery final : public Reaper {
 public:
  // Both must outlive it.
  Recovery(const Ring& ring, const Owners& owners) : ring_(ring), owners_(owners) {}

  // A block whose owner is dead: rows being written and rows of eras past are dropped, the others
  // counted, priorities and their sums follow; then it is sealed.
  bool reap(std::size_t block, std::uint64_t seen, Identity me) const override;

  // Takes a block that nobody writes to, mends it and gives it back. False when somebody writes to
  // it, who mends it after the seal: then only the priorities of rows of eras past are taken away.
  bool alter(std::size_t block, Identity me) const;

  void renew(std::size_t block, std::uint32_t lap) const override;
  void renew_sealed(std::size_t block, Identity me) const override;
  std::string holders() const override;

  // Everything that dead owners left: their blocks, and what they were changing.
  void mend_all(Identity me) const;
  // Only what they were changing: a writer comes by their blocks, but nobody by a priority. Cheap
  // when there is nothing.
  void mend_changes(Identity me) const;
  // All counts and all sums.
  void mend_sums(Identity me) const;

  // After a power cut, of which no process is left: every row is looked at, and kept if its
  // checksum holds. Nothing else in the segment is believed that the rows do not bear out, but for
  // what they cannot tell: the era, alpha, counters. REQUIRES: a durable segment that nobody else
  // has open.
  void recover() const;

 private:
  void mend_block(std::size_t block, std::uint32_t lap) const;
  void drop_old_priorities(std::size_t block) const;
  void recount(std::size_t block, std::uint32_t lap) const;
  std::uint32_t keep_sound_rows(std::size_t block) const;
  void settle_counters(std::uint64_t least_head) const;
  void settle_block(std::size_t block, std::uint32_t newest) const;
  void settle_priority(std::size_t slot) const;

  const Ring& ring_;
  const Owners& owners_;
};

}  // namespace replay_buffer
