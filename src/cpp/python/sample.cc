// sample: a dict of fresh arrays, or the caller's own.
#include <cstdint>

#include "python/batch.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"

namespace replay_buffer::python {
namespace {

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

// When the arguments are not plain, `not_plain` decides what happens.
template <class NotPlain>
PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                 NotPlain&& not_plain) {
  const Handle& handle = handle_of(self);
  Request request;
  const std::shared_ptr<Buffer> buffer = handle.buffer;  // a schedule may close the handle
  if (!buffer || handle.steps || !read_request(args, nargs, kwnames, request)) return not_plain();
  const bool weighted = handle.weighted();
  if (request.beta != nullptr && !weighted) return not_plain();
  const npy_intp n = batch_size_of(request);
  if (n == 0) return not_plain();
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
  const bool fits = fresh ? new_columns(handle.types, handle.fields, n, result, columns)
                          : own_columns(handle.types, handle.fields, n, result, columns, held);
  if (fits) {
    batch.ids =
        static_cast<std::int64_t*>(extra_array(result, names.indices, NPY_INT64, n, fresh, held));
  }
  if (batch.ids != nullptr && weighted) {
    batch.weights =
        static_cast<float*>(extra_array(result, names.weights, NPY_FLOAT32, n, fresh, held));
  }
  if (batch.ids == nullptr || (weighted && batch.weights == nullptr)) {
    Py_DECREF(result);
    share.give_back();
    // Out of memory, or an array of the caller's does not fit.
    return PyErr_Occurred() != nullptr ? nullptr : not_plain();
  }
  const RaggedOutput ragged(handle.types, n, columns);
  const std::size_t most = handle.squeezed ? kReleaseSqueezed : kReleaseBytes;
  if (!finish(buffer, draw, batch, beta, handle.long_draws, most) ||
      !ragged.put(handle.types, handle.fields, result)) {
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
