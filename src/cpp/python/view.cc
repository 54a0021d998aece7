// The Python object around a view: _core.View, and its sample.
#include "python/view.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/view.h"
#include "python/batch.h"
#include "python/errors.h"
#include "python/handle.h"
#include "python/ragged.h"
#include "python/share.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

// name, role, column, stacked, dtype, shape of one item (without the time)
using OutputArgument =
    std::tuple<std::string, std::uint32_t, int, bool, std::uint32_t, std::vector<std::uint64_t>>;

// Every column once, those of the observation twice, all rows of each, and what stands beside them.
constexpr std::size_t kMaxOutputs = 3 * kMaxColumns + 8;

// Empty until the columns are known; then every call goes to the Python class, as with Handle.
struct ViewHandle {
  nb::object owner;                // the Python object of the buffer
  std::shared_ptr<Buffer> buffer;  // outlives the view
  std::unique_ptr<View> view;
  std::vector<Output> outputs;  // without their memory
  std::vector<ColumnType> types;
  std::vector<Field> fields;
  std::size_t time = 0;
  mutable std::atomic<std::uint64_t> calls{0};  // of make()

  const Handle& handle() const { return handle_of(owner.ptr()); }
};

ViewHandle& view_of(PyObject* self) {
  static ViewHandle never_opened;
  const nb::handle object(self);
  return nb::inst_ready(object) ? *nb::inst_ptr<ViewHandle>(object) : never_opened;
}

bool timed(Role role) { return role >= Role::kStep && role <= Role::kIds; }

// What an array holds whose items have so many steps.
ColumnType with_time(ColumnType type, std::size_t time) {
  const auto steps = static_cast<npy_intp>(time);
  if (type.item == 0) return with_first(type, steps);
  type.time = steps;
  return type;
}

ViewSpec to_spec(const nb::dict& given) {
  ViewSpec spec;
  const auto get = [&](const char* name, auto& value) {
    value = nb::cast<std::decay_t<decltype(value)>>(given[name]);
  };
  get("stack", spec.stack);
  get("sequence", spec.sequence);
  get("steps", spec.steps);
  get("gamma", spec.gamma);
  get("length", spec.length);
  get("burn_in", spec.burn_in);
  get("period", spec.period);
  get("pad", spec.pad);
  get("cross", spec.cross);
  get("whole", spec.whole);
  spec.goal = static_cast<GoalStrategy>(nb::cast<std::uint32_t>(given["goal"]));
  get("goal_k", spec.goal_k);
  get("reward", spec.reward);
  get("terminated", spec.terminated);
  get("truncated", spec.truncated);
  for (const auto& [obs, next_obs] : nb::cast<std::vector<std::pair<int, int>>>(given["follows"])) {
    spec.follows.push_back({obs, next_obs});
  }
  return spec;
}

// Each array of a batch, and each dict of them, has a name of its own.
void check_names(const Schema& arrays) {
  std::vector<std::string> called{"indices/", "weights/"};
  for (const Column& array : arrays) {
    called.push_back(array.name + "/");
    if (array.padded) called.push_back(array.name + "_mask/");
  }
  std::sort(called.begin(), called.end());  // what is in a dict comes behind its name
  const auto twice = std::adjacent_find(
      called.begin(), called.end(),
      [](const auto& one, const auto& next) { return next.compare(0, one.size(), one) == 0; });
  if (twice == called.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "two arrays of a view are called '" + twice->substr(0, twice->size() - 1) + "'");
}

// Takes over the buffer of `owner`, whose columns are known. Of threads that do so at once the
// first one counts: a view stays what it is, so that calls without the GIL may use it.
void open(ViewHandle& self, nb::object owner, const nb::dict& spec,
          const std::vector<OutputArgument>& outputs) {
  if (self.view) return;
  if (outputs.size() > kMaxOutputs) {
    throw Error(ErrorCode::kInvalidArgument, "a view of so many columns cannot be made");
  }
  const Handle& handle = handle_of(owner.ptr());
  if (!handle.buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  auto view = std::make_unique<View>(handle.buffer->ring(), to_spec(spec));
  Schema schema;
  self.outputs.clear();
  self.types.clear();
  const std::size_t time = view->spec().burn_in + view->spec().length;
  for (const auto& [name, role, column, stacked, dtype, shape] : outputs) {
    Column described{name, static_cast<DType>(dtype), shape, 0};
    if (column >= 0 && handle.types.at(static_cast<std::size_t>(column)).item != 0) {
      described = handle.buffer->layout().schema[static_cast<std::size_t>(column)];
      described.name = name;
    }
    const auto kind = static_cast<Role>(role);
    // Where the time is not known yet, make() is told it.
    const std::size_t steps = std::max<std::size_t>(1, time);
    if (timed(kind) && !described.variable())
      described.shape.insert(described.shape.begin(), steps);
    schema.push_back(described);
    const ColumnType type = column_type(described);
    self.types.push_back(timed(kind) ? with_time(type, steps) : type);
    self.outputs.push_back({kind, column, stacked, nullptr});
  }
  check_names(schema);
  self.fields = make_fields(schema);
  self.time = time;
  self.view = std::move(view);
  self.buffer = handle.buffer;
  self.owner = std::move(owner);
}

// What the outputs of a view are, and the arrays they go to.
struct Outputs {
  Outputs(const std::vector<Output>& described, std::byte* const* columns) : n(described.size()) {
    for (std::size_t i = 0; i < n; ++i) {
      all[i] = described[i];
      all[i].to = columns[i];
    }
  }
  operator std::span<const Output>() const { return {all, n}; }

  std::size_t n;
  Output all[kMaxOutputs];
};

// The work of the items of a batch.
std::size_t items_work(const Handle& handle, const View& view, const ViewBatch& batch) {
  const std::size_t walk = view.spec().steps * os::kLookWork;
  return batch.rows * (handle.work_of(view.item_bytes(batch)) + os::kFindWork + walk);
}

void finish(const Handle& handle, const std::shared_ptr<Buffer>& buffer, Draw& draw,
            const View& view, const ViewBatch& batch, float beta) {
  const CoreCall call(handle, items_work(handle, view, batch));
  buffer->finish(draw, view, batch, beta);
}

// A fast call leaves to `slow` what is not plain, and what has to wait.
template <class Slow>
PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                 bool fast, Slow&& slow) {
  Request request;
  try {
    const ViewHandle& view = view_of(self);
    if (!view.view || !read_request(args, nargs, kwnames, request)) return slow();
    const nb::object owner = view.owner;  // what a schedule does may end the view
    const Handle& handle = handle_of(owner.ptr());
    const std::shared_ptr<Buffer> buffer = handle.buffer;
    if (!buffer) return slow();
    const bool weighted = handle.weighted();
    const npy_intp n = batch_size_of(request);
    if (n == 0 || (request.beta != nullptr && !weighted)) return slow();
    Share share;
    float beta = 0;
    if (!prepare_draw(owner.ptr(), handle, request, n, fast, share, beta)) {
      return PyErr_Occurred() != nullptr ? nullptr : slow();
    }
    Draw draw(static_cast<std::size_t>(n));
    buffer->begin(draw, *view.view);  // the rows come into the cache while the arrays are made
    std::byte* columns[kMaxOutputs];
    Arrays arrays;
    const bool made = make_arrays(view.types, view.fields, n, request.out, true, columns, arrays);
    RaggedOutput ragged(view.types, n, columns);
    if (!made || !ragged.own(view.types, view.fields, request.out)) {
      arrays.result.reset();
      share.give_back();
      return PyErr_Occurred() != nullptr ? nullptr : slow();
    }
    ViewBatch batch;
    batch.rows = static_cast<std::size_t>(n);
    batch.time = view.time;
    batch.ids = arrays.ids;
    if (weighted) {
      batch.weights = arrays.weights;
    } else {
      std::fill_n(arrays.weights, n, 1.0F);
    }
    const Outputs outputs(view.outputs, columns);
    batch.outputs = outputs;
    finish(handle, buffer, draw, *view.view, batch, beta);
    if (!ragged.put(view.types, view.fields, arrays.result.get())) return nullptr;
    share.keep();
    return arrays.result.release();
  } catch (const Error& error) {
    if (!(fast && waits_for(error, request))) {
      set_error(error);
      return nullptr;
    }
  } catch (...) {
    set_current_error();
    return nullptr;
  }
  return slow();
}

[[noreturn]] void throw_does_not_fit() {
  throw Error(ErrorCode::kSchemaMismatch, "the arrays in `out` do not fit the view");
}

const ViewHandle& opened(const ViewHandle& self) {
  if (!self.view || !self.handle().buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  return self;
}

// What the view makes of rows by id, with room for `time` steps: new arrays, or those of `out`.
// Which of them it could not, and how many.
nb::object make(const ViewHandle& self, const nb::object& ids, std::size_t time,
                const nb::object& out) {
  opened(self);
  PyObject* const given = out.is_none() ? nullptr : out.ptr();
  const npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  std::vector<ColumnType> types = self.types;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (timed(self.outputs[i].role)) types[i] = with_time(types[i], time);
  }
  const nb::object result = given == nullptr ? nb::object(nb::dict()) : out;
  std::byte* columns[kMaxOutputs];
  Held held;
  const bool made = given == nullptr ? new_columns(types, self.fields, n, result.ptr(), columns)
                                     : own_columns(types, self.fields, n, given, columns, held);
  RaggedOutput ragged(types, n, columns);
  if (!made || !held.apart() || !ragged.own(types, self.fields, given)) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    throw_does_not_fit();
  }
  nb::object not_made = nb::steal(PyArray_SimpleNew(1, &n, NPY_BOOL));
  if (!not_made.is_valid()) throw nb::python_error();
  std::vector<std::int64_t> found(static_cast<std::size_t>(n));
  const Outputs outputs(self.outputs, columns);
  ViewBatch batch;
  batch.rows = static_cast<std::size_t>(n);
  batch.time = time;
  batch.outputs = outputs;
  batch.ids = found.data();
  const auto data = [](const nb::object& array) {
    return PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr()));
  };
  const auto* wanted = static_cast<const std::int64_t*>(data(ids));
  auto* flags = static_cast<std::uint8_t*>(data(not_made));
  const std::shared_ptr<Buffer> keep = self.buffer;
  const nb::object owner = self.owner;  // another thread may end the view
  const Handle& handle = self.handle();
  std::size_t count = 0;
  {
    const CoreCall call(handle, items_work(handle, *self.view, batch));
    count = keep->make(*self.view, {wanted, static_cast<std::size_t>(n)}, batch, flags,
                       self.calls.fetch_add(1, std::memory_order_relaxed));
  }
  if (!ragged.put(types, self.fields, result.ptr())) throw nb::python_error();
  return nb::make_tuple(result, not_made, count);
}

nb::object starts(const ViewHandle& self) {
  opened(self);
  const std::shared_ptr<Buffer> keep = self.buffer;
  std::vector<Place> found;
  {
    const CoreCall call(0);  // the core knows how many rows there are to look at
    found = keep->starts(*self.view, 0);
  }
  const auto n = static_cast<npy_intp>(found.size());
  nb::object ids = nb::steal(PyArray_SimpleNew(1, &n, NPY_INT64));
  if (!ids.is_valid()) throw nb::python_error();
  auto* out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids.ptr())));
  for (const Place& row : found) *out++ = static_cast<std::int64_t>(row.id());
  return ids;
}

PyObject* py_view_sample_prepared(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                  PyObject* kwnames) {
  return sample(self, args, nargs, kwnames, false, [&]() -> PyObject* {
    opened(view_of(self));
    throw_does_not_fit();
  });
}

PyCFunction as_method(PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// clang-format off
PyMethodDef view_methods[] = {
    {"sample", as_method(py_view_sample), METH_FASTCALL | METH_KEYWORDS,
     "sample($self, /, batch_size, *, out=None, beta=None, timeout=None)\n--\n\n"
     "Draw a batch of what the view makes of rows; see ReplayBuffer.sample."},
    {"_sample_prepared", as_method(py_view_sample_prepared), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
// clang-format on

// The buffer may know its view, as an attribute: such a pair is garbage to be found.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const ViewHandle& view = view_of(self);
  Py_VISIT(view.owner.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(nb::handle(self))) return 0;
  ViewHandle& view = view_of(self);
  view.view.reset();
  const std::shared_ptr<Buffer> buffer = std::move(view.buffer);
  const nb::object owner = std::move(view.owner);
  return 0;
}

PyType_Slot view_slots[] = {{Py_tp_methods, view_methods},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear)},
                            {0, nullptr}};

}  // namespace

PyObject* py_view_sample(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                         PyObject* kwnames) {
  return sample(self, args, nargs, kwnames, true,
                [&] { return call_slow(self, names.slow_sample, args, nargs, kwnames); });
}

void bind_view(nb::module_& m) {
  nb::class_<ViewHandle>(m, "View", nb::type_slots(view_slots), nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("_open", &open)
      .def("_is_open", [](const ViewHandle& v) { return v.view != nullptr; })
      .def("_make", &make, nb::arg("ids"), nb::arg("time"), nb::arg("out") = nb::none())
      .def("_starts", &starts);
}

}  // namespace replay_buffer::python
