// Four: four floats in the processor's own vector. SSE2, which every x86-64 has; NEON, which every
// arm64 has; PlainFour elsewhere, and under the thread sanitizer, because it loads atomics.
//
// All of them have the members of PlainFour. Sums and comparisons give the same bits everywhere.
// Products may differ in the last bit, because a compiler may fuse them with sums.
#pragma once

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#include "core/simd_sse2.h"
#elif defined(__aarch64__) && !defined(__SANITIZE_THREAD__)
#include "core/simd_neon.h"
#else
#include "core/simd_plain.h"
namespace replay_buffer {
using Four = PlainFour;
}
#endif
