// Batches as Python has them: the arguments of a call that draws one, and dicts of arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "python/handle.h"
#include "python/share.h"
#include "replay_buffer/error.h"

namespace replay_buffer::python {

// sample(batch_size, *, out=None, beta=None, timeout=None); null where it was not given.
struct Request {
  PyObject* batch_size = nullptr;
  PyObject* out = nullptr;
  PyObject* beta = nullptr;
  PyObject* timeout = nullptr;
};

// Takes the arguments apart; false when they are not what the fast path knows.
bool read_request(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Request& request);
// Whether a draw that failed so is tried again, by the slow call, until its timeout is over.
inline bool waits_for(const Error& error, const Request& request) {
  return error.code() == ErrorCode::kNotEnoughRows && request.timeout != nullptr;
}
// The number of rows; 0 for one that is none.
npy_intp batch_size_of(const Request& request);

// The exponent of this call: given, scheduled or configured. Negative with an exception set. `self`
// is the Python object of the handle.
double beta_of(PyObject* self, const Handle& handle, PyObject* given);

// Makes arrays for n rows of `fields`, puts them into the dict `batch` under their keys and their
// memory into `columns`. Columns whose length varies get a place in the dict only; see ragged.h.
// False with an exception set.
bool new_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns);

// Fills `columns` with the caller's arrays; false when one is missing or does not fit. Leaves out
// columns whose length varies; see ragged.h.
bool own_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns, Held& held);

// The vector of n numbers that stands in a batch beside its columns: a new one, or the caller's.
// Null, with or without an exception.
void* extra_array(PyObject* batch, PyObject* key, int numpy_type, npy_intp n, bool fresh,
                  Held& held);

// What a draw of n rows needs before it begins: its share, where there is a limiter, and the
// exponent of its weights. False with an exception set; or without one where a fast call with a
// timeout would have had to wait, which is left to the slow one. `self` is the Python object of the
// handle.
bool prepare_draw(PyObject* self, const Handle& handle, const Request& request, npy_intp n,
                  bool fast, Share& share, float& beta);

// The arrays of a batch: a dict of new ones, or the caller's `out`.
struct Arrays {
  Reference result;
  std::int64_t* ids = nullptr;
  float* weights = nullptr;
  Held held;
};

// Makes them, or finds that the caller's fit. False, with or without an exception.
bool make_arrays(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* out, bool weighted, std::byte** columns, Arrays& arrays);

}  // namespace replay_buffer::python
