// Binds views: _core.View.
#pragma once

#include <nanobind/nanobind.h>

namespace replay_buffer::python {

void bind_view(nanobind::module_& m);

}  // namespace replay_buffer::python
