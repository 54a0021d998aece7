#include "python/share.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>

#include "python/errors.h"
#include "python/local.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

using Seconds = std::chrono::duration<double>;

// Seconds, infinite for None; false with an exception set.
bool read_timeout(PyObject* given, double& seconds) {
  seconds = std::numeric_limits<double>::infinity();
  if (given == nullptr || given == Py_None) return true;
  const double value = PyFloat_AsDouble(given);
  if (PyErr_Occurred() != nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
      return false;  // of the value's own code
    PyErr_Clear();
  } else if (value >= 0 && !PyBool_Check(given)) {
    seconds = value;
    return true;
  }
  PyObject* said =
      PyUnicode_FromFormat("timeout must be None or a number of seconds >= 0, not %R", given);
  const char* text = said == nullptr ? nullptr : PyUnicode_AsUTF8(said);
  if (text != nullptr) set_error(Error(ErrorCode::kInvalidArgument, text));
  Py_XDECREF(said);
  return false;
}

nb::object waiting_module() {
  return nb::steal(PyImport_GetModule(nb::str("replay_buffer.waiting").ptr()));
}

// Seconds after which a call warns that waits without a timeout: waiting.LONG.
double long_wait() {
  const nb::object waiting = waiting_module();
  return waiting.is_valid() ? nb::cast<double>(waiting.attr("LONG"))
                            : std::numeric_limits<double>::infinity();
}

}  // namespace

bool take_share(const Local& local, Want want, std::size_t n, PyObject* timeout, Share& share,
                bool timed_elsewhere) try {
  double limit = 0;
  if (!read_timeout(timeout, limit)) return false;
  const std::shared_ptr<Buffer> buffer = local.buffer;
  // What a number does when it is asked for its value can close the buffer.
  if (!buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  Limiter& limiter = buffer->limiter();
  if (!limiter.active()) return true;
  if (buffer->try_take(want, n)) {
    share = Share(limiter, want, n);
    return true;
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (timed_elsewhere && timeout != nullptr && timeout != Py_None) return false;
  Wait wait = buffer->wait_for(want, n);
  double warn_after = limit == kNever ? long_wait() : kNever;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const double waited = Seconds(std::chrono::steady_clock::now() - start).count();
    if (waited >= limit) throw Error(ErrorCode::kTimeout, wait.complaint(std::min(waited, limit)));
    if (waited >= warn_after) {
      warn_after = kNever;
      waiting_module().attr("warn_of_owners")(wait.complaint(waited), owners_of(local));
    }
    const Seconds slice(std::min(limit - waited, Seconds(Limiter::kSlice).count()));
    {
      const CoreCall call(CoreCall::kWaits);
      if (wait.sleep(std::chrono::duration_cast<std::chrono::nanoseconds>(slice))) {
        share = Share(limiter, want, n);
      }
    }
    if (PyErr_CheckSignals() != 0) return false;
    if (local.buffer != buffer) {
      throw Error(ErrorCode::kClosed, "the buffer was closed while this call waited");
    }
    if (share.taken()) return true;
  }
} catch (...) {
  set_current_error();
  return false;
}

}  // namespace replay_buffer::python
