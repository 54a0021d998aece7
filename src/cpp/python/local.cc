// _core.Local: what can be done to an open segment, on arguments that were checked.
#include "python/local.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/batch.h"
#include "python/errors.h"
#include "python/ragged.h"
#include "python/share.h"

namespace nb = nanobind;

namespace replay_buffer::python {

void use(Local& local, std::shared_ptr<Buffer> buffer) {
  const Layout& layout = buffer->layout();
  local.types.clear();
  for (const Column& column : layout.schema) local.types.push_back(column_type(column));
  local.fields = make_fields(layout.schema);
  local.ragged = local.squeezed = false;
  for (const Column& column : layout.schema) {
    local.ragged |= column.variable();
    local.squeezed |= column.codec != Codec::kNone;
  }
  local.beta = layout.settings.beta;
  local.steps = layout.has_steps();
  local.row_work = os::kFindWork + local.work_of(layout.row_bytes);
  local.on_disk = buffer->ring().segment->location().kind == Location::Kind::kFile;
  local.slow_disk = local.on_disk;  // until the first call shows that it is not
  local.buffer = std::move(buffer);
}

Buffer& opened(const Local& local) {
  if (!local.buffer) throw Error(ErrorCode::kClosed, "the buffer is closed");
  local.buffer->mend_after_fork();
  return *local.buffer;
}

namespace {

Priorities const& priorities_of(const Local& local) {
  const auto& priorities = opened(local).ring().priorities;
  if (!priorities) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "this buffer keeps no priorities: its strategy is neither 'prioritized' nor 'rank'");
  }
  return *priorities;
}

std::byte* bytes_of(nb::handle array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

nb::object new_vector(npy_intp n, int numpy_type) {
  PyObject* array = PyArray_SimpleNew(1, &n, numpy_type);
  if (array == nullptr) throw nb::python_error();
  return nb::steal(array);
}

// NumPy's own copy would let go of the GIL.
nb::object copy_of(const nb::object& ids, npy_intp n) {
  nb::object copy = new_vector(n, NPY_INT64);
  std::memcpy(bytes_of(copy), bytes_of(ids), static_cast<std::size_t>(n) * sizeof(std::int64_t));
  return copy;
}

// Adds rows whose columns were brought into shape by the Python class: one array per column, or
// values and offsets.
nb::object write(const Local& local, npy_intp n, const std::vector<nb::object>& arrays,
                 const nb::object& raws, const nb::object& timeout) {
  Buffer& buffer = opened(local);
  if (arrays.size() != local.types.size()) {
    throw Error(ErrorCode::kInvalidArgument, "one array for each column is needed");
  }
  const std::byte* sources[kMaxColumns];
  std::vector<RaggedInput> ragged(arrays.size());
  for (std::size_t c = 0; c < arrays.size(); ++c) {
    PyObject* given = arrays[c].ptr();
    if (local.types[c].item == 0) {
      sources[c] = read_values(given, local.types[c], n);
    } else {
      const bool pair = PyTuple_CheckExact(given) && PyTuple_GET_SIZE(given) == 2;
      const bool fits = pair && ragged[c].read(PyTuple_GET_ITEM(given, 0),
                                               PyTuple_GET_ITEM(given, 1), local.types[c], n);
      sources[c] = fits ? ragged[c].place() : nullptr;
    }
    if (sources[c] == nullptr) {
      throw Error(ErrorCode::kSchemaMismatch,
                  "the values of column '" + buffer.layout().schema[c].name + "' do not fit");
    }
  }
  const auto* priorities =
      raws.is_none() ? nullptr : reinterpret_cast<const float*>(bytes_of(raws));
  nb::object ids = new_vector(n, NPY_INT64);
  {
    const std::shared_ptr<Buffer> keep = local.buffer;
    const auto count = static_cast<std::size_t>(n);
    Share share;
    if (!take_share(local, Want::kAdd, count, timeout.ptr(), share)) throw nb::python_error();
    const CoreCall call(local, count * local.row_work);
    keep->add(count, sources, priorities, reinterpret_cast<std::int64_t*>(bytes_of(ids)));
    share.keep();
  }
  return ids;
}

// Rows by id, which of them are gone, and how many.
nb::tuple read(const Local& local, const nb::object& ids) {
  opened(local);
  npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  nb::dict batch;
  std::byte* columns[kMaxColumns];
  if (!new_columns(local.types, local.fields, n, batch.ptr(), columns)) throw nb::python_error();
  nb::object gone = new_vector(n, NPY_BOOL);
  RaggedOutput ragged(local.types, n, columns);
  std::size_t count_gone = 0;
  {
    const std::shared_ptr<Buffer> keep = local.buffer;
    const auto count = static_cast<std::size_t>(n);
    const auto* wanted = reinterpret_cast<const std::int64_t*>(bytes_of(ids));
    auto* missing = reinterpret_cast<std::uint8_t*>(bytes_of(gone));
    const CoreCall call(local, count * local.row_work);
    count_gone = keep->get({wanted, count}, columns, missing);
  }
  if (!ragged.put(local.types, local.fields, batch.ptr())) throw nb::python_error();
  batch["indices"] = copy_of(ids, n);
  return nb::make_tuple(batch, gone, count_gone);
}

nb::object latest(const Local& local, npy_intp n) {
  opened(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  std::vector<std::int64_t> ids(std::min(static_cast<std::size_t>(n), keep->size()));
  {
    const CoreCall call(ids.size() * os::kLookWork);
    ids.resize(keep->latest(ids.size(), ids.data()));
  }
  nb::object out = new_vector(static_cast<npy_intp>(ids.size()), NPY_INT64);
  std::copy(ids.begin(), ids.end(), reinterpret_cast<std::int64_t*>(bytes_of(out)));
  return out;
}

// Raw priorities of rows, 0 of last observations, NaN of rows that are gone.
nb::object priorities(const Local& local, const nb::object& ids) {
  priorities_of(local);
  const npy_intp n = PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr()));
  nb::object out = new_vector(n, NPY_FLOAT32);
  const auto* wanted = reinterpret_cast<const std::int64_t*>(bytes_of(ids));
  auto* values = reinterpret_cast<float*>(bytes_of(out));
  const std::shared_ptr<Buffer> keep = local.buffer;
  const CoreCall call(static_cast<std::size_t>(n) * os::kFindWork);
  for (npy_intp i = 0; i < n; ++i) values[i] = keep->raw_of(wanted[i]);
  return out;
}

// Raw priorities become these magnitudes; how many rows were still there.
std::size_t set_priorities(const Local& local, const nb::object& ids, const nb::object& raws) {
  priorities_of(local);
  const auto n =
      static_cast<std::size_t>(PyArray_SIZE(reinterpret_cast<PyArrayObject*>(ids.ptr())));
  const auto* wanted = reinterpret_cast<const std::int64_t*>(bytes_of(ids));
  const std::shared_ptr<Buffer> keep = local.buffer;
  const CoreCall call(local, n * os::kFindWork);
  return keep->update({wanted, n}, {reinterpret_cast<const float*>(bytes_of(raws)), n}).applied;
}

void set_alpha(const Local& local, float alpha) {
  priorities_of(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  const CoreCall call(keep->capacity() * os::kLookWork);
  keep->set_alpha(alpha);
}

void clear(const Local& local) {
  opened(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  const CoreCall call(keep->capacity() * os::kLookWork);
  keep->clear();
}

// Rows added, rows drawn and batches drawn so far.
nb::tuple progress(const Local& local) {
  const Buffer& buffer = opened(local);
  const Ring& ring = buffer.ring();
  return nb::make_tuple(ring.rows_added(),
                        ring.counters().rows_sampled.load(std::memory_order_relaxed),
                        buffer.drawn());
}

// The state of the rate limiter; None where there is none.
nb::object limiter_state(const Buffer& buffer) {
  const Limiter& limiter = buffer.limiter();
  if (!limiter.active()) return nb::none();
  const Settings& s = buffer.layout().settings;
  nb::dict d;
  d["min_size"] = limiter.min_size();
  d["samples_per_insert"] = limiter.has_ratio() ? nb::cast(s.samples_per_insert) : nb::none();
  d["tolerance"] = s.tolerance;
  d["balance"] = limiter.balance();
  d["waiting"] = waiting_owners(buffer.ring(), buffer.owners()).size();
  return d;
}

// What compression has done so far; None where no column has any.
nb::object compression_state(const Local& local, const Stats& stats) {
  if (!local.squeezed) return nb::none();
  const auto kept = static_cast<double>(stats.bytes_kept);
  nb::dict d;
  d["bytes_in"] = stats.bytes_in;
  d["bytes_kept"] = stats.bytes_kept;
  d["ratio"] = kept == 0 ? nb::none() : nb::cast(static_cast<double>(stats.bytes_in) / kept);
  return d;
}

void close(Local& local) {
  std::shared_ptr<Buffer> last = std::move(local.buffer);
  local.buffer.reset();
  if (!last) return;
  if (last->limiter().active()) last->limiter().wake();  // who waits shall see it
  const CoreCall call(CoreCall::kWaits);  // to give memory back takes long, a file is written out
  last.reset();
}

// The episodes that ended: all in all, and the latest one by one, the newest last.
nb::dict episodes(const Buffer& buffer, const Stats& stats) {
  const std::uint64_t count = stats.episodes;
  nb::dict d;
  d["finished"] = count;
  d["steps"] = stats.episode_steps;
  d["return_sum"] = stats.return_sum;
  nb::list lengths;
  nb::list returns;
  for (std::uint64_t i = count < kEpisodeCount ? 0 : count - kEpisodeCount; i < count; ++i) {
    const Episode& one = buffer.ring().segment->episodes()[i % kEpisodeCount];
    const std::uint64_t steps = one.steps.load(std::memory_order_relaxed);
    if (steps == 0) continue;  // counted, and not yet told
    lengths.append(steps);
    returns.append(std::bit_cast<double>(one.return_bits.load(std::memory_order_relaxed)));
  }
  d["latest_lengths"] = lengths;
  d["latest_returns"] = returns;
  return d;
}

nb::dict counters(const Local& local) {
  const Buffer& buffer = opened(local);
  nb::dict d;
  const Stats stats = buffer.stats();
  d["size"] = stats.size;
  d["capacity"] = stats.capacity;
  d["block_rows"] = stats.block_rows;
  d["row_bytes"] = stats.row_bytes;
  d["raw_bytes"] = stats.raw_bytes;
  d["segment_bytes"] = stats.segment_bytes;
  d["resident_bytes"] = stats.resident_bytes;
  d["rows_added"] = stats.rows_added;
  d["rows_sampled"] = stats.rows_sampled;
  d["samples"] = stats.samples;
  d["updates_applied"] = stats.updates_applied;
  d["updates_stale"] = stats.updates_stale;
  d["limiter"] = limiter_state(buffer);
  if (buffer.layout().has_steps()) d["episodes"] = episodes(buffer, stats);
  d["compression"] = compression_state(local, stats);
  return d;
}

}  // namespace

void bind_local(nb::module_& m) {
  nb::class_<Local> local(m, "Local");
  bind_lifecycle(m, local);
  bind_watch(m, local);
  bind_in_place(m, local);
  bind_view(m, local);
  bind_writer(m, local);
  local.def("write", &write, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("draw", &draw_batch, nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("read", &read)
      .def("latest", &latest)
      .def("priorities", &priorities)
      .def("set_priorities", &set_priorities)
      .def("set_alpha", &set_alpha)
      .def("counters", &counters)
      .def("progress", &progress)
      .def("clear", &clear)
      .def("close", &close)
      .def("writable", [](const Local& l) { return opened(l).writable(); })
      .def("size", [](const Local& l) { return opened(l).size(); })
      .def("is_full", [](const Local& l) { return opened(l).is_full(); })
      .def("masses", [](const Local& l) {  // alpha, the sum of all, and the largest raw priority
        const Priorities& all = priorities_of(l);
        return nb::make_tuple(opened(l).ring().alpha(), all.tree().total(), all.max_raw());
      });
}

}  // namespace replay_buffer::python
