// The Python module replay_buffer._core: private; the package in src/replay_buffer is its face.
#define REPLAY_IMPORT_NUMPY
#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "os/process.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/local.h"
#include "python/shared_array.h"

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

// What hot calls go to; None: nothing any more.
void aim(Handle& handle, const Local* local, bool scheduled) {
  if (local == nullptr) {
    handle.buffer.reset();
    return;
  }
  opened(*local);
  use(handle, local->buffer);
  handle.scheduled = scheduled;
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
  m.def("set_long_work",
        [](std::size_t work) { return os::long_work.exchange(work, std::memory_order_relaxed); });
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
  nb::class_<Handle>(m, "Buffer", nb::type_slots(buffer_slots), nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("_aim", &aim, nb::arg("local").none(), nb::arg("scheduled") = false);
  bind_local(m);
}
