// add and add_batch: values that are already what the columns store go straight into the ring.
#include <cmath>
#include <cstdint>

#include "python/errors.h"
#include "python/handle.h"

namespace replay_buffer::python {
namespace {

// Where the values of a call lie: for each column its bytes, and the objects they belong to.
struct Sources {
  const std::byte* columns[kMaxColumns];
  Held held;
};

bool read_field(const Handle& handle, const Field& field, PyObject* value, Sources& sources,
                Scratch& scratch) {
  if (field.column >= 0) {
    const auto c = static_cast<std::size_t>(field.column);
    sources.held.add(value);
    return (sources.columns[c] = read_value(value, handle.types[c], scratch)) != nullptr;
  }
  if (!PyDict_Check(value) ||
      PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(field.children.size())) {
    return false;
  }
  for (const Field& child : field.children) {
    PyObject* inner = PyDict_GetItemWithError(value, child.key);
    if (inner == nullptr || !read_field(handle, child, inner, sources, scratch)) return false;
  }
  return true;
}

bool read_row(const Handle& handle, PyObject* const* values, Sources& sources, Scratch& scratch) {
  for (const Field& field : handle.fields) {
    if (!read_field(handle, field, *values++, sources, scratch)) return false;
  }
  return true;
}

bool read_rows(const Handle& handle, const Field& field, PyObject* value, Sources& sources,
               npy_intp& n) {
  if (field.column >= 0) {
    const auto c = static_cast<std::size_t>(field.column);
    sources.held.add(value);
    return (sources.columns[c] = read_values(value, handle.types[c], n)) != nullptr;
  }
  if (!PyDict_Check(value) ||
      PyDict_GET_SIZE(value) != static_cast<Py_ssize_t>(field.children.size())) {
    return false;
  }
  for (const Field& child : field.children) {
    PyObject* inner = PyDict_GetItemWithError(value, child.key);
    if (inner == nullptr || !read_rows(handle, child, inner, sources, n)) return false;
  }
  return true;
}

// Whether the call has one positional value per field and no keyword but, perhaps, priority.
bool plain_call(const Handle& handle, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                PyObject*& priority) {
  priority = nullptr;
  if (!handle.buffer || nargs != static_cast<Py_ssize_t>(handle.fields.size())) return false;
  if (kwnames == nullptr) return true;
  if (PyTuple_GET_SIZE(kwnames) != 1 || PyTuple_GET_ITEM(kwnames, 0) != names.priority)
    return false;
  priority = args[nargs];
  return handle.weighted();
}

void add_rows(const Handle& handle, std::size_t n, const Sources& sources, const float* raws,
              std::int64_t* ids) {
  const bool large = n * handle.buffer->layout().row_bytes > kReleaseBytes;
  if (!large && handle.buffer->try_add(n, sources.columns, raws, ids)) return;
  // A long copy, or another thread is adding: let the other Python threads run.
  const std::shared_ptr<Buffer> keep = handle.buffer;
  const MaybeRelease released(true, &sources.held);
  keep->add(n, sources.columns, raws, ids);
}

}  // namespace

PyObject* py_add(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try {
  const Handle& handle = handle_of(self);
  PyObject* priority = nullptr;
  if (plain_call(handle, args, nargs, kwnames, priority)) {
    Sources sources;
    Scratch scratch;
    float raw = 0;
    bool good = true;
    if (priority != nullptr) {
      good = PyFloat_Check(priority) != 0;
      if (good) raw = static_cast<float>(PyFloat_AS_DOUBLE(priority));
      good = good && raw >= 0 && std::isfinite(raw);
    }
    if (good && read_row(handle, args, sources, scratch)) {
      std::int64_t id = 0;
      add_rows(handle, 1, sources, priority != nullptr ? &raw : nullptr, &id);
      return PyLong_FromLongLong(id);
    }
  }
  return call_slow(self, names.slow_add, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

PyObject* py_add_batch(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames) try {
  const Handle& handle = handle_of(self);
  PyObject* priority = nullptr;
  if (plain_call(handle, args, nargs, kwnames, priority) && priority == nullptr) {
    Sources sources;
    npy_intp n = -1;
    bool good = true;
    for (std::size_t i = 0; good && i < handle.fields.size(); ++i) {
      good = read_rows(handle, handle.fields[i], args[i], sources, n);
    }
    if (good && n > 0) {
      PyObject* ids = PyArray_SimpleNew(1, &n, NPY_INT64);
      if (ids == nullptr) return nullptr;
      auto* out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids)));
      try {
        add_rows(handle, static_cast<std::size_t>(n), sources, nullptr, out);
      } catch (...) {
        Py_DECREF(ids);
        throw;
      }
      return ids;
    }
  }
  return call_slow(self, names.slow_add_batch, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

}  // namespace replay_buffer::python
