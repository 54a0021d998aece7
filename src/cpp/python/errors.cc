#include "python/errors.h"

#include <nanobind/nanobind.h>

#include <new>

namespace replay_buffer::python {

void set_error(const Error& error) {
  PyObject* module = PyImport_ImportModule("replay_buffer.errors");
  PyObject* type = module == nullptr ? nullptr
                                     : PyObject_CallMethod(module, "class_of", "i",
                                                           static_cast<int>(error.code()));
  if (type != nullptr) PyErr_SetString(type, error.what());
  Py_XDECREF(type);
  Py_XDECREF(module);
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
