// The values of a call that writes rows: where the bytes of every column lie.
#pragma once

#include <cstddef>
#include <vector>

#include "python/handle.h"

namespace replay_buffer::python {

// Where the values of a call lie: for each column its bytes; and the objects these belong to, where
// they come out of dicts. Arguments themselves are kept alive by the caller.
struct Sources {
  const std::byte* columns[kMaxColumns];
  Held held;
};

// Finds the bytes of every column of a field; read(value, type) gives those of one, or null. False,
// with an exception when a key of a dict raised one.
template <class Read>
bool read_field(const Local& local, const Field& field, PyObject* value, Sources& sources,
                const Read& read) {
  if (field.column >= 0) {
    const auto c = static_cast<std::size_t>(field.column);
    return (sources.columns[c] = read(value, local.types[c])) != nullptr;
  }
  if (!PyDict_Check(value) ||
      PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(field.children.size())) {
    return false;
  }
  for (const Field& child : field.children) {
    PyObject* inner = PyDict_GetItemWithError(value, child.key);
    if (inner == nullptr) return false;
    if (child.column >= 0) sources.held.add(inner);
    Py_INCREF(inner);  // a dict, too, has to outlive what its keys do
    const bool fits = read_field(local, child, inner, sources, read);
    Py_DECREF(inner);
    if (!fits) return false;
  }
  return true;
}

// The same for all fields of a call.
template <class Read>
bool read_fields(const Local& local, PyObject* const* values, Sources& sources, const Read& read) {
  for (const Field& field : local.fields) {
    if (!read_field(local, field, *values++, sources, read)) return false;
  }
  return true;
}

// What a call says besides its values; null where it does not.
struct Options {
  PyObject* priority = nullptr;
  PyObject* timeout = nullptr;
  PyObject* final_obs = nullptr;  // of writers of steps
};

// The values of a call by field, and its options; false when a field is left open or a keyword is
// not one of them. Keywords that Python code writes out are interned, so comparing pointers finds
// them.
bool values_by_field(const Local& local, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                     PyObject** values, Options& options);

// The priorities of n rows; false when there are none to be had as they are, or one is not allowed.
bool read_priorities(PyObject* given, npy_intp n, std::vector<float>& raws);

}  // namespace replay_buffer::python
