// sample: a dict of fresh arrays, or the caller's own.
#include <cstdint>

#include "python/batch.h"
#include "python/ragged.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

void finish(const Local& local, const std::shared_ptr<Buffer>& buffer, Draw& draw,
            const Batch& batch, float beta) {
  const CoreCall call(local, batch.rows * local.row_work);
  buffer->finish(draw, batch, beta);
}

// Draws n rows into new arrays or `out`. Null with an exception set; or without one where an array
// of the caller's does not fit, and nothing was drawn.
PyObject* draw_rows(const Local& local, const std::shared_ptr<Buffer>& buffer, npy_intp n,
                    PyObject* out, float beta, Share& share) {
  Draw draw(static_cast<std::size_t>(n));
  buffer->begin(draw);  // the rows come into the cache while the arrays are made
  std::byte* columns[kMaxColumns];
  Arrays arrays;
  const bool made = make_arrays(local.types, local.fields, n, out,
                                buffer->ring().priorities.has_value(), columns, arrays);
  RaggedOutput ragged(local.types, n, columns);
  if (!made || !ragged.own(local.types, local.fields, out)) return nullptr;
  const Batch batch{static_cast<std::size_t>(n), columns, arrays.ids, arrays.weights};
  finish(local, buffer, draw, batch, beta);
  if (!ragged.put(local.types, local.fields, arrays.result.get())) return nullptr;
  share.keep();
  return arrays.result.release();
}

}  // namespace

PyObject* py_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const Handle* handle = &handle_of(self);
  if (handle->steps) handle = nullptr;  // a view draws them
  const Call call{self, args, nargs, kwnames};
  return draw_fast(call, self, handle, [&](auto&&... with) { return draw_rows(with...); });
}

nb::object draw_batch(const Local& self, npy_intp n, float beta, const nb::object& out,
                      const nb::object& timeout) {
  return draw_patiently(self, n, beta, out, timeout, "columns",
                        [&](auto&&... with) { return draw_rows(with...); });
}

}  // namespace replay_buffer::python
