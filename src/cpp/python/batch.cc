#include "python/batch.h"

#include <cmath>
#include <string>

#include "python/errors.h"

namespace replay_buffer::python {
namespace {

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

// The exponent of this call: given, scheduled or configured. Negative with an exception set. `self`
// is the Python object of the handle.
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

// The vector of n numbers that stands in a batch beside its columns: a new one, or the caller's.
// Null, with or without an exception.
void* extra_array(PyObject* batch, PyObject* key, int numpy_type, npy_intp n, bool fresh,
                  Held& held) {
  if (fresh) {
    PyObject* array = PyArray_SimpleNew(1, &n, numpy_type);
    if (array == nullptr) return nullptr;
    const int status = PyDict_SetItem(batch, key, array);
    Py_DECREF(array);
    return status != 0 ? nullptr : PyArray_DATA(reinterpret_cast<PyArrayObject*>(array));
  }
  PyObject* array = PyDict_GetItemWithError(batch, key);
  if (array == nullptr) return nullptr;
  ColumnType type{};
  type.numpy_type = numpy_type;
  held.add(array);
  return writable_values(array, type, n);
}

}  // namespace

bool read_request(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Request& request) {
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

npy_intp batch_size_of(const Request& request) {
  int overflow = 0;
  const long long n = PyLong_AsLongLongAndOverflow(request.batch_size, &overflow);
  return n <= 0 || n > INT32_MAX ? 0 : static_cast<npy_intp>(n);
}

bool new_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns) {
  for (const Field& field : fields) {
    PyObject* value = nullptr;
    if (field.column >= 0) {
      const auto c = static_cast<std::size_t>(field.column);
      if (types[c].item != 0) {
        if (field.mask != nullptr && PyDict_SetItem(batch, field.key, Py_None) != 0) return false;
        columns[c] = nullptr;
        PyObject* last = field.mask != nullptr ? field.mask : field.key;
        if (PyDict_SetItem(batch, last, Py_None) != 0) return false;
        continue;
      }
      value = new_values(types[c], n);
      if (value == nullptr) return false;
      columns[c] = static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(value)));
    } else {
      value = PyDict_New();
      if (value == nullptr) return false;
      if (!new_columns(types, field.children, n, value, columns)) {
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

bool own_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns, Held& held) {
  if (!PyDict_Check(batch)) return false;
  for (const Field& field : fields) {
    PyObject* value = PyDict_GetItemWithError(batch, field.key);
    if (value == nullptr) return false;
    if (field.column >= 0) {
      const auto c = static_cast<std::size_t>(field.column);
      if (types[c].item != 0) continue;
      columns[c] = writable_values(value, types[c], n);
      if (columns[c] == nullptr) return false;
      held.add(value);
    } else {
      Py_INCREF(value);  // it has to outlive what its keys do
      const bool fits = own_columns(types, field.children, n, value, columns, held);
      Py_DECREF(value);
      if (!fits) return false;
    }
  }
  return true;
}

bool prepare_draw(PyObject* self, const Handle& handle, const Request& request, npy_intp n,
                  Share& share, float& beta) {
  if ((request.timeout != nullptr || handle.buffer->limiter().active()) &&
      !take_share(handle, Want::kDraw, static_cast<std::size_t>(n), request.timeout, share, true)) {
    return false;
  }
  beta = 0;
  if (!handle.weighted()) return true;
  const double exponent = beta_of(self, handle, request.beta);
  beta = static_cast<float>(exponent);
  return exponent >= 0;
}

bool make_arrays(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* out, bool weighted, std::byte** columns, Arrays& arrays) {
  const bool fresh = out == nullptr;
  arrays.result.reset(fresh ? PyDict_New() : Py_NewRef(out));
  if (!arrays.result) return false;
  PyObject* const batch = arrays.result.get();
  const bool fits = fresh ? new_columns(types, fields, n, batch, columns)
                          : own_columns(types, fields, n, batch, columns, arrays.held);
  if (fits) {
    arrays.ids = static_cast<std::int64_t*>(
        extra_array(batch, names.indices, NPY_INT64, n, fresh, arrays.held));
  }
  if (arrays.ids != nullptr && weighted) {
    arrays.weights =
        static_cast<float*>(extra_array(batch, names.weights, NPY_FLOAT32, n, fresh, arrays.held));
  }
  if (arrays.ids == nullptr || (weighted && arrays.weights == nullptr)) return false;
  return fresh || arrays.held.apart();
}

nanobind::object taken(PyObject* batch, const char* what) {
  if (batch != nullptr) return nanobind::steal(batch);
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  throw Error(ErrorCode::kSchemaMismatch,
              std::string("the arrays in `out` do not fit the ") + what);
}

bool Held::apart() const {
  const char* begins[kMost];
  const char* ends[kMost];
  for (std::size_t i = 0; i < count_; ++i) {
    const auto* array = reinterpret_cast<PyArrayObject*>(objects_[i]);
    begins[i] = PyArray_BYTES(array);
    ends[i] = begins[i] + PyArray_NBYTES(array);
    for (std::size_t k = 0; k < i; ++k) {
      if (begins[i] < ends[k] && begins[k] < ends[i]) return false;
    }
  }
  return true;
}

}  // namespace replay_buffer::python
