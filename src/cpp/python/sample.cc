// sample: a dict of fresh arrays, or the caller's own.
#include <cmath>
#include <cstdint>

#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"

namespace replay_buffer::python {
namespace {

struct Request {
  PyObject* batch_size = nullptr;
  PyObject* out = nullptr;
  PyObject* beta = nullptr;
  PyObject* timeout = nullptr;
};

// Takes the arguments apart; false when they are not what the fast path knows.
bool parse(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Request& request) {
  if (nargs > 1) return false;
  if (nargs == 1) request.batch_size = args[0];
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    PyObject* value = args[nargs + i];
    if (name == names.out) {
      request.out = value == Py_None ? nullptr : value;
    } else if (name == names.beta) {
      request.beta = value == Py_None ? nullptr : value;
    } else if (name == names.timeout) {
      request.timeout = value == Py_None ? nullptr : value;
    } else if (name == names.batch_size && request.batch_size == nullptr) {
      request.batch_size = value;
    } else {
      return false;
    }
  }
  return request.batch_size != nullptr && PyLong_CheckExact(request.batch_size);
}

// Fills `columns` with the caller's arrays; false when one is missing or does not fit.
bool own_columns(const Handle& handle, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns, Held& held) {
  if (!PyDict_Check(batch)) return false;
  for (const Field& field : fields) {
    PyObject* value = PyDict_GetItemWithError(batch, field.key);
    if (value == nullptr) return false;
    if (field.column >= 0) {
      const auto c = static_cast<std::size_t>(field.column);
      if (handle.types[c].item != 0) return false;  // no array fits every batch
      columns[c] = writable_values(value, handle.types[c], n);
      if (columns[c] == nullptr) return false;
      held.add(value);
    } else {
      Py_INCREF(value);  // it has to outlive what its keys do
      const bool fits = own_columns(handle, field.children, n, value, columns, held);
      Py_DECREF(value);
      if (!fits) return false;
    }
  }
  return true;
}

template <typename T>
T* extra_array(PyObject* batch, PyObject* key, int numpy_type, npy_intp n, bool fresh, Held& held) {
  if (fresh) {
    PyObject* array = PyArray_SimpleNew(1, &n, numpy_type);
    if (array == nullptr) return nullptr;
    const int status = PyDict_SetItem(batch, key, array);
    Py_DECREF(array);
    return status != 0 ? nullptr
                       : static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  }
  PyObject* array = PyDict_GetItemWithError(batch, key);
  if (array == nullptr) return nullptr;
  ColumnType type{};
  type.numpy_type = numpy_type;
  held.add(array);
  return reinterpret_cast<T*>(writable_values(array, type, n));
}

// A number that can be the exponent; else negative with an exception set, which says what it was.
double checked_beta(PyObject* value, const char* whose) {
  const double beta = PyFloat_AsDouble(value);
  if (PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
      return -1;  // of the value's own code
    PyErr_Clear();
  } else if (beta >= 0 && std::isfinite(static_cast<float>(beta))) {
    return beta;
  }
  PyObject* said =
      PyUnicode_FromFormat("beta%s must be a finite number >= 0, not %R", whose, value);
  const char* text = said == nullptr ? nullptr : PyUnicode_AsUTF8(said);
  if (text != nullptr) set_error(Error(ErrorCode::kInvalidArgument, text));
  Py_XDECREF(said);
  return -1;
}

// The exponent of this call: given, scheduled or configured. Negative with an exception set.
double beta_of(PyObject* self, const Handle& handle, PyObject* given) {
  double beta = static_cast<double>(handle.beta);
  if (given != nullptr) {
    beta = checked_beta(given, "");
  } else if (handle.scheduled) {
    PyObject* step = PyLong_FromUnsignedLongLong(handle.buffer->drawn());
    PyObject* value =
        step == nullptr ? nullptr : PyObject_CallMethodOneArg(self, names.scheduled_beta, step);
    Py_XDECREF(step);
    if (value == nullptr) return -1;
    beta = checked_beta(value, " of the schedule");
    Py_DECREF(value);
  }
  return beta;
}

bool finish(const std::shared_ptr<Buffer>& buffer, Draw& draw, const Batch& batch, float beta,
            bool long_draw, std::size_t most) try {
  const std::size_t bytes = batch.rows * buffer->layout().row_bytes;
  const MaybeRelease released(long_draw || bytes > most);
  buffer->finish(draw, batch, beta);
  return true;
} catch (...) {
  set_current_error();
  return false;
}

}  // namespace

bool new_columns(const Handle& handle, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns) {
  for (const Field& field : fields) {
    PyObject* value = nullptr;
    if (field.column >= 0) {
      const auto c = static_cast<std::size_t>(field.column);
      if (handle.types[c].item != 0) {
        if (field.mask != nullptr && PyDict_SetItem(batch, field.key, Py_None) != 0) return false;
        columns[c] = nullptr;
        PyObject* last = field.mask != nullptr ? field.mask : field.key;
        if (PyDict_SetItem(batch, last, Py_None) != 0) return false;
        continue;
      }
      value = new_values(handle.types[c], n);
      if (value == nullptr) return false;
      columns[c] = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(value)));
    } else {
      value = PyDict_New();
      if (value == nullptr) return false;
      if (!new_columns(handle, field.children, n, value, columns)) {
        Py_DECREF(value);
        return false;
      }
    }
    const int status = PyDict_SetItem(batch, field.key, value);
    Py_DECREF(value);
    if (status != 0) return false;
  }
  return true;
}

namespace {

// When the arguments are not plain, `not_plain` decides what happens.
template <class NotPlain>
PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                 NotPlain&& not_plain) {
  const Handle& handle = handle_of(self);
  Request request;
  const std::shared_ptr<Buffer> buffer = handle.buffer;  // a schedule may close the handle
  if (!buffer || !parse(args, nargs, kwnames, request)) return not_plain();
  const bool weighted = handle.weighted();
  if (request.beta != nullptr && !weighted) return not_plain();
  int overflow = 0;
  const long long n = PyLong_AsLongLongAndOverflow(request.batch_size, &overflow);
  if (n <= 0 || n > INT32_MAX) return not_plain();
  Share share;
  if ((request.timeout != nullptr || buffer->limiter().active()) &&
      !take_share(handle, Want::kDraw, static_cast<std::size_t>(n), request.timeout, share)) {
    return nullptr;
  }
  float beta = 0;
  if (weighted) {
    const double b = beta_of(self, handle, request.beta);
    if (b < 0) return nullptr;
    beta = static_cast<float>(b);
  }

  Draw draw(static_cast<std::size_t>(n));
  buffer->begin(draw);  // the rows come into the cache while the arrays are made
  std::byte* columns[kMaxColumns];
  Batch batch{static_cast<std::size_t>(n), columns};
  Held held;
  const bool fresh = request.out == nullptr;
  PyObject* result = fresh ? PyDict_New() : Py_NewRef(request.out);
  if (result == nullptr) return nullptr;
  const bool fits = fresh ? new_columns(handle, handle.fields, n, result, columns)
                          : own_columns(handle, handle.fields, n, result, columns, held);
  if (fits) batch.ids = extra_array<std::int64_t>(result, names.indices, NPY_INT64, n, fresh, held);
  if (batch.ids != nullptr && weighted) {
    batch.weights = extra_array<float>(result, names.weights, NPY_FLOAT32, n, fresh, held);
  }
  if (batch.ids == nullptr || (weighted && batch.weights == nullptr)) {
    Py_DECREF(result);
    share.give_back();
    // Out of memory, or an array of the caller's does not fit.
    return PyErr_Occurred() != nullptr ? nullptr : not_plain();
  }
  const RaggedOutput ragged(handle, n, columns);
  const std::size_t most = handle.squeezed ? kReleaseSqueezed : kReleaseBytes;
  if (!finish(buffer, draw, batch, beta, handle.long_draws, most) || !ragged.put(handle, result)) {
    Py_DECREF(result);
    return nullptr;
  }
  share.keep();
  return result;
}

}  // namespace

PyObject* py_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return sample(self, args, nargs, kwnames,
                [&] { return call_slow(self, names.slow_sample, args, nargs, kwnames); });
}

PyObject* py_sample_prepared(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                             PyObject* kwnames) {
  return sample(self, args, nargs, kwnames, []() -> PyObject* {
    set_error(Error(ErrorCode::kSchemaMismatch, "the arrays in `out` do not fit the columns"));
    return nullptr;
  });
}

}  // namespace replay_buffer::python
