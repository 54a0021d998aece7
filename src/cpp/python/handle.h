// The Python objects around a buffer: _core.Local, an open segment with all that can be done to it,
// and _core.Buffer, which has the calls that must be fast.
//
// All access is with the GIL; a call that may let go of it (CoreCall) keeps the buffer alive with a
// reference of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "os/let_go.h"
#include "python/columns.h"

namespace replay_buffer::python {

// A segment that is open in this process, and what calls on its rows need to know. Without a buffer
// after it was closed.
struct Local {
  std::shared_ptr<Buffer> buffer;
  std::vector<ColumnType> types;
  std::vector<Field> fields;
  float beta = 0;         // used when it is not scheduled
  bool steps = false;     // rows are steps: batches are made by views
  bool ragged = false;    // some column has values whose length varies
  bool squeezed = false;  // some column is compressed
  bool on_disk = false;
  mutable std::atomic<bool> slow_disk{false};
  std::size_t row_work = 0;  // to find a row and move it, as in os/let_go.h

  bool weighted() const { return buffer->ring().priorities.has_value(); }
  // The work of moving so many bytes of values; to unpack takes longer than to copy.
  std::size_t work_of(std::size_t bytes) const { return squeezed ? 4 * bytes : bytes; }
};

// Takes a buffer over.
void use(Local& local, std::shared_ptr<Buffer> buffer);
// The buffer. Throws kClosed.
Buffer& opened(const Local& local);

// What the fast calls of a ReplayBuffer go to: a Local's buffer, or nothing. Then they go to the
// Python class, which knows what to do or say. A handle is aimed once, and emptied once.
struct Handle : Local {
  bool scheduled = false;  // the Python class has a schedule: self._scheduled_beta(draws so far)
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

  // Whether no two of them overlap. REQUIRES: they are contiguous arrays.
  bool apart() const;

 private:
  static constexpr std::size_t kMost = 3 * kMaxColumns + 2;

  std::size_t count_ = 0;
  PyObject* objects_[kMost];
};

// Calls of less work that cannot wait need no CoreCall.
inline constexpr std::size_t kAtOnce = 16 * 1024;

// Around a call of the core: keeps the GIL as long as the call neither takes long nor waits.
// Getting it back from a thread that runs Python code takes milliseconds. No Python in its scope.
class CoreCall final : os::Holding {
 public:
  // The work of calls that wait: for a file, another process, or other threads.
  static constexpr std::size_t kWaits = ~std::size_t{0};

  // `work` as in os/let_go.h.
  explicit CoreCall(std::size_t work) {
    os::holding = this;
    if (os::is_long(work)) [[unlikely]]
      let_go();
  }
  // The same on the rows of a Local, which outlives it. Those of a file may have to come from the
  // disk: a call is expected to wait for that if the one before it did.
  CoreCall(const Local& local, std::size_t work) : CoreCall(work) {
    if (local.on_disk) [[unlikely]]
      begin_on_disk(local);
  }
  ~CoreCall() {
    os::holding = nullptr;
    if (disk_ != nullptr) [[unlikely]]
      end_on_disk();
    if (state_ != nullptr) [[unlikely]]
      restore();
  }
  CoreCall(const CoreCall&) = delete;
  CoreCall& operator=(const CoreCall&) = delete;

  void let_go() noexcept override;

  static inline std::uint64_t times_let_go = 0;  // by all calls so far; for tests

 private:
  void restore();
  void begin_on_disk(const Local& local);
  void end_on_disk() const;

  PyThreadState* state_ = nullptr;
  const Local* disk_ = nullptr;
  std::uint64_t start_ = 0;
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

}  // namespace replay_buffer::python
