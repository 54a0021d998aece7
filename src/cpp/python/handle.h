// The Python object around a buffer: _core.Buffer.
//
// A handle is empty until its schema is known (settle) and again after close(); then every call
// goes to the Python class, which knows what to do or say. All access is with the GIL; a call that
// releases it keeps the buffer alive with a reference of its own.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "python/columns.h"

namespace replay_buffer::python {

struct Handle {
  std::shared_ptr<Buffer> buffer;
  std::vector<ColumnType> types;
  std::vector<Field> fields;
  float beta = 0;           // used when it is not scheduled
  bool steps = false;       // rows are steps: batches are made by views
  bool long_draws = false;  // drawing may sort all rows: not with the GIL
  bool ragged = false;      // some column has values whose length varies
  bool squeezed = false;    // some column is compressed: rows take longer than their bytes say
  bool scheduled = false;   // the Python class has a schedule: self._scheduled_beta(draws so far)

  bool weighted() const { return buffer->ring().priorities.has_value(); }
};

// The handle inside a Python object of class _core.Buffer or a subclass.
Handle& handle_of(PyObject* self);

// Strings used as keys and keyword names, interned once at import.
struct Names {
  PyObject* indices;
  PyObject* weights;
  PyObject* batch_size;
  PyObject* out;
  PyObject* beta;
  PyObject* priority;
  PyObject* timeout;
  PyObject* values;
  PyObject* offsets;
  PyObject* scheduled_beta;
  PyObject* slow_add;
  PyObject* slow_add_batch;
  PyObject* slow_sample;
  PyObject* slow_update;
  PyObject* slow_append;
  PyObject* final_obs;
};
extern Names names;

// Calls self.<method>(*args, **kwargs) with the arguments of a vector call.
PyObject* call_slow(PyObject* self, PyObject* method, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames);

// Work of more bytes than this is done without the GIL; of values that are compressed, more than a
// few.
inline constexpr std::size_t kReleaseBytes = 32 * 1024;
inline constexpr std::size_t kReleaseSqueezed = 2 * 1024;

// A reference that is given up at the end of the scope, unless it was released.
struct GiveUp {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Reference = std::unique_ptr<PyObject, GiveUp>;

// Keeps Python objects alive whose memory a call reads or writes: a dict of the caller's may drop
// them meanwhile, in another thread or by a key that runs code when it is compared.
class Held {
 public:
  Held() = default;
  ~Held() {
    while (count_ > 0) Py_DECREF(objects_[--count_]);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // REQUIRES: at most three for each column, and the arrays beside them.
  void add(PyObject* object) { objects_[count_++] = Py_NewRef(object); }

 private:
  std::size_t count_ = 0;
  PyObject* objects_[3 * kMaxColumns + 2];
};

// Releases the GIL for a scope when `yes`.
class MaybeRelease {
 public:
  explicit MaybeRelease(bool yes) {
    if (yes) state_ = PyEval_SaveThread();
  }
  ~MaybeRelease() {
    if (state_ != nullptr) restore();
  }
  MaybeRelease(const MaybeRelease&) = delete;
  MaybeRelease& operator=(const MaybeRelease&) = delete;

 private:
  // When Python is shutting down, taking the GIL back ends this thread by unwinding its stack,
  // which must not pass through C++ frames that do not expect it. The thread stops here instead,
  // until the process is gone.
  void restore() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }

  PyThreadState* state_ = nullptr;
};

// The methods that have to be fast. What is not plain goes to the slow method of the Python class.
PyObject* py_add(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* py_add_batch(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* py_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* py_update_priorities(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                               PyObject* kwnames);
// The methods of writers and views.
PyObject* py_append(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
PyObject* py_view_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* kwnames);
// The same for arguments that the slow method has prepared: an error instead of another slow call.
PyObject* py_sample_prepared(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                             PyObject* kwnames);

}  // namespace replay_buffer::python
