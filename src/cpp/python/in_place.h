// Binds rows that are read where they lie: _core.InPlace.
#pragma once

#include <nanobind/nanobind.h>

#include "python/handle.h"

namespace replay_buffer::python {

void bind_in_place(nanobind::module_& m, nanobind::class_<Handle>& handle);

}  // namespace replay_buffer::python
