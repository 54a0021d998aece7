// Batches as Python has them: the arguments of a call that draws one, and dicts of arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "python/errors.h"
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

// Makes arrays for n rows of `fields`, puts them into the dict `batch` under their keys and their
// memory into `columns`. Columns whose length varies get a place in the dict only; see ragged.h.
// False with an exception set.
bool new_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns);

// Fills `columns` with the caller's arrays; false when one is missing or does not fit. Leaves out
// columns whose length varies; see ragged.h.
bool own_columns(const std::vector<ColumnType>& types, const std::vector<Field>& fields, npy_intp n,
                 PyObject* batch, std::byte** columns, Held& held);

// What a fast draw of n rows needs before it begins: its share, where there is a limiter, and the
// exponent of its weights. False with an exception set; or without one where a call with a timeout
// would have had to wait, which is left to the slow one. `self` is the Python object of the handle.
bool prepare_draw(PyObject* self, const Handle& handle, const Request& request, npy_intp n,
                  Share& share, float& beta);

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

// The batch of a call whose arguments were checked. Throws where there is none: the exception that
// is set, or that the arrays in `out` do not fit `what`.
nanobind::object taken(PyObject* batch, const char* what);

// A fast call, as Python makes it.
struct Call {
  PyObject* self;
  PyObject* const* args;
  Py_ssize_t nargs;
  PyObject* kwnames;
};

// A batch that draw(local, buffer, n, out, beta, share) makes. What is not plain is left to the
// slow method, as is what has to wait. `owner` is the Python object of the handle, which may be
// null.
template <class Draw>
PyObject* draw_fast(const Call& call, PyObject* owner, const Handle* handle, const Draw& draw) {
  Request request;
  const auto slow = [&] {
    return call_slow(call.self, names.slow_sample, call.args, call.nargs, call.kwnames);
  };
  try {
    if (handle == nullptr) return slow();
    const std::shared_ptr<Buffer> buffer = handle->buffer;  // a schedule may close the handle
    if (!buffer || !read_request(call.args, call.nargs, call.kwnames, request)) return slow();
    const npy_intp n = batch_size_of(request);
    if (n == 0 || (request.beta != nullptr && !handle->weighted())) return slow();
    Share share;
    float beta = 0;
    if (!prepare_draw(owner, *handle, request, n, share, beta)) {
      return PyErr_Occurred() != nullptr ? nullptr : slow();
    }
    PyObject* batch = draw(*handle, buffer, n, request.out, beta, share);
    if (batch != nullptr || PyErr_Occurred() != nullptr) return batch;
  } catch (const Error& error) {
    if (!waits_for(error, request)) {
      set_error(error);
      return nullptr;
    }
  } catch (...) {
    set_current_error();
    return nullptr;
  }
  return slow();
}

// The same of arguments that were checked. Waits for the limiter, and raises that the arrays in
// `out` do not fit `what`.
template <class Draw>
nanobind::object draw_patiently(const Local& local, npy_intp n, float beta,
                                const nanobind::object& out, const nanobind::object& timeout,
                                const char* what, const Draw& draw) {
  opened(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  Share share;
  if (!take_share(local, Want::kDraw, static_cast<std::size_t>(n), timeout.ptr(), share)) {
    throw nanobind::python_error();
  }
  return taken(draw(local, keep, n, out.is_none() ? nullptr : out.ptr(), beta, share), what);
}

// Draws n rows, as Local.draw.
nanobind::object draw_batch(const Local& local, npy_intp n, float beta, const nanobind::object& out,
                            const nanobind::object& timeout);

}  // namespace replay_buffer::python
