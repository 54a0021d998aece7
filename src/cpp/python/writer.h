// Binds writers of steps: _core.Writer.
#pragma once

#include <nanobind/nanobind.h>

namespace replay_buffer::python {

void bind_writer(nanobind::module_& m);

}  // namespace replay_buffer::python
