// Room that is left in blocks: what a checkpoint says of it, so that writers of the restored buffer
// go on in the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ring.h"
#include "core/unfilled.h"
#include "segment/owners.h"

namespace replay_buffer {

// The blocks that live writers have open, the oldest claim first.
std::vector<Room> open_room(const Ring& ring, const Owners& owners);

// How many streams a new writer needs to go on in the block claimed at `sequence`: as many as the
// writer before had. Its last rows point to where their next steps would have been; there the first
// rows of the new one must be. REQUIRES: rows are steps, and nobody writes to the block.
std::size_t streams_before(const Ring& ring, std::uint64_t sequence);

}  // namespace replay_buffer
