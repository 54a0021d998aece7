// What the command line needs to look at segments from outside.
#pragma once

#include <nanobind/nanobind.h>

#include "python/handle.h"

namespace replay_buffer::python {

void bind_watch(nanobind::module_& m, nanobind::class_<Handle>& handle);

}  // namespace replay_buffer::python
