#include "python/ragged.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace replay_buffer::python {
namespace {

std::byte* data_of(PyObject* array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
}

npy_intp length_of(const Reference& array, std::size_t dimension) {
  return PyArray_DIM(reinterpret_cast<PyArrayObject*>(array.get()), static_cast<int>(dimension));
}

// What a dict of the caller's has for a key, kept; null with or without an exception.
Reference taken(PyObject* dict, PyObject* key) {
  return Reference(Py_XNewRef(PyDict_GetItemWithError(dict, key)));
}

bool give(PyObject* dict, PyObject* key, const Reference& value) {
  return PyDict_SetItem(dict, key, value.get()) == 0;
}

ColumnType type_of_offsets() {
  ColumnType type{};
  type.dtype = DType::kInt64;
  type.numpy_type = NPY_INT64;
  type.bytes = sizeof(std::int64_t);
  return type;
}

ColumnType type_of_mask() {
  ColumnType type{};
  type.dtype = DType::kBool;
  type.numpy_type = NPY_BOOL;
  type.dimensions = 1;
  type.item = 1;
  return type;
}

npy_intp offsets_of(const OwnPieces& pieces) { return static_cast<npy_intp>(pieces.rows()) + 1; }

void fill_offsets(const OwnPieces& pieces, std::size_t item, std::byte* to) {
  auto* offsets = reinterpret_cast<std::int64_t*>(to);
  offsets[0] = 0;
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    offsets[row + 1] = offsets[row] + static_cast<std::int64_t>(pieces.size(row) / item);
  }
}

void fill_values(const OwnPieces& pieces, std::byte* to) {
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    pieces.copy(row, to);
    to += pieces.size(row);
  }
}

void fill_padded(const OwnPieces& pieces, std::size_t longest, std::size_t item, std::byte* to,
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
  npy_intp ends = -1;
  const std::byte* given = read_values(offsets, type_of_offsets(), ends);
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

RaggedOutput::RaggedOutput(const std::vector<ColumnType>& types, npy_intp n, std::byte** columns)
    : n_(n) {
  const bool some = std::any_of(types.begin(), types.end(),
                                [](const ColumnType& type) { return type.item != 0; });
  if (!some) return;
  columns_.resize(types.size());
  for (std::size_t c = 0; c < types.size(); ++c) {
    const ColumnType& type = types[c];
    if (type.item == 0) continue;
    const std::size_t room = std::min<std::size_t>(2 * type.expected * type.item, 64 * 1024);
    columns_[c].pieces = std::make_unique<OwnPieces>(
        static_cast<std::size_t>(n * std::max<npy_intp>(1, type.time)), room);
    columns[c] = reinterpret_cast<std::byte*>(static_cast<Pieces*>(columns_[c].pieces.get()));
  }
}

bool RaggedOutput::own_fields(const std::vector<ColumnType>& types,
                              const std::vector<Field>& fields, PyObject* batch) {
  if (!PyDict_Check(batch)) return false;
  for (const Field& field : fields) {
    if (field.column < 0) {
      const Reference inner = taken(batch, field.key);
      if (!inner || !own_fields(types, field.children, inner.get())) return false;
      continue;
    }
    const auto c = static_cast<std::size_t>(field.column);
    if (columns_[c].pieces && !own_column(types[c], field, batch, columns_[c])) return false;
  }
  return true;
}

bool RaggedOutput::own_column(const ColumnType& type, const Field& field, PyObject* batch,
                              Column& column) {
  Reference found = taken(batch, field.key);
  if (!found) return false;
  npy_intp length = 0;
  if (type.padded) {
    const Lead lead(type, n_);
    npy_intp masked = 0;
    column.values = std::move(found);
    column.beside = taken(batch, field.mask);
    column.holder.reset(Py_NewRef(batch));
    return column.beside &&
           writable_items(column.values.get(), type, lead.all(), length) != nullptr &&
           writable_items(column.beside.get(), type_of_mask(), lead.all(), masked) != nullptr &&
           length == masked;
  }
  if (!PyDict_Check(found.get())) return false;
  column.values = taken(found.get(), names.values);
  if (!column.values) return false;
  column.beside = taken(found.get(), names.offsets);
  column.holder = std::move(found);
  return column.beside && writable_items(column.values.get(), type, {}, length) != nullptr &&
         writable_values(column.beside.get(), type_of_offsets(), offsets_of(*column.pieces)) !=
             nullptr;
}

// Whether each of the caller's arrays has memory of its own.
bool RaggedOutput::own_apart() const {
  std::vector<std::pair<std::byte*, std::byte*>> memory;
  for (const Column& column : columns_) {
    if (!column.pieces) continue;
    for (PyObject* array : {column.values.get(), column.beside.get()}) {
      const auto bytes = PyArray_NBYTES(reinterpret_cast<PyArrayObject*>(array));
      if (bytes > 0) memory.emplace_back(data_of(array), data_of(array) + bytes);
    }
  }
  std::sort(memory.begin(), memory.end());
  return std::adjacent_find(memory.begin(), memory.end(), [](const auto& one, const auto& next) {
           return next.first < one.second;
         }) == memory.end();
}

bool RaggedOutput::put_fields(const std::vector<ColumnType>& types,
                              const std::vector<Field>& fields, PyObject* batch) {
  for (const Field& field : fields) {
    if (field.column < 0) {
      const Reference inner = owned_ ? nullptr : taken(batch, field.key);
      if (!put_fields(types, field.children, inner.get())) return false;
      continue;
    }
    const auto c = static_cast<std::size_t>(field.column);
    Column& column = columns_[c];
    if (!column.pieces) continue;
    const bool put = types[c].padded ? put_padded(types[c], field, batch, column)
                                     : put_values(types[c], field, batch, column);
    if (!put) return false;
  }
  return true;
}

bool RaggedOutput::put_values(const ColumnType& type, const Field& field, PyObject* batch,
                              Column& column) {
  const OwnPieces& pieces = *column.pieces;
  std::size_t sum = 0;
  for (std::size_t row = 0; row < pieces.rows(); ++row) sum += pieces.size(row);
  const auto items = static_cast<npy_intp>(sum / type.item);
  if (!owned_) {
    column.holder.reset(PyDict_New());
    column.beside.reset(new_values(type_of_offsets(), offsets_of(pieces)));
  }
  const bool larger = !owned_ || length_of(column.values, 0) < items;
  if (larger) column.values.reset(new_items(type, {}, items));
  if (!column.holder || !column.values || !column.beside) return false;
  fill_offsets(pieces, type.item, data_of(column.beside.get()));
  {
    const CoreCall call(sum);
    fill_values(pieces, data_of(column.values.get()));
  }
  if (larger && !give(column.holder.get(), names.values, column.values)) return false;
  return owned_ || (give(column.holder.get(), names.offsets, column.beside) &&
                    give(batch, field.key, column.holder));
}

bool RaggedOutput::put_padded(const ColumnType& type, const Field& field, PyObject* batch,
                              Column& column) {
  const OwnPieces& pieces = *column.pieces;
  std::size_t longest = 0;
  for (std::size_t row = 0; row < pieces.rows(); ++row) {
    longest = std::max(longest, pieces.size(row) / type.item);
  }
  const Lead lead(type, n_);
  const auto length = static_cast<npy_intp>(longest);
  const bool larger = !owned_ || length_of(column.values, lead.count) < length;
  if (!owned_) column.holder.reset(Py_NewRef(batch));
  if (larger) {
    column.values.reset(new_items(type, lead.all(), length));
    column.beside.reset(column.values ? new_items(type_of_mask(), lead.all(), length) : nullptr);
    if (!column.beside) return false;
  }
  longest = static_cast<std::size_t>(length_of(column.values, lead.count));
  {
    const CoreCall call(longest * type.item * pieces.rows());
    fill_padded(pieces, longest, type.item, data_of(column.values.get()),
                data_of(column.beside.get()));
  }
  return !larger || (give(column.holder.get(), field.key, column.values) &&
                     give(column.holder.get(), field.mask, column.beside));
}

}  // namespace replay_buffer::python
