// The Python objects around a view: _core.Recipe, what it makes of an open segment, and _core.View,
// whose sample is fast.
#include "core/view.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "python/batch.h"
#include "python/local.h"
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

// Stays what it is, so that calls without the GIL may use it.
struct Recipe {
  nb::object keep;  // the Python object of the Local
  const Local* local;
  std::shared_ptr<Buffer> buffer;  // outlives the view
  std::unique_ptr<View> view;
  std::vector<Output> outputs;  // without their memory
  std::vector<ColumnType> types;
  std::vector<Field> fields;
  std::size_t time = 0;
  mutable std::atomic<std::uint64_t> calls{0};  // of make()
};

// What the fast calls of a view go to. Without a recipe, as until the columns are known, every call
// goes to the Python class, as with Handle.
struct ViewHandle {
  nb::object owner;  // the Python object of the buffer
  nb::object keep;   // that of the recipe
  const Recipe* recipe = nullptr;
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
std::size_t items_work(const Local& local, const View& view, const ViewBatch& batch) {
  const std::size_t walk = view.spec().steps * os::kLookWork;
  return batch.rows * (local.work_of(view.item_bytes(batch)) + os::kFindWork + walk);
}

// What a view makes of a segment.
std::unique_ptr<Recipe> recipe_of(const nb::pointer_and_handle<Local>& given, const nb::dict& spec,
                                  const std::vector<OutputArgument>& outputs) {
  if (outputs.size() > kMaxOutputs) {
    throw Error(ErrorCode::kInvalidArgument, "a view of so many columns cannot be made");
  }
  const Local& local = *given.p;
  opened(local);
  auto self = std::make_unique<Recipe>();
  self->keep = nb::borrow(given.h);
  self->local = given.p;
  self->buffer = local.buffer;
  self->view = std::make_unique<View>(local.buffer->ring(), to_spec(spec));
  self->time = self->view->spec().burn_in + self->view->spec().length;
  Schema schema;
  for (const auto& [name, role, column, stacked, dtype, shape] : outputs) {
    Column described{name, static_cast<DType>(dtype), shape, 0};
    if (column >= 0 && local.types.at(static_cast<std::size_t>(column)).item != 0) {
      described = local.buffer->layout().schema[static_cast<std::size_t>(column)];
      described.name = name;
    }
    const auto kind = static_cast<Role>(role);
    // Where the time is not known yet, make() is told it.
    const std::size_t steps = std::max<std::size_t>(1, self->time);
    if (timed(kind) && !described.variable())
      described.shape.insert(described.shape.begin(), steps);
    schema.push_back(described);
    const ColumnType type = column_type(described);
    self->types.push_back(timed(kind) ? with_time(type, steps) : type);
    self->outputs.push_back({kind, column, stacked, nullptr});
  }
  check_names(schema);
  self->fields = make_fields(schema);
  return self;
}

void finish(const Local& local, const std::shared_ptr<Buffer>& buffer, Draw& draw, const View& view,
            const ViewBatch& batch, float beta) {
  const CoreCall call(local, items_work(local, view, batch));
  buffer->finish(draw, view, batch, beta);
}

// Draws n items into new arrays or `out`. Null with an exception set; or without one where an array
// of the caller's does not fit, and nothing was drawn.
PyObject* draw_items(const Recipe& recipe, const Local& local,
                     const std::shared_ptr<Buffer>& buffer, npy_intp n, PyObject* out, float beta,
                     Share& share) {
  Draw draw(static_cast<std::size_t>(n));
  buffer->begin(draw, *recipe.view);  // the rows come into the cache while the arrays are made
  std::byte* columns[kMaxOutputs];
  Arrays arrays;
  const bool made = make_arrays(recipe.types, recipe.fields, n, out, true, columns, arrays);
  RaggedOutput ragged(recipe.types, n, columns);
  if (!made || !ragged.own(recipe.types, recipe.fields, out)) return nullptr;
  ViewBatch batch;
  batch.rows = static_cast<std::size_t>(n);
  batch.time = recipe.time;
  batch.ids = arrays.ids;
  if (buffer->ring().priorities) {
    batch.weights = arrays.weights;
  } else {
    std::fill_n(arrays.weights, n, 1.0F);
  }
  const Outputs outputs(recipe.outputs, columns);
  batch.outputs = outputs;
  finish(local, buffer, draw, *recipe.view, batch, beta);
  if (!ragged.put(recipe.types, recipe.fields, arrays.result.get())) return nullptr;
  share.keep();
  return arrays.result.release();
}

nb::object draw(const Recipe& self, npy_intp n, float beta, const nb::object& out,
                const nb::object& timeout) {
  return draw_patiently(*self.local, n, beta, out, timeout, "view",
                        [&](auto&&... with) { return draw_items(self, with...); });
}

// What is made of rows by id, with room for `time` steps: new arrays, or those of `out`. Which of
// them it could not, and how many.
nb::object make(const Recipe& self, const nb::object& ids, std::size_t time,
                const nb::object& out) {
  opened(*self.local);
  PyObject* const given = out.is_none() ? nullptr : out.ptr();
  const npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  std::vector<ColumnType> types = self.types;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (timed(self.outputs[i].role)) types[i] = with_time(types[i], time);
  }
  nb::object result = given == nullptr ? nb::object(nb::dict()) : out;
  std::byte* columns[kMaxOutputs];
  Held held;
  const bool made = given == nullptr ? new_columns(types, self.fields, n, result.ptr(), columns)
                                     : own_columns(types, self.fields, n, given, columns, held);
  RaggedOutput ragged(types, n, columns);
  if (!made || !held.apart() || !ragged.own(types, self.fields, given)) taken(nullptr, "view");
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
  std::size_t count = 0;
  {
    const CoreCall call(*self.local, items_work(*self.local, *self.view, batch));
    count = self.buffer->make(*self.view, {wanted, static_cast<std::size_t>(n)}, batch, flags,
                              self.calls.fetch_add(1, std::memory_order_relaxed));
  }
  if (!ragged.put(types, self.fields, result.ptr())) throw nb::python_error();
  return nb::make_tuple(result, not_made, count);
}

nb::object starts(const Recipe& self) {
  opened(*self.local);
  std::vector<Place> found;
  {
    const CoreCall call(0);  // the core knows how many rows there are to look at
    found = self.buffer->starts(*self.view, 0);
  }
  const auto n = static_cast<npy_intp>(found.size());
  nb::object ids = nb::steal(PyArray_SimpleNew(1, &n, NPY_INT64));
  if (!ids.is_valid()) throw nb::python_error();
  auto* out = static_cast<std::int64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids.ptr())));
  for (const Place& row : found) *out++ = static_cast<std::int64_t>(row.id());
  return ids;
}

// Of threads that do so at once the first one counts.
void aim(ViewHandle& self, nb::object owner, nb::object recipe) {
  if (self.recipe != nullptr) return;
  self.recipe = nb::cast<const Recipe*>(recipe);
  self.owner = std::move(owner);
  self.keep = std::move(recipe);
}

PyCFunction as_method(PyObject* (*f)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// clang-format off
PyMethodDef view_methods[] = {
    {"sample", as_method(py_view_sample), METH_FASTCALL | METH_KEYWORDS,
     "sample($self, /, batch_size, *, out=None, beta=None, timeout=None)\n--\n\n"
     "Draw a batch of what the view makes of rows; see ReplayBuffer.sample."},
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
  view.recipe = nullptr;
  const nb::object keep = std::move(view.keep);
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
  const ViewHandle& view = view_of(self);
  const nb::object owner = view.owner;  // what a schedule does may end the view
  const Handle* handle = view.recipe == nullptr ? nullptr : &handle_of(owner.ptr());
  const Call call{self, args, nargs, kwnames};
  return draw_fast(call, owner.ptr(), handle,
                   [&](auto&&... with) { return draw_items(*view.recipe, with...); });
}

void bind_view(nb::module_& m, nb::class_<Local>& local) {
  local.def("recipe", &recipe_of);
  nb::class_<Recipe>(m, "Recipe")
      .def("draw", &draw, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("make", &make, nb::arg(), nb::arg(), nb::arg().none())
      .def("starts", &starts);
  nb::class_<ViewHandle>(m, "View", nb::type_slots(view_slots), nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("_aim", &aim);
}

}  // namespace replay_buffer::python
