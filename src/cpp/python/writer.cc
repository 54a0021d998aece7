// The Python objects around a writer of steps: _core.LocalWriter, which writes to an open segment,
// and _core.Writer, whose append is fast.
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/step_writer.h"
#include "python/errors.h"
#include "python/local.h"
#include "python/ragged.h"
#include "python/share.h"
#include "python/sources.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

// Without a writer after close(). All access is with the GIL; a call that lets go of it, or runs
// Python code, keeps what it needs (Kept): another thread may close the writer meanwhile.
struct LocalWriter {
  nb::object keep;  // the Python object of the Local
  const Local* local;
  std::shared_ptr<Buffer> buffer;  // outlives the writer
  std::shared_ptr<StepWriter> writer;
  std::size_t streams;
  bool same_step;
  std::size_t terminated;  // columns
  std::size_t truncated;
  const Field* obs = nullptr;

  bool open() const { return writer && local->buffer; }
};

// What append goes to. Without one, as until the columns are known, every call goes to the Python
// class, as with Handle.
struct WriterHandle {
  nb::object keep;  // its Python object
  const LocalWriter* writer = nullptr;
};

WriterHandle& writer_of(PyObject* self) {
  static WriterHandle never_opened;
  const nb::handle object(self);
  return nb::inst_ready(object) ? *nb::inst_ptr<WriterHandle>(object) : never_opened;
}

// What a call needs to the end, whoever closes the writer.
struct Kept {
  explicit Kept(const LocalWriter& self) : buffer(self.buffer), writer(self.writer) {}

  std::shared_ptr<Buffer> buffer;
  std::shared_ptr<StepWriter> writer;
};

void write(const Kept& kept, const Local& local, const StepBatch& batch) {
  const CoreCall call(local, kept.writer->streams() * local.row_work);
  kept.writer->append(batch);
}

// False with an exception set.
bool append(const LocalWriter& self, const Sources& sources, const Sources* finals,
            const float* raws, std::int64_t* ids, PyObject* timeout) {
  const Kept kept(self);
  StepBatch batch;
  batch.columns = sources.columns;
  batch.finals = finals == nullptr ? nullptr : finals->columns;
  batch.terminated = reinterpret_cast<const std::uint8_t*>(sources.columns[self.terminated]);
  batch.truncated = reinterpret_cast<const std::uint8_t*>(sources.columns[self.truncated]);
  batch.raws = raws;
  batch.ids = ids;
  Share share;
  if (timeout != nullptr || kept.buffer->limiter().active()) {
    const std::size_t n = std::max<std::size_t>(1, kept.writer->next_steps());
    if (!take_share(*self.local, Want::kAdd, n, timeout, share)) return false;
    if (self.writer != kept.writer) {
      throw Error(ErrorCode::kClosed, "the writer was closed while this call waited");
    }
  }
  write(kept, *self.local, batch);
  share.keep();
  return true;
}

// The ids of the rows: a vector, or one number for the values of one step of one stream.
PyObject* append_rows(const LocalWriter& self, const Sources& sources, const Sources* finals,
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
bool read_all(const LocalWriter& self, PyObject* const* values, PyObject* final_obs,
              Sources& sources, Sources& finals, Scratch& scratch, bool single) {
  const auto read = [&](PyObject* value, const ColumnType& type) {
    if (type.item != 0) return static_cast<const std::byte*>(nullptr);
    if (single) return read_value(value, type, scratch);
    auto n = static_cast<npy_intp>(self.streams);
    return read_values(value, type, n);
  };
  return read_fields(*self.local, values, sources, read) &&
         (final_obs == nullptr || read_field(*self.local, *self.obs, final_obs, finals, read));
}

std::unique_ptr<LocalWriter> open(const nb::pointer_and_handle<Local>& given, std::size_t streams,
                                  std::uint32_t autoreset, const std::vector<bool>& observed,
                                  int reward, std::size_t terminated, std::size_t truncated) {
  const Local& local = *given.p;
  Buffer& buffer = opened(local);
  const auto reset = static_cast<Autoreset>(autoreset);
  auto self = std::make_unique<LocalWriter>();
  for (const Field& field : local.fields) {
    if (PyUnicode_CompareWithASCIIString(field.key, "obs") == 0) self->obs = &field;
  }
  if (self->obs == nullptr || terminated >= local.types.size() || truncated >= local.types.size()) {
    throw Error(ErrorCode::kInvalidArgument, "steps have obs, terminated and truncated");
  }
  self->keep = nb::borrow(given.h);
  self->local = given.p;
  self->buffer = local.buffer;
  self->writer = std::make_shared<StepWriter>(buffer, streams, reset, observed, reward);
  self->streams = streams;
  self->same_step = reset == Autoreset::SameStep;
  self->terminated = terminated;
  self->truncated = truncated;
  return self;
}

// Appends what the Python class brought into shape: one array per column.
nb::object append_prepared(const LocalWriter& self, const std::vector<nb::object>& arrays,
                           const nb::object& finals, const nb::object& raws,
                           const nb::object& timeout) {
  if (!self.open()) throw Error(ErrorCode::kClosed, "the writer is closed");
  const Kept kept(self);
  const Local& local = *self.local;
  // Of the steps, and behind them of last observations.
  std::vector<RaggedInput> ragged(2 * local.types.size());
  const auto read = [&](const std::vector<nb::object>& given, Sources& sources, std::size_t from) {
    for (std::size_t c = 0; c < local.types.size(); ++c) {
      sources.columns[c] = nullptr;
      if (given[c].is_none()) continue;
      auto n = static_cast<npy_intp>(self.streams);
      PyObject* value = given[c].ptr();
      if (local.types[c].item == 0) {
        sources.columns[c] = read_values(value, local.types[c], n);
      } else if (PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == 2 &&
                 ragged[from + c].read(PyTuple_GET_ITEM(value, 0), PyTuple_GET_ITEM(value, 1),
                                       local.types[c], n)) {
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
  if (ended) read(nb::cast<std::vector<nb::object>>(finals), last, local.types.size());
  std::vector<float> priorities;
  if (!raws.is_none() &&
      !read_priorities(raws.ptr(), static_cast<npy_intp>(self.streams), priorities)) {
    throw Error(ErrorCode::kInvalidArgument, "priority must be finite and >= 0");
  }
  PyObject* ids = append_rows(self, sources, ended ? &last : nullptr,
                              priorities.empty() ? nullptr : priorities.data(),
                              timeout.is_none() ? nullptr : timeout.ptr(), false);
  if (ids == nullptr) throw nb::python_error();
  return nb::steal(ids);
}

// What a call of another thread still writes, it writes; the episodes are cut when it is done.
void close(LocalWriter& self) {
  const std::shared_ptr<Buffer> buffer = std::move(self.buffer);
  const std::shared_ptr<StepWriter> writer = std::move(self.writer);
  if (writer) writer->close();
}

void aim(WriterHandle& self, nb::object writer) {
  self.writer = nb::cast<const LocalWriter*>(writer);
  self.keep = std::move(writer);
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

PyType_Slot writer_slots[] = {{Py_tp_methods, writer_methods}, {0, nullptr}};

}  // namespace

PyObject* py_append(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                    PyObject* kwnames) try {
  const LocalWriter* const writer = writer_of(self).writer;
  if (writer != nullptr && writer->open()) {
    PyObject* values[kMaxColumns];
    Options options;
    Sources sources;
    Sources finals;
    Scratch scratch;
    std::vector<float> raws;
    const Kept kept(*writer);
    const Local& local = *writer->local;
    if (values_by_field(local, args, nargs, kwnames, values, options) &&
        (options.final_obs == nullptr || writer->same_step)) {
      bool alone = false;
      bool good = read_all(*writer, values, options.final_obs, sources, finals, scratch, false);
      if (!good && PyErr_Occurred() == nullptr && writer->streams == 1 && local.buffer) {
        alone = good = read_all(*writer, values, options.final_obs, sources, finals, scratch, true);
      }
      if (good && options.priority != nullptr) {
        good = read_priorities(options.priority, static_cast<npy_intp>(writer->streams), raws);
      }
      // Looking up the keys of a dict can run Python code, which may close everything.
      if (good && writer->open()) {
        return append_rows(*writer, sources, options.final_obs != nullptr ? &finals : nullptr,
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

void bind_writer(nb::module_& m, nb::class_<Local>& local) {
  local.def("writer", &open);
  nb::class_<LocalWriter>(m, "LocalWriter")
      .def("append", &append_prepared, nb::arg(), nb::arg().none(), nb::arg().none(),
           nb::arg().none())
      .def("ending",
           [](const LocalWriter& w) { return w.writer ? w.writer->ending() : std::vector<bool>(); })
      .def("end",
           [](const LocalWriter& w, std::size_t stream) {
             if (w.writer) w.writer->end(stream);
           })
      .def("close", &close);
  nb::class_<WriterHandle>(m, "Writer", nb::type_slots(writer_slots), nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("_aim", &aim);
}

}  // namespace replay_buffer::python
