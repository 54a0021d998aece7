// update_priorities: magnitudes of TD errors become raw priorities.
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "python/errors.h"
#include "python/handle.h"

namespace replay_buffer::python {
namespace {

constexpr npy_intp kInline = 512;

const std::byte* vector_of(PyObject* value, int numpy_type, npy_intp& n) {
  ColumnType type{};
  type.numpy_type = numpy_type;
  return read_values(value, type, n);
}

// |x| of each element as float32.
bool magnitudes(PyObject* value, npy_intp n, float* out) {
  if (!read_floats(value, n, out)) return false;
  for (npy_intp i = 0; i < n; ++i) out[i] = std::fabs(out[i]);
  return true;
}

UpdateResult update_many(const Handle& handle, std::span<const std::int64_t> ids,
                         std::span<const float> raws) {
  const std::shared_ptr<Buffer> keep = handle.buffer;  // another thread may close the handle
  const CoreCall call(handle, ids.size() * os::kFindWork);
  return keep->update(ids, raws);
}

}  // namespace

PyObject* py_update_priorities(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                               PyObject* kwnames) try {
  const Handle& handle = handle_of(self);
  if (handle.buffer && nargs == 2 && kwnames == nullptr && handle.weighted()) {
    npy_intp n = -1;
    const std::byte* ids = vector_of(args[0], NPY_INT64, n);
    float few[kInline];
    std::vector<float> more;
    if (ids != nullptr && n > kInline) more.resize(static_cast<std::size_t>(n));
    float* raws = more.empty() ? few : more.data();
    if (ids != nullptr && magnitudes(args[1], n, raws)) {
      const auto count = static_cast<std::size_t>(n);
      const std::span given(reinterpret_cast<const std::int64_t*>(ids), count);
      const UpdateResult result = count * os::kFindWork > kAtOnce
                                      ? update_many(handle, given, {raws, count})
                                      : handle.buffer->update(given, {raws, count});
      return PyLong_FromSize_t(result.applied);
    }
  }
  return call_slow(self, names.slow_update, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

}  // namespace replay_buffer::python
