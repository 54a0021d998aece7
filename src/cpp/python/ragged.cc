#include "python/ragged.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace replay_buffer::python {
namespace {

std::byte* data_of(PyObject* array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
}

// Sets batch[key] and gives up the reference to `value`, which may be null with an exception set.
bool give(PyObject* batch, PyObject* key, PyObject* value) {
  if (value == nullptr) return false;
  const int status = PyDict_SetItem(batch, key, value);
  Py_DECREF(value);
  return status == 0;
}

// An array of n rows of up to `longest` items (n < 0: of `longest` items, row after row).
PyObject* new_items(const ColumnType& type, npy_intp n, npy_intp longest) {
  ColumnType shaped = type;
  shaped.shape[1] = longest;
  shaped.bytes = static_cast<std::size_t>(longest) * type.item;
  if (n >= 0) return new_values(shaped, n);
  std::copy(type.shape + 2, type.shape + 1 + type.dimensions, shaped.shape + 1);
  --shaped.dimensions;
  shaped.bytes = type.item;
  return new_values(shaped, longest);
}

PyObject* new_offsets(const ColumnType& type, const Pieces& pieces) {
  npy_intp n = static_cast<npy_intp>(pieces.rows()) + 1;
  PyObject* array = PyArray_SimpleNew(1, &n, NPY_INT64);
  if (array == nullptr) return nullptr;
  auto* offsets = reinterpret_cast<std::int64_t*>(data_of(array));
  offsets[0] = 0;
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    offsets[row + 1] = offsets[row] + static_cast<std::int64_t>(pieces.size(row) / type.item);
  }
  return array;
}

void fill_values(const Pieces& pieces, std::byte* to) {
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    pieces.copy(row, to);
    to += pieces.size(row);
  }
}

void fill_padded(const Pieces& pieces, std::size_t longest, std::size_t item, std::byte* to,
                 std::byte* mask) {
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    const std::size_t size = pieces.size(row);
    pieces.copy(row, to);
    std::memset(to + size, 0, longest * item - size);
    std::memset(mask, 1, size / item);
    std::memset(mask + size / item, 0, longest - size / item);
    to += longest * item;
    mask += longest;
  }
}

}  // namespace

bool RaggedInput::read(PyObject* values, PyObject* offsets, const ColumnType& type, npy_intp& n) {
  npy_intp items = 0;
  const std::byte* data = read_items(values, type, items);
  if (data == nullptr) return false;
  ColumnType vector{};
  vector.dtype = DType::kInt64;
  vector.numpy_type = NPY_INT64;
  npy_intp ends = -1;
  const std::byte* given = read_values(offsets, vector, ends);
  if (given == nullptr || ends < 1 || (n >= 0 && ends != n + 1)) return false;
  const auto* first = reinterpret_cast<const std::int64_t*>(given);
  offsets_.assign(first, first + ends);
  if (offsets_.front() < 0 || offsets_.back() > items ||
      !std::is_sorted(offsets_.begin(), offsets_.end())) {
    return false;
  }
  n = ends - 1;
  ragged_ = {data, offsets_.data()};
  return true;
}

RaggedOutput::RaggedOutput(const std::vector<ColumnType>& types, npy_intp n, std::byte** columns,
                           std::span<const npy_intp> times)
    : n_(n) {
  const bool some = std::any_of(types.begin(), types.end(),
                                [](const ColumnType& type) { return type.item != 0; });
  if (!some) return;
  times_.assign(times.begin(), times.end());
  times_.resize(types.size(), 0);
  pieces_.resize(types.size());
  for (std::size_t c = 0; c < types.size(); ++c) {
    const ColumnType& type = types[c];
    if (type.item == 0) continue;
    const std::size_t room = std::min<std::size_t>(2 * type.expected * type.item, 64 * 1024);
    pieces_[c] = std::make_unique<Pieces>(
        static_cast<std::size_t>(n * std::max<npy_intp>(1, times_[c])), room);
    columns[c] = reinterpret_cast<std::byte*>(pieces_[c].get());
  }
}

bool RaggedOutput::put(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
                       PyObject* batch) const {
  if (pieces_.empty()) return true;
  for (const Field& field : fields) {
    if (field.column < 0) {
      PyObject* inner = PyDict_GetItemWithError(batch, field.key);
      if (inner == nullptr || !put(types, field.children, inner)) return false;
      continue;
    }
    const auto c = static_cast<std::size_t>(field.column);
    if (pieces_[c] && !put_column(types[c], c, field, batch)) return false;
  }
  return true;
}

bool RaggedOutput::put_column(const ColumnType& type, std::size_t column, const Field& field,
                              PyObject* batch) const {
  const Pieces& pieces = *pieces_[column];
  const auto n = static_cast<npy_intp>(pieces.rows());
  std::size_t sum = 0;
  std::size_t longest = 0;
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    sum += pieces.size(row);
    longest = std::max(longest, pieces.size(row) / type.item);
  }
  if (!type.padded) {
    PyObject* pair = PyDict_New();
    if (pair == nullptr) return false;
    PyObject* values = new_items(type, -1, static_cast<npy_intp>(sum / type.item));
    if (values != nullptr) {
      const MaybeRelease released(sum > kReleaseBytes);
      fill_values(pieces, data_of(values));
    }
    const bool made =
        give(pair, names.values, values) && give(pair, names.offsets, new_offsets(type, pieces));
    if (made) return give(batch, field.key, pair);
    Py_DECREF(pair);
    return false;
  }
  npy_intp shape[] = {n, static_cast<npy_intp>(longest)};
  PyObject* mask = PyArray_SimpleNew(2, shape, NPY_BOOL);
  PyObject* values = mask == nullptr ? nullptr : new_items(type, n, shape[1]);
  if (values != nullptr) {
    const MaybeRelease released(longest * type.item * pieces.rows() > kReleaseBytes);
    fill_padded(pieces, longest, type.item, data_of(values), data_of(mask));
  }
  const bool given = give(batch, field.key, by_time(values, column));
  return give(batch, field.mask, by_time(mask, column)) && given;
}

// An array of values one after the other, as [item, time, ...] where items have several.
PyObject* RaggedOutput::by_time(PyObject* values, std::size_t column) const {
  if (values == nullptr || times_[column] == 0) return values;
  auto* array = reinterpret_cast<PyArrayObject*>(values);
  npy_intp dims[kMaxDimensions + 3];
  const int n = PyArray_NDIM(array);
  dims[0] = n_;
  dims[1] = times_[column];
  std::copy(PyArray_DIMS(array) + 1, PyArray_DIMS(array) + n, dims + 2);
  PyArray_Dims shape{dims, n + 1};
  PyObject* shaped = PyArray_Newshape(array, &shape, NPY_CORDER);
  Py_DECREF(values);
  return shaped;
}

}  // namespace replay_buffer::python
