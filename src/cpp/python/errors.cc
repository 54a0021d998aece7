#include "python/errors.h"

#include <nanobind/nanobind.h>

#include <new>

namespace nb = nanobind;

namespace replay_buffer::python {

namespace {

PyObject* class_of = nullptr;

}  // namespace

void find_error_classes() {
  const nb::object found = nb::module_::import_("replay_buffer.errors").attr("class_of");
  class_of = found.inc_ref().ptr();
}

void set_error(const Error& error) {
  PyObject* type = PyObject_CallFunction(class_of, "i", static_cast<int>(error.code()));
  if (type != nullptr) PyErr_SetString(type, error.what());
  Py_XDECREF(type);
}

void set_current_error() {
  try {
    throw;
  } catch (const Error& error) {
    set_error(error);
  } catch (nanobind::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace replay_buffer::python
