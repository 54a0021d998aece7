// Memory for the large arrays of batches.
//
// A fresh array of a megabyte costs more in page faults than in copying: its memory is given back
// to the system when the array goes, and taken anew for the next batch. Here it is kept instead, up
// to kMostIdle bytes, and handed to the next array of that size.
//
// All access is with the GIL.
#pragma once

#include <cstddef>

#include "python/numpy_api.h"

namespace replay_buffer::python {

inline constexpr std::size_t kPooledBytes = 128 * 1024;  // arrays smaller than this are NumPy's
inline constexpr std::size_t kMostIdle = std::size_t{256} << 20;

// A new uninitialised array of `bytes` bytes in pooled memory; null with an exception set.
PyObject* new_pooled_array(int dimensions, const npy_intp* shape, int numpy_type,
                           std::size_t bytes);

}  // namespace replay_buffer::python
