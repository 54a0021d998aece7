// Verify: whether everything in a segment that has to hold does hold.
//
// Nothing is changed, so a segment opened for reading will do.
//
// Thread safety: may be called at any time. What looks wrong is looked at again for some tens of
// milliseconds, and reported when it stays exactly as it is. So writers and learners at work are
// not reported; but one that was stopped in the middle of a call is, and so is what a dead one left
// and nobody has mended yet.
#pragma once

#include <string>
#include <vector>

#include "core/ring.h"
#include "segment/owners.h"

namespace replay_buffer {

// One sentence for each violation, at most 100; nothing when all is well.
std::vector<std::string> verify(const Ring& ring, const Owners& owners);

}  // namespace replay_buffer
