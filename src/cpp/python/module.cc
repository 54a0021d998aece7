// The Python module replay_buffer._core: private; the package in src/replay_buffer is its face.
#define REPLAY_IMPORT_NUMPY
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "os/process.h"
#include "python/batch.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/in_place.h"
#include "python/lifecycle.h"
#include "python/ragged.h"
#include "python/share.h"
#include "python/shared_array.h"
#include "python/view.h"
#include "python/watch.h"
#include "python/writer.h"

namespace nb = nanobind;

namespace replay_buffer::python {

Names names;

Handle& handle_of(PyObject* self) {
  static Handle
      never_settled;  // for an object whose __init__ has not run: every call goes to Python
  const nb::handle object(self);
  return nb::inst_ready(object) ? *nb::inst_ptr<Handle>(object) : never_settled;
}

PyObject* call_slow(PyObject* self, PyObject* method, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) {
  const Py_ssize_t keywords = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  std::vector<PyObject*> all;
  all.push_back(self);
  all.insert(all.end(), args, args + nargs + keywords);
  return PyObject_VectorcallMethod(method, all.data(), static_cast<std::size_t>(nargs) + 1,
                                   kwnames);
}

namespace {

void intern_names() {
  names.indices = PyUnicode_InternFromString("indices");
  names.weights = PyUnicode_InternFromString("weights");
  names.batch_size = PyUnicode_InternFromString("batch_size");
  names.out = PyUnicode_InternFromString("out");
  names.beta = PyUnicode_InternFromString("beta");
  names.scheduled_beta = PyUnicode_InternFromString("_scheduled_beta");
  names.priority = PyUnicode_InternFromString("priority");
  names.timeout = PyUnicode_InternFromString("timeout");
  names.values = PyUnicode_InternFromString("values");
  names.offsets = PyUnicode_InternFromString("offsets");
  names.slow_add = PyUnicode_InternFromString("_slow_add");
  names.slow_add_batch = PyUnicode_InternFromString("_slow_add_batch");
  names.slow_sample = PyUnicode_InternFromString("_slow_sample");
  names.slow_append = PyUnicode_InternFromString("_slow_append");
  names.final_obs = PyUnicode_InternFromString("final_obs");
  names.slow_update = PyUnicode_InternFromString("_slow_update_priorities");
}

PyCFunction as_method(PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// clang-format off
PyMethodDef hot_methods[] = {
    {"add", as_method(py_add), METH_FASTCALL | METH_KEYWORDS,
     "add($self, /, *values, priority=None, timeout=None, **columns)\n--\n\n"
     "Add one row: one value per column, in the order of the schema, or by name. Returns its row id.\n\n"
     "`priority` sets its raw priority (prioritized buffers); without it a row gets the largest so far.\n"
     "Where the rate limiter has it wait, `timeout` is how long, in seconds; then it raises Timeout."},
    {"add_batch", as_method(py_add_batch), METH_FASTCALL | METH_KEYWORDS,
     "add_batch($self, /, *values, priority=None, timeout=None, **columns)\n--\n\n"
     "Add n rows: like add(), with a leading dimension n. Returns an int64 array of row ids."},
    {"sample", as_method(py_sample), METH_FASTCALL | METH_KEYWORDS,
     "sample($self, /, batch_size, *, out=None, beta=None, timeout=None)\n--\n\n"
     "Draw a batch: a dict of arrays, one per column, `indices` (row ids) and, if prioritized, `weights`.\n\n"
     "With `out` the arrays of an earlier batch are filled. One whose size depends on the batch is used where\n"
     "it has room; else `out` gets a larger one in its place. `beta` takes the place of the config's.\n"
     "With `timeout` it waits up to so many seconds for rows, and for the rate limiter; then it raises Timeout.\n"
     "Without it waits for the rate limiter only, and raises NotEnoughRows where rows are missing."},
    {"update_priorities", as_method(py_update_priorities), METH_FASTCALL | METH_KEYWORDS,
     "update_priorities($self, /, indices, td_errors)\n--\n\n"
     "Set the priorities of rows to the magnitude of their TD errors. Returns how many rows were still there.\n\n"
     "Nothing is changed when a value is NaN or infinite."},
    {"_sample_prepared", as_method(py_sample_prepared), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
// clang-format on

PyType_Slot buffer_slots[] = {{Py_tp_methods, hot_methods}, {0, nullptr}};

// Gives a subclass descriptors of its own for the hot methods: the interpreter's fast call of a C
// method wants the class of the object to be the one the method was defined for.
void adopt_hot_methods(const nb::type_object& subclass) {
  for (PyMethodDef* method = hot_methods; method->ml_name != nullptr; ++method) {
    auto* type = reinterpret_cast<PyTypeObject*>(subclass.ptr());
    nb::setattr(subclass, method->ml_name, nb::steal(PyDescr_NewMethod(type, method)));
  }
}

Buffer& opened(const Handle& handle) {
  if (!handle.buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  handle.buffer->mend_after_fork();
  return *handle.buffer;
}

Priorities const& priorities_of(const Handle& handle) {
  const auto& priorities = opened(handle).ring().priorities;
  if (!priorities) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "this buffer keeps no priorities: its strategy is neither 'prioritized' nor 'rank'");
  }
  return *priorities;
}

std::byte* bytes_of(nb::handle array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

nb::object new_vector(npy_intp n, int numpy_type) {
  PyObject* array = PyArray_SimpleNew(1, &n, numpy_type);
  if (array == nullptr) throw nb::python_error();
  return nb::steal(array);
}

// NumPy's own copy would let go of the GIL.
nb::object copy_of(const nb::object& ids, npy_intp n) {
  nb::object copy = new_vector(n, NPY_INT64);
  std::memcpy(bytes_of(copy), bytes_of(ids), static_cast<std::size_t>(n) * sizeof(std::int64_t));
  return copy;
}

// Adds rows whose columns were brought into shape by the Python class: one array per column, or
// values and offsets.
nb::object write_rows(const Handle& handle, npy_intp n, const std::vector<nb::object>& arrays,
                      const nb::object& raws, const nb::object& timeout) {
  Buffer& buffer = opened(handle);
  if (arrays.size() != handle.types.size()) {
    throw Error(ErrorCode::kInvalidArgument, "one array for each column is needed");
  }
  const std::byte* sources[kMaxColumns];
  std::vector<RaggedInput> ragged(arrays.size());
  for (std::size_t c = 0; c < arrays.size(); ++c) {
    PyObject* given = arrays[c].ptr();
    if (handle.types[c].item == 0) {
      sources[c] = read_values(given, handle.types[c], n);
    } else {
      const bool pair = PyTuple_CheckExact(given) && PyTuple_GET_SIZE(given) == 2;
      const bool fits = pair && ragged[c].read(PyTuple_GET_ITEM(given, 0),
                                               PyTuple_GET_ITEM(given, 1), handle.types[c], n);
      sources[c] = fits ? ragged[c].place() : nullptr;
    }
    if (sources[c] == nullptr) {
      throw Error(ErrorCode::kSchemaMismatch,
                  "the values of column '" + buffer.layout().schema[c].name + "' do not fit");
    }
  }
  const auto* priorities =
      raws.is_none() ? nullptr : reinterpret_cast<const float*>(bytes_of(raws));
  nb::object ids = new_vector(n, NPY_INT64);
  {
    const std::shared_ptr<Buffer> keep = handle.buffer;
    const auto count = static_cast<std::size_t>(n);
    Share share;
    if (!take_share(handle, Want::kAdd, count, timeout.ptr(), share)) throw nb::python_error();
    const CoreCall call(handle, count * handle.row_work);
    keep->add(count, sources, priorities, reinterpret_cast<std::int64_t*>(bytes_of(ids)));
    share.keep();
  }
  return ids;
}

// Rows by id, which of them are gone, and how many.
nb::tuple get_rows(const Handle& handle, const nb::object& ids) {
  opened(handle);
  npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  nb::dict batch;
  std::byte* columns[kMaxColumns];
  if (!new_columns(handle.types, handle.fields, n, batch.ptr(), columns)) throw nb::python_error();
  nb::object gone = new_vector(n, NPY_BOOL);
  RaggedOutput ragged(handle.types, n, columns);
  std::size_t count_gone = 0;
  {
    const std::shared_ptr<Buffer> keep = handle.buffer;
    const auto count = static_cast<std::size_t>(n);
    const auto* wanted = reinterpret_cast<const std::int64_t*>(bytes_of(ids));
    auto* missing = reinterpret_cast<std::uint8_t*>(bytes_of(gone));
    const CoreCall call(handle, count * handle.row_work);
    count_gone = keep->get({wanted, count}, columns, missing);
  }
  if (!ragged.put(handle.types, handle.fields, batch.ptr())) throw nb::python_error();
  batch["indices"] = copy_of(ids, n);
  return nb::make_tuple(batch, gone, count_gone);
}

nb::object latest_ids(const Handle& handle, npy_intp n) {
  opened(handle);
  const std::shared_ptr<Buffer> keep = handle.buffer;
  std::vector<std::int64_t> ids(std::min(static_cast<std::size_t>(n), keep->size()));
  {
    const CoreCall call(ids.size() * os::kLookWork);
    ids.resize(keep->latest(ids.size(), ids.data()));
  }
  nb::object out = new_vector(static_cast<npy_intp>(ids.size()), NPY_INT64);
  std::copy(ids.begin(), ids.end(), reinterpret_cast<std::int64_t*>(bytes_of(out)));
  return out;
}

// Raw priorities of rows, 0 of last observations, NaN of rows that are gone; and how many of these.
nb::tuple raw_priorities(const Handle& handle, const nb::object& ids) {
  priorities_of(handle);
  const npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  nb::object out = new_vector(n, NPY_FLOAT32);
  const auto* wanted = reinterpret_cast<const std::int64_t*>(bytes_of(ids));
  auto* values = reinterpret_cast<float*>(bytes_of(out));
  std::size_t gone = 0;
  {
    const std::shared_ptr<Buffer> keep = handle.buffer;
    const CoreCall call(static_cast<std::size_t>(n) * os::kFindWork);
    for (npy_intp i = 0; i < n; ++i) {
      values[i] = keep->raw_of(wanted[i]);
      gone += std::isnan(values[i]) ? 1 : 0;
    }
  }
  return nb::make_tuple(out, gone);
}

// The state of the rate limiter; None where there is none.
nb::object limiter_state(const Buffer& buffer) {
  const Limiter& limiter = buffer.limiter();
  if (!limiter.active()) return nb::none();
  const Settings& s = buffer.layout().settings;
  nb::dict d;
  d["min_size"] = limiter.min_size();
  d["samples_per_insert"] = limiter.has_ratio() ? nb::cast(s.samples_per_insert) : nb::none();
  d["tolerance"] = s.tolerance;
  d["balance"] = limiter.balance();
  d["waiting"] = waiting_owners(buffer.ring(), buffer.owners()).size();
  return d;
}

// What compression has done so far; None where no column has any.
nb::object compression_state(const Handle& handle, const Stats& stats) {
  if (!handle.squeezed) return nb::none();
  const auto kept = static_cast<double>(stats.bytes_kept);
  nb::dict d;
  d["bytes_in"] = stats.bytes_in;
  d["bytes_kept"] = stats.bytes_kept;
  d["ratio"] = kept == 0 ? nb::none() : nb::cast(static_cast<double>(stats.bytes_in) / kept);
  return d;
}

void release(Handle& handle) {
  std::shared_ptr<Buffer> last = std::move(handle.buffer);
  handle.buffer.reset();
  if (!last) return;
  if (last->limiter().active()) last->limiter().wake();  // who waits shall see it
  const CoreCall call(CoreCall::kWaits);  // to give memory back takes long, a file is written out
  last.reset();
}

// The episodes that ended: all in all, and the latest one by one, the newest last.
nb::dict episodes(const Buffer& buffer, const Stats& stats) {
  const std::uint64_t count = stats.episodes;
  nb::dict d;
  d["finished"] = count;
  d["steps"] = stats.episode_steps;
  d["return_sum"] = stats.return_sum;
  nb::list lengths;
  nb::list returns;
  for (std::uint64_t i = count < kEpisodeCount ? 0 : count - kEpisodeCount; i < count; ++i) {
    const Episode& one = buffer.ring().segment->episodes()[i % kEpisodeCount];
    const std::uint64_t steps = one.steps.load(std::memory_order_relaxed);
    if (steps == 0) continue;  // counted, and not yet told
    lengths.append(steps);
    returns.append(std::bit_cast<double>(one.return_bits.load(std::memory_order_relaxed)));
  }
  d["latest_lengths"] = lengths;
  d["latest_returns"] = returns;
  return d;
}

nb::dict counters(const Handle& handle) {
  const Buffer& buffer = opened(handle);
  nb::dict d;
  const Stats stats = buffer.stats();
  d["size"] = stats.size;
  d["capacity"] = stats.capacity;
  d["block_rows"] = stats.block_rows;
  d["row_bytes"] = stats.row_bytes;
  d["raw_bytes"] = stats.raw_bytes;
  d["segment_bytes"] = stats.segment_bytes;
  d["resident_bytes"] = stats.resident_bytes;
  d["rows_added"] = stats.rows_added;
  d["rows_sampled"] = stats.rows_sampled;
  d["samples"] = stats.samples;
  d["updates_applied"] = stats.updates_applied;
  d["updates_stale"] = stats.updates_stale;
  d["limiter"] = limiter_state(buffer);
  if (buffer.layout().has_steps()) d["episodes"] = episodes(buffer, stats);
  d["compression"] = compression_state(handle, stats);
  return d;
}

}  // namespace
}  // namespace replay_buffer::python

NB_MODULE(_core, m) {
  using namespace replay_buffer;          // NOLINT(google-build-using-namespace)
  using namespace replay_buffer::python;  // NOLINT(google-build-using-namespace)
  if (_import_array() < 0) nb::raise_python_error();
  nb::set_leak_warnings(false);  // a buffer that lives to the end of the program is not a leak
  os::watch_forks();
  intern_names();
  find_error_classes();
  m.def("times_let_go", [] { return CoreCall::times_let_go; });
  m.def("long_work", [] { return os::long_work.load(std::memory_order_relaxed); });
  m.def("set_long_work", [](std::size_t work) {
    return os::long_work.exchange(work, std::memory_order_relaxed);
  });
  m.attr("__version__") = REPLAY_VERSION;
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& error) {
      set_error(error);
    }
  });

  bind_shared_array(m);
  m.def("adopt_hot_methods", &adopt_hot_methods);
  nb::class_<Handle> handle(m, "Buffer", nb::type_slots(buffer_slots), nb::is_weak_referenceable());
  bind_lifecycle(m, handle);
  bind_watch(m, handle);
  bind_in_place(m, handle);
  bind_writer(m);
  bind_view(m);
  handle.def(nb::init<>())
      .def("_write_rows", &write_rows, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("_get_rows", &get_rows)
      .def("_latest_ids", &latest_ids)
      .def("_raw_priorities", &raw_priorities)
      .def("_counters", &counters)
      .def("_settled", [](const Handle& h) { return h.buffer != nullptr; })
      .def("_release", &release)
      .def("_clear",
           [](const Handle& h) {
             opened(h);
             const std::shared_ptr<Buffer> keep = h.buffer;
             const CoreCall call(keep->capacity() * os::kLookWork);
             keep->clear();
           })
      .def("_rows_added", [](const Handle& h) { return opened(h).ring().rows_added(); })
      .def("_rows_moved",  // changes with every add and draw
           [](const Handle& h) {
             const Ring& ring = opened(h).ring();
             return ring.rows_added() +
                    ring.counters().rows_sampled.load(std::memory_order_relaxed);
           })
      .def("_size", [](const Handle& h) { return opened(h).size(); })
      .def("_capacity", [](const Handle& h) { return opened(h).capacity(); })
      .def("_is_full", [](const Handle& h) { return opened(h).is_full(); })
      .def("_total_priority", [](const Handle& h) { return priorities_of(h).tree().total(); })
      .def("_max_priority", [](const Handle& h) { return priorities_of(h).max_raw(); })
      .def("_alpha", [](const Handle& h) { return opened(h).ring().alpha(); })
      .def("_set_alpha", [](const Handle& h, float alpha) {
        (void)priorities_of(h);
        const std::shared_ptr<Buffer> keep = h.buffer;
        const CoreCall call(keep->capacity() * os::kLookWork);
        keep->set_alpha(alpha);
      });
}
