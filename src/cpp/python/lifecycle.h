// Making, opening and removing the buffer behind a handle.
#pragma once

#include <nanobind/nanobind.h>

#include "python/handle.h"

namespace replay_buffer::python {

void bind_lifecycle(nanobind::module_& m, nanobind::class_<Handle>& handle);

}  // namespace replay_buffer::python
