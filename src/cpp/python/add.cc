// add and add_batch: values that are already what the columns store go straight into the ring.
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"
#include "python/sources.h"

namespace replay_buffer::python {
namespace {

using RaggedInputs = std::vector<std::unique_ptr<RaggedInput>>;

// The values of n rows of a column: an array, or where the length varies {"values", "offsets"}.
const std::byte* read_batch(PyObject* value, const ColumnType& type, npy_intp& n, Sources& sources,
                            RaggedInputs& ragged) {
  if (type.item == 0) return read_values(value, type, n);
  if (!PyDict_CheckExact(value) || PyDict_GET_SIZE(value) != 2) return nullptr;
  PyObject* values = PyDict_GetItemWithError(value, names.values);
  if (values == nullptr) return nullptr;
  sources.held.add(values);
  PyObject* offsets = PyDict_GetItemWithError(value, names.offsets);
  if (offsets == nullptr) return nullptr;
  sources.held.add(offsets);
  auto input = std::make_unique<RaggedInput>();
  if (!input->read(values, offsets, type, n)) return nullptr;
  ragged.push_back(std::move(input));
  return ragged.back()->place();
}

bool all_positional(const Handle& handle, Py_ssize_t nargs, PyObject* kwnames) {
  return kwnames == nullptr && handle.buffer && !handle.steps &&
         static_cast<std::size_t>(nargs) == handle.fields.size();
}

// Rows that are many, or large, or come while another thread is adding.
[[gnu::noinline]] void write_slowly(const Handle& handle, std::size_t n, const Sources& sources,
                                    const float* raws, std::int64_t* ids) {
  const std::shared_ptr<Buffer> keep = handle.buffer;
  const CoreCall call(handle, n * handle.row_work);
  keep->add(n, sources.columns, raws, ids);
}

void write_rows(const Handle& handle, std::size_t n, const Sources& sources, const float* raws,
                std::int64_t* ids) {
  if (n * handle.row_work > kAtOnce || !handle.buffer->try_add(n, sources.columns, raws, ids)) {
    write_slowly(handle, n, sources, raws, ids);
  }
}

// False with an exception set. REQUIRES: the handle has a buffer.
bool add_rows(const Handle& handle, std::size_t n, const Sources& sources, const float* raws,
              std::int64_t* ids, PyObject* timeout) {
  if (timeout == nullptr && !handle.buffer->limiter().active()) [[likely]] {
    write_rows(handle, n, sources, raws, ids);
    return true;
  }
  const std::shared_ptr<Buffer> keep = handle.buffer;
  Share share;
  if (!take_share(handle, Want::kAdd, n, timeout, share)) return false;
  write_rows(handle, n, sources, raws, ids);
  share.keep();
  return true;
}

}  // namespace

PyObject* py_add(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try {
  const Handle& handle = handle_of(self);
  PyObject* by_field[kMaxColumns];
  Options options;
  const bool positional = all_positional(handle, nargs, kwnames);
  if (positional ||
      (!handle.steps && values_by_field(handle, args, nargs, kwnames, by_field, options))) {
    PyObject* const priority = options.priority;
    PyObject* const* values = positional ? args : by_field;
    Sources sources;
    Scratch scratch;
    const auto read_one = [&](PyObject* value, const ColumnType& type) {
      return read_value(value, type, scratch);
    };
    float raw = 0;
    bool good = true;
    if (priority != nullptr) {
      good = PyFloat_Check(priority) != 0;
      if (good) raw = static_cast<float>(PyFloat_AS_DOUBLE(priority));
      good = good && raw >= 0 && std::isfinite(raw);
    }
    // Looking up the keys of a dict can run Python code, which may close the buffer.
    if (good && read_fields(handle, values, sources, read_one) && handle.buffer) {
      std::int64_t id = 0;
      const float* given = priority != nullptr ? &raw : nullptr;
      if (!add_rows(handle, 1, sources, given, &id, options.timeout)) return nullptr;
      return PyLong_FromLongLong(id);
    }
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  return call_slow(self, names.slow_add, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

PyObject* py_add_batch(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                       PyObject* kwnames) try {
  const Handle& handle = handle_of(self);
  PyObject* values[kMaxColumns];
  Options options;
  if (!handle.steps && values_by_field(handle, args, nargs, kwnames, values, options)) {
    PyObject* const priority = options.priority;
    Sources sources;
    RaggedInputs ragged;
    npy_intp n = -1;
    bool good = read_fields(handle, values, sources, [&](PyObject* value, const ColumnType& type) {
      return read_batch(value, type, n, sources, ragged);
    });
    std::vector<float> raws;
    good = good && n > 0 && (priority == nullptr || read_priorities(priority, n, raws));
    if (good && handle.buffer) {
      PyObject* ids = PyArray_SimpleNew(1, &n, NPY_INT64);
      if (ids == nullptr) return nullptr;
      auto* out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids)));
      try {
        if (!add_rows(handle, static_cast<std::size_t>(n), sources,
                      raws.empty() ? nullptr : raws.data(), out, options.timeout)) {
          Py_CLEAR(ids);
        }
      } catch (...) {
        Py_DECREF(ids);
        throw;
      }
      return ids;
    }
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  return call_slow(self, names.slow_add_batch, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

}  // namespace replay_buffer::python
