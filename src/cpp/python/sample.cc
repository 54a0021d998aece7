// sample: a dict of fresh arrays, or the caller's own.
#include <cstdint>

#include "python/batch.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"

namespace replay_buffer::python {
namespace {

void finish(const Handle& handle, const std::shared_ptr<Buffer>& buffer, Draw& draw,
            const Batch& batch, float beta) {
  const CoreCall call(handle, batch.rows * handle.row_work);
  buffer->finish(draw, batch, beta);
}

// A fast call leaves to `slow` what is not plain, and what has to wait.
template <class Slow>
PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                 bool fast, Slow&& slow) {
  Request request;
  try {
    const Handle& handle = handle_of(self);
    const std::shared_ptr<Buffer> buffer = handle.buffer;  // a schedule may close the handle
    if (!buffer || handle.steps || !read_request(args, nargs, kwnames, request)) return slow();
    const bool weighted = handle.weighted();
    if (request.beta != nullptr && !weighted) return slow();
    const npy_intp n = batch_size_of(request);
    if (n == 0) return slow();
    Share share;
    float beta = 0;
    if (!prepare_draw(self, handle, request, n, fast, share, beta)) {
      return PyErr_Occurred() != nullptr ? nullptr : slow();
    }
    Draw draw(static_cast<std::size_t>(n));
    buffer->begin(draw);  // the rows come into the cache while the arrays are made
    std::byte* columns[kMaxColumns];
    Arrays arrays;
    const bool made =
        make_arrays(handle.types, handle.fields, n, request.out, weighted, columns, arrays);
    RaggedOutput ragged(handle.types, n, columns);
    if (!made || !ragged.own(handle.types, handle.fields, request.out)) {
      arrays.result.reset();
      share.give_back();
      // Out of memory, or an array of the caller's does not fit.
      return PyErr_Occurred() != nullptr ? nullptr : slow();
    }
    const Batch batch{static_cast<std::size_t>(n), columns, arrays.ids, arrays.weights};
    finish(handle, buffer, draw, batch, beta);
    if (!ragged.put(handle.types, handle.fields, arrays.result.get())) return nullptr;
    share.keep();
    return arrays.result.release();
  } catch (const Error& error) {
    if (!(fast && waits_for(error, request))) {
      set_error(error);
      return nullptr;
    }
  } catch (...) {
    set_current_error();
    return nullptr;
  }
  return slow();
}

}  // namespace

PyObject* py_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return sample(self, args, nargs, kwnames, true,
                [&] { return call_slow(self, names.slow_sample, args, nargs, kwnames); });
}

PyObject* py_sample_prepared(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                             PyObject* kwnames) {
  return sample(self, args, nargs, kwnames, false, [&]() -> PyObject* {
    if (!handle_of(self).buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
    throw Error(ErrorCode::kSchemaMismatch, "the arrays in `out` do not fit the columns");
  });
}

}  // namespace replay_buffer::python
