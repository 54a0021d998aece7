// What a call from Python waits for: its share of the rate limiter.
#pragma once

#include <cstddef>

#include "core/limiter.h"
#include "python/handle.h"

namespace replay_buffer::python {

// Takes the share of a call that draws or adds n rows, where there is a limiter. Waits without the
// GIL, for `timeout` seconds (null or None: as long as it takes, with a warning when that is long),
// serves signals meanwhile, and ends when the Local is closed. With `timed_elsewhere` a call with
// a timeout does not wait here. False with an exception set, or without one where it would have had
// to wait; true with the Local still open. REQUIRES: the caller keeps the buffer alive longer than
// the share.
bool take_share(const Local& local, Want want, std::size_t n, PyObject* timeout, Share& share,
                bool timed_elsewhere = false);

}  // namespace replay_buffer::python
