// The Python object around a writer of steps: _core.Writer, and its append.
#include "python/writer.h"

#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/step_writer.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"
#include "python/sources.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

// Empty until the columns are known, and again after close(); then every call goes to the Python
// class, as with Handle. All access is with the GIL; a call that lets go of it, or runs Python
// code, keeps what it needs (Kept): another thread may close the writer meanwhile.
struct WriterHandle {
  nb::object owner;                // the Python object of the buffer
  std::shared_ptr<Buffer> buffer;  // outlives the writer
  std::shared_ptr<StepWriter> writer;
  bool closed = false;  // for good
  std::size_t streams = 0;
  bool same_step = false;
  std::size_t terminated = 0;  // columns
  std::size_t truncated = 0;
  const Field* obs = nullptr;

  const Handle& handle() const { return handle_of(owner.ptr()); }
};

WriterHandle& writer_of(PyObject* self) {
  static WriterHandle never_opened;
  const nb::handle object(self);
  return nb::inst_ready(object) ? *nb::inst_ptr<WriterHandle>(object) : never_opened;
}

// What a call needs to the end, whoever closes the writer. Let go of with the GIL, in the order of
// WriterHandle.
struct Kept {
  explicit Kept(const WriterHandle& self)
      : owner(self.owner), buffer(self.buffer), writer(self.writer) {}

  nb::object owner;
  std::shared_ptr<Buffer> buffer;
  std::shared_ptr<StepWriter> writer;
};

void write(const Kept& kept, const Handle& handle, const StepBatch& batch) {
  const CoreCall call(handle, kept.writer->streams() * handle.row_work);
  kept.writer->append(batch);
}

// False with an exception set.
bool append(const WriterHandle& self, const Sources& sources, const Sources* finals,
            const float* raws, std::int64_t* ids, PyObject* timeout) {
  const Kept kept(self);
  StepBatch batch;
  batch.columns = sources.columns;
  batch.finals = finals == nullptr ? nullptr : finals->columns;
  batch.terminated = reinterpret_cast<const std::uint8_t*>(sources.columns[self.terminated]);
  batch.truncated = reinterpret_cast<const std::uint8_t*>(sources.columns[self.truncated]);
  batch.raws = raws;
  batch.ids = ids;
  const Handle& handle = handle_of(kept.owner.ptr());
  Share share;
  if (timeout != nullptr || kept.buffer->limiter().active()) {
    const std::size_t n = std::max<std::size_t>(1, kept.writer->next_steps());
    if (!take_share(handle, Want::kAdd, n, timeout, share)) return false;
    if (self.writer != kept.writer) {
      throw Error(ErrorCode::kClosed, "the writer was closed while this call waited");
    }
  }
  write(kept, handle, batch);
  share.keep();
  return true;
}

// The ids of the rows: a vector, or one number for the values of one step of one stream.
PyObject* append_rows(const WriterHandle& self, const Sources& sources, const Sources* finals,
                      const float* raws, PyObject* timeout, bool single) {
  if (single) {
    std::int64_t id = 0;
    if (!append(self, sources, finals, raws, &id, timeout)) return nullptr;
    return PyLong_FromLongLong(id);
  }
  const auto n = static_cast<npy_intp>(self.streams);
  PyObject* ids = PyArray_SimpleNew(1, &n, NPY_INT64);
  if (ids == nullptr) return nullptr;
  auto* out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids)));
  try {
    if (!append(self, sources, finals, raws, out, timeout)) Py_CLEAR(ids);
  } catch (...) {
    Py_DECREF(ids);
    throw;
  }
  return ids;
}

// The values of all streams; or of one, without a leading dimension. False when they need the slow
// path.
bool read_all(const WriterHandle& self, const Handle& handle, PyObject* const* values,
              PyObject* final_obs, Sources& sources, Sources& finals, Scratch& scratch,
              bool single) {
  const auto read = [&](PyObject* value, const ColumnType& type) {
    if (type.item != 0) return static_cast<const std::byte*>(nullptr);
    if (single) return read_value(value, type, scratch);
    auto n = static_cast<npy_intp>(self.streams);
    return read_values(value, type, n);
  };
  return read_fields(handle, values, sources, read) &&
         (final_obs == nullptr || read_field(handle, *self.obs, final_obs, finals, read));
}

// Takes over the buffer of `owner`, whose columns are known. Of threads that do so at once the
// first one counts.
void open(WriterHandle& self, nb::object owner, std::size_t streams, std::uint32_t autoreset,
          const std::vector<bool>& observed, int reward, std::size_t terminated,
          std::size_t truncated) {
  if (self.closed) throw Error(ErrorCode::kClosed, "the writer is closed");
  if (self.writer) return;
  const Handle& handle = handle_of(owner.ptr());
  if (!handle.buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  for (const Field& field : handle.fields) {
    if (PyUnicode_CompareWithASCIIString(field.key, "obs") == 0) self.obs = &field;
  }
  if (self.obs == nullptr || terminated >= handle.types.size() ||
      truncated >= handle.types.size()) {
    throw Error(ErrorCode::kInvalidArgument, "steps have obs, terminated and truncated");
  }
  self.writer = std::make_shared<StepWriter>(*handle.buffer, streams,
                                             static_cast<Autoreset>(autoreset), observed, reward);
  self.buffer = handle.buffer;
  self.streams = streams;
  self.same_step = static_cast<Autoreset>(autoreset) == Autoreset::SameStep;
  self.terminated = terminated;
  self.truncated = truncated;
  self.owner = std::move(owner);
}

// Appends what the Python class brought into shape: one array per column.
nb::object append_prepared(WriterHandle& self, const std::vector<nb::object>& arrays,
                           const nb::object& finals, const nb::object& raws,
                           const nb::object& timeout, bool single) {
  if (!self.writer || !self.handle().buffer) {
    throw Error(ErrorCode::kClosed, "the writer is closed");
  }
  const Kept kept(self);
  const Handle& handle = handle_of(kept.owner.ptr());
  // Of the steps, and behind them of last observations.
  std::vector<RaggedInput> ragged(2 * handle.types.size());
  const auto read = [&](const std::vector<nb::object>& given, Sources& sources, std::size_t from) {
    for (std::size_t c = 0; c < handle.types.size(); ++c) {
      sources.columns[c] = nullptr;
      if (given[c].is_none()) continue;
      auto n = static_cast<npy_intp>(self.streams);
      PyObject* value = given[c].ptr();
      if (handle.types[c].item == 0) {
        sources.columns[c] = read_values(value, handle.types[c], n);
      } else if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2 &&
                 ragged[from + c].read(PyTuple_GET_ITEM(value, 0), PyTuple_GET_ITEM(value, 1),
                                       handle.types[c], n)) {
        sources.columns[c] = ragged[from + c].place();
      }
      if (sources.columns[c] == nullptr) {
        throw Error(
            ErrorCode::kSchemaMismatch,
            "the values of column '" + kept.buffer->layout().schema[c].name + "' do not fit");
      }
    }
  };
  Sources sources;
  Sources last;
  read(arrays, sources, 0);
  const bool ended = !finals.is_none();
  if (ended) read(nb::cast<std::vector<nb::object>>(finals), last, handle.types.size());
  std::vector<float> priorities;
  if (!raws.is_none() &&
      !read_priorities(raws.ptr(), static_cast<npy_intp>(self.streams), priorities)) {
    throw Error(ErrorCode::kInvalidArgument, "priority must be finite and >= 0");
  }
  PyObject* ids = append_rows(self, sources, ended ? &last : nullptr,
                              priorities.empty() ? nullptr : priorities.data(),
                              timeout.is_none() ? nullptr : timeout.ptr(), single);
  if (ids == nullptr) throw nb::python_error();
  return nb::steal(ids);
}

// What a call of another thread still writes, it writes; the episodes are cut when it is done.
void close(WriterHandle& self) {
  self.closed = true;
  const nb::object owner = std::move(self.owner);
  const std::shared_ptr<Buffer> buffer = std::move(self.buffer);
  const std::shared_ptr<StepWriter> writer = std::move(self.writer);
  if (writer) writer->close();
}

// The buffer may know its writer, as an attribute: such a pair is garbage to be found.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const WriterHandle& writer = writer_of(self);
  Py_VISIT(writer.owner.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (nb::inst_ready(nb::handle(self))) close(writer_of(self));
  return 0;
}

// clang-format off
PyMethodDef writer_methods[] = {
    {"append", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(py_append)),
     METH_FASTCALL | METH_KEYWORDS,
     "append($self, /, *values, final_obs=None, priority=None, timeout=None, **columns)\n--\n\n"
     "Write one step of every stream: the observation the action was chosen on, the action, and the reward and\n"
     "flags that followed, each with a leading dimension of `streams`. Returns the row ids.\n\n"
     "With autoreset=\"same_step\" `final_obs` has the last observation of each stream whose flag is set."},
    {nullptr, nullptr, 0, nullptr},
};
// clang-format on

PyType_Slot writer_slots[] = {{Py_tp_methods, writer_methods},
                              {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear)},
                              {0, nullptr}};

}  // namespace

PyObject* py_append(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) try {
  const WriterHandle& writer = writer_of(self);
  if (writer.writer && writer.handle().buffer) {
    PyObject* values[kMaxColumns];
    Options options;
    Sources sources;
    Sources finals;
    Scratch scratch;
    std::vector<float> raws;
    const Kept kept(writer);
    const Handle& handle = handle_of(kept.owner.ptr());
    if (values_by_field(handle, args, nargs, kwnames, values, options) &&
        (options.final_obs == nullptr || writer.same_step)) {
      bool alone = false;
      bool good =
          read_all(writer, handle, values, options.final_obs, sources, finals, scratch, false);
      if (!good && PyErr_Occurred() == nullptr && writer.streams == 1 && handle.buffer) {
        alone = good =
            read_all(writer, handle, values, options.final_obs, sources, finals, scratch, true);
      }
      if (good && options.priority != nullptr) {
        good = read_priorities(options.priority, static_cast<npy_intp>(writer.streams), raws);
      }
      // Looking up the keys of a dict can run Python code, which may close everything.
      if (good && writer.writer && handle.buffer) {
        return append_rows(writer, sources, options.final_obs != nullptr ? &finals : nullptr,
                           raws.empty() ? nullptr : raws.data(), options.timeout, alone);
      }
    }
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  return call_slow(self, names.slow_append, args, nargs, kwnames);
} catch (...) {
  set_current_error();
  return nullptr;
}

void bind_writer(nb::module_& m) {
  nb::class_<WriterHandle>(m, "Writer", nb::type_slots(writer_slots), nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("_open", &open)
      .def("_append_prepared", &append_prepared, nb::arg(), nb::arg().none(), nb::arg().none(),
           nb::arg().none(), nb::arg())
      .def("_is_open", [](const WriterHandle& w) { return w.writer != nullptr; })
      .def(
          "_ending",
          [](const WriterHandle& w) { return w.writer ? w.writer->ending() : std::vector<bool>(); })
      .def("_end",
           [](const WriterHandle& w, std::size_t stream) {
             if (w.writer) w.writer->end(stream);
           })
      .def("_close", &close);
}

}  // namespace replay_buffer::python
