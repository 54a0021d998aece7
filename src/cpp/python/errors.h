// Turns the core's errors into Python's: the code chooses the class in replay_buffer.errors.
#pragma once

#include <Python.h>

#include "replay_buffer/error.h"

namespace replay_buffer::python {

// Looks up replay_buffer.errors, once: a child of a fork must not import anything.
void find_error_classes();

// Sets the Python exception for `error`. Call with the GIL.
void set_error(const Error& error);

// For `catch (...)` in a function called by Python: sets the exception of what is being handled.
void set_current_error();

}  // namespace replay_buffer::python
