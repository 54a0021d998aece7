// The newest rows of the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ring.h"

namespace replay_buffer {

struct Recent {
  std::size_t slot;
  std::uint32_t lap;
};

// The newest n committed rows (all when there are fewer), newest first: with one writer the exact
// order of writing, with several to within their open blocks. Looks at n rows when that many are of
// the last lap, else at all of them.
std::vector<Recent> newest_rows(const Ring& ring, std::size_t n);

}  // namespace replay_buffer
