// Binds open segments, _core.Local, and what is made of them.
#pragma once

#include <nanobind/nanobind.h>

#include "python/handle.h"

namespace replay_buffer::python {

// (slot, pid, alive, pid of this namespace, rows it added, what it waits for) of everybody who
// writes, or was when it died.
nanobind::list owners_of(const Local& local);

void bind_local(nanobind::module_& m);
// Its parts.
void bind_lifecycle(nanobind::module_& m, nanobind::class_<Local>& local);
void bind_watch(nanobind::module_& m, nanobind::class_<Local>& local);
void bind_in_place(nanobind::module_& m, nanobind::class_<Local>& local);
void bind_view(nanobind::module_& m, nanobind::class_<Local>& local);
void bind_writer(nanobind::module_& m, nanobind::class_<Local>& local);

}  // namespace replay_buffer::python
