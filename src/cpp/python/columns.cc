#include "python/columns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "python/pool.h"

namespace replay_buffer::python {
namespace {

int numpy_type_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return NPY_BOOL;
    case DType::kInt8:
      return NPY_INT8;
    case DType::kInt16:
      return NPY_INT16;
    case DType::kInt32:
      return NPY_INT32;
    case DType::kInt64:
      return NPY_INT64;
    case DType::kUInt8:
      return NPY_UINT8;
    case DType::kUInt16:
      return NPY_UINT16;
    case DType::kUInt32:
      return NPY_UINT32;
    case DType::kUInt64:
      return NPY_UINT64;
    case DType::kFloat16:
      return NPY_HALF;
    case DType::kFloat32:
      return NPY_FLOAT32;
    case DType::kFloat64:
      return NPY_FLOAT64;
  }
  return NPY_NOTYPE;
}

void add_field(std::vector<Field>& fields, std::string_view path, int column, bool padded) {
  const std::size_t slash = path.find('/');
  const std::string name(path.substr(0, slash));
  PyObject* key = PyUnicode_InternFromString(name.c_str());
  auto at =
      std::find_if(fields.begin(), fields.end(), [key](const Field& f) { return f.key == key; });
  if (at == fields.end()) at = fields.insert(fields.end(), Field{key, -1, {}, nullptr});
  if (slash == std::string_view::npos) {
    at->column = column;
    if (padded) at->mask = PyUnicode_InternFromString((name + "_mask").c_str());
  } else {
    add_field(at->children, path.substr(slash + 1), column, padded);
  }
}

template <typename T>
const std::byte* put(T value, Scratch& scratch) {
  std::byte* at = scratch.take(sizeof(T));
  if (at != nullptr) std::memcpy(at, &value, sizeof(T));
  return at;
}

template <typename T>
const std::byte* put_integer(std::int64_t value, const ColumnType& type, Scratch& scratch) {
  if (type.limit != 0 && (value < 0 || static_cast<std::uint64_t>(value) >= type.limit))
    return nullptr;
  if constexpr (sizeof(T) < sizeof(value)) {
    if (value < std::int64_t{std::numeric_limits<T>::min()} ||
        value > std::int64_t{std::numeric_limits<T>::max()}) {
      return nullptr;
    }
  } else if constexpr (std::is_unsigned_v<T>) {
    if (value < 0) return nullptr;
  }
  return put(static_cast<T>(value), scratch);
}

// As a float that is surely the same number.
template <typename T>
const std::byte* put_whole(std::int64_t value, Scratch& scratch) {
  constexpr std::int64_t kMost = std::int64_t{1} << std::numeric_limits<T>::digits;
  return value >= -kMost && value <= kMost ? put(static_cast<T>(value), scratch) : nullptr;
}

const std::byte* from_integer(std::int64_t value, const ColumnType& type, Scratch& scratch) {
  switch (type.dtype) {
    case DType::kInt8:
      return put_integer<std::int8_t>(value, type, scratch);
    case DType::kInt16:
      return put_integer<std::int16_t>(value, type, scratch);
    case DType::kInt32:
      return put_integer<std::int32_t>(value, type, scratch);
    case DType::kInt64:
      return put_integer<std::int64_t>(value, type, scratch);
    case DType::kUInt8:
      return put_integer<std::uint8_t>(value, type, scratch);
    case DType::kUInt16:
      return put_integer<std::uint16_t>(value, type, scratch);
    case DType::kUInt32:
      return put_integer<std::uint32_t>(value, type, scratch);
    case DType::kUInt64:
      return put_integer<std::uint64_t>(value, type, scratch);
    case DType::kFloat32:
      return put_whole<float>(value, scratch);
    case DType::kFloat64:
      return put_whole<double>(value, scratch);
    default:
      return nullptr;
  }
}

const std::byte* from_real(double value, const ColumnType& type, Scratch& scratch) {
  if (type.dtype == DType::kFloat64) return put(value, scratch);
  const auto narrow = static_cast<float>(value);
  if (type.dtype != DType::kFloat32 || (std::isinf(narrow) && !std::isinf(value))) return nullptr;
  return put(narrow, scratch);
}

const std::byte* read_scalar(PyObject* value, const ColumnType& type, Scratch& scratch) {
  PyTypeObject* kind = Py_TYPE(value);
  if (kind == &PyFloat_Type || kind == &PyDoubleArrType_Type) {
    return from_real(PyFloat_AS_DOUBLE(value), type, scratch);
  }
  if (kind == &PyBool_Type || kind == &PyBoolArrType_Type) {
    if (type.dtype != DType::kBool) return nullptr;
    const bool truth =
        kind == &PyBool_Type ? value == Py_True : PyArrayScalar_VAL(value, Bool) != 0;
    return put<std::uint8_t>(truth ? 1 : 0, scratch);
  }
  if (kind == &PyLong_Type) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0 ? from_integer(number, type, scratch) : nullptr;
  }
  if (kind == &PyLongArrType_Type)
    return from_integer(PyArrayScalar_VAL(value, Long), type, scratch);
  if (kind == &PyFloatArrType_Type) {
    return from_real(static_cast<double>(PyArrayScalar_VAL(value, Float)), type, scratch);
  }
  return nullptr;
}

// NumPy has two numbers for 64-bit integers where C has two types of that size.
bool same_type(int given, int wanted) {
  static_assert(sizeof(long) == sizeof(long long));
  return given == wanted || (given == NPY_LONGLONG && wanted == NPY_LONG) ||
         (given == NPY_ULONGLONG && wanted == NPY_ULONG);
}

// An array of exactly this dtype and shape, in native byte order, aligned and C-contiguous.
bool plain(PyObject* value, int numpy_type, int dimensions, const npy_intp* shape) {
  if (!PyArray_CheckExact(value)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  if (!same_type(PyArray_TYPE(array), numpy_type) || PyArray_NDIM(array) != dimensions ||
      (PyArray_FLAGS(array) & NPY_ARRAY_CARRAY_RO) != NPY_ARRAY_CARRAY_RO ||
      !PyArray_ISNOTSWAPPED(array)) {
    return false;
  }
  const npy_intp* given = PyArray_DIMS(array);
  for (int i = 0; i < dimensions; ++i) {  // few: a call to compare them would take longer
    if (given[i] != shape[i]) return false;
  }
  return true;
}

// The dimensions of an array of items whose number varies.
struct ItemsShape {
  ItemsShape(const ColumnType& type, std::span<const npy_intp> lead, npy_intp length) {
    npy_intp* to = std::copy(lead.begin(), lead.end(), dims);
    *to++ = length;
    to = std::copy(type.shape + 2, type.shape + 1 + type.dimensions, to);
    n = static_cast<int>(to - dims);
  }

  npy_intp dims[kMaxDimensions + 2];  // a batch and its time may lead
  int n;
};

std::byte* data_of(PyObject* array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
}

template <typename T>
bool all_below(const std::byte* values, std::uint64_t limit, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    // A negative value becomes a huge one.
    if (static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) >= limit) return false;
  }
  return true;
}

bool below_limit(const std::byte* values, const ColumnType& type, std::size_t n) {
  if (type.limit == 0) return true;
  switch (type.dtype) {
    case DType::kInt8:
      return all_below<std::int8_t>(values, type.limit, n);
    case DType::kInt16:
      return all_below<std::int16_t>(values, type.limit, n);
    case DType::kInt32:
      return all_below<std::int32_t>(values, type.limit, n);
    case DType::kInt64:
      return all_below<std::int64_t>(values, type.limit, n);
    case DType::kUInt8:
      return all_below<std::uint8_t>(values, type.limit, n);
    case DType::kUInt16:
      return all_below<std::uint16_t>(values, type.limit, n);
    case DType::kUInt32:
      return all_below<std::uint32_t>(values, type.limit, n);
    case DType::kUInt64:
      return all_below<std::uint64_t>(values, type.limit, n);
    default:
      return true;
  }
}

}  // namespace

ColumnType column_type(const Column& column) {
  ColumnType t{};
  t.dtype = column.dtype;
  t.numpy_type = numpy_type_of(column.dtype);
  t.dimensions = static_cast<int>(column.shape.size());
  for (std::size_t i = 0; i < column.shape.size(); ++i)
    t.shape[i + 1] = static_cast<npy_intp>(column.shape[i]);
  t.elements = column.elements();
  t.bytes = column.bytes();
  t.limit = column.limit;
  if (column.variable()) {
    t.item = column.item_bytes();
    t.expected = column.expected != 0 ? column.expected : 64;
    t.padded = column.padded;
  }
  return t;
}

ColumnType with_first(ColumnType type, npy_intp length) {
  type.shape[1] = length;
  type.elements = 1;
  for (int i = 1; i <= type.dimensions; ++i)
    type.elements *= static_cast<std::size_t>(type.shape[i]);
  type.bytes = type.elements * dtype_bytes(type.dtype);
  return type;
}

std::vector<Field> make_fields(const Schema& schema) {
  std::vector<Field> fields;
  for (std::size_t i = 0; i < schema.size(); ++i)
    add_field(fields, schema[i].name, static_cast<int>(i), schema[i].padded);
  return fields;
}

const std::byte* read_items(PyObject* value, const ColumnType& type, npy_intp& n) {
  if (!PyArray_CheckExact(value)) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  if (PyArray_NDIM(array) != type.dimensions) return nullptr;
  n = PyArray_DIM(array, 0);
  const ItemsShape shape(type, {}, n);
  return plain(value, type.numpy_type, shape.n, shape.dims) ? data_of(value) : nullptr;
}

namespace {

const std::byte* read_ragged(PyObject* value, const ColumnType& type, Scratch& scratch) {
  npy_intp n = 0;
  const std::byte* data = read_items(value, type, n);
  auto* offsets = reinterpret_cast<std::int64_t*>(scratch.take(2 * sizeof(std::int64_t)));
  auto* ragged = reinterpret_cast<Ragged*>(scratch.take(sizeof(Ragged)));
  if (data == nullptr || offsets == nullptr || ragged == nullptr) return nullptr;
  offsets[0] = 0;
  offsets[1] = n;
  *ragged = {data, offsets};
  return reinterpret_cast<const std::byte*>(ragged);
}

}  // namespace

const std::byte* read_value(PyObject* value, const ColumnType& type, Scratch& scratch) {
  if (type.item != 0) return read_ragged(value, type, scratch);
  if (type.dimensions == 0 && !PyArray_CheckExact(value)) return read_scalar(value, type, scratch);
  if (plain(value, type.numpy_type, type.dimensions, type.shape + 1)) {
    const std::byte* data = data_of(value);
    return below_limit(data, type, 1) ? data : nullptr;
  }
  if (type.dtype == DType::kFloat32 && plain(value, NPY_FLOAT64, type.dimensions, type.shape + 1)) {
    std::byte* out = scratch.take(type.bytes);
    if (out == nullptr) return nullptr;
    const auto* from = reinterpret_cast<const double*>(data_of(value));
    auto* to = reinterpret_cast<float*>(out);
    bool overflow = false;
    for (std::size_t i = 0; i < type.elements; ++i) {
      to[i] = static_cast<float>(from[i]);
      overflow |= std::isinf(to[i]) && !std::isinf(from[i]);
    }
    return overflow ? nullptr : out;
  }
  return nullptr;
}

const std::byte* read_values(PyObject* value, const ColumnType& type, npy_intp& n) {
  if (!PyArray_CheckExact(value)) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  if (PyArray_NDIM(array) != type.dimensions + 1) return nullptr;
  if (n < 0) n = PyArray_DIM(array, 0);
  npy_intp shape[kMaxDimensions + 1];
  std::copy_n(type.shape, type.dimensions + 1, shape);
  shape[0] = n;
  if (!plain(value, type.numpy_type, type.dimensions + 1, shape)) return nullptr;
  const std::byte* data = data_of(value);
  return below_limit(data, type, static_cast<std::size_t>(n)) ? data : nullptr;
}

bool read_floats(PyObject* value, npy_intp n, float* out) {
  if (plain(value, NPY_FLOAT32, 1, &n)) {
    std::memcpy(out, data_of(value), static_cast<std::size_t>(n) * sizeof(float));
    return true;
  }
  if (!plain(value, NPY_FLOAT64, 1, &n)) return false;
  const auto* from = reinterpret_cast<const double*>(data_of(value));
  for (npy_intp i = 0; i < n; ++i) out[i] = static_cast<float>(from[i]);
  return true;
}

std::byte* writable_values(PyObject* value, const ColumnType& type, npy_intp n) {
  npy_intp shape[kMaxDimensions + 1];
  std::copy_n(type.shape, type.dimensions + 1, shape);
  shape[0] = n;
  if (!plain(value, type.numpy_type, type.dimensions + 1, shape)) return nullptr;
  return PyArray_ISWRITEABLE(reinterpret_cast<PyArrayObject*>(value)) ? data_of(value) : nullptr;
}

std::byte* writable_items(PyObject* value, const ColumnType& type, std::span<const npy_intp> lead,
                          npy_intp& length) {
  if (!PyArray_CheckExact(value)) return nullptr;
  auto* array = reinterpret_cast<PyArrayObject*>(value);
  const int before = static_cast<int>(lead.size());
  if (PyArray_NDIM(array) != before + type.dimensions) return nullptr;
  length = PyArray_DIM(array, before);
  const ItemsShape shape(type, lead, length);
  if (!plain(value, type.numpy_type, shape.n, shape.dims)) return nullptr;
  return PyArray_ISWRITEABLE(array) ? data_of(value) : nullptr;
}

namespace {

PyObject* new_array(int dimensions, npy_intp* shape, int numpy_type, std::size_t bytes) {
  // What is too large to be kept is NumPy's too, which refuses what the machine does not have.
  if (bytes < kPooledBytes || bytes > kMostIdle / 2)
    return PyArray_SimpleNew(dimensions, shape, numpy_type);
  return new_pooled_array(dimensions, shape, numpy_type, bytes);
}

}  // namespace

PyObject* new_values(const ColumnType& type, npy_intp n) {
  npy_intp shape[kMaxDimensions + 1];
  std::copy_n(type.shape, type.dimensions + 1, shape);
  shape[0] = n;
  return new_array(type.dimensions + 1, shape, type.numpy_type,
                   static_cast<std::size_t>(n) * type.bytes);
}

PyObject* new_items(const ColumnType& type, std::span<const npy_intp> lead, npy_intp length) {
  ItemsShape shape(type, lead, length);
  std::size_t bytes = static_cast<std::size_t>(length) * type.item;
  for (const npy_intp n : lead) bytes *= static_cast<std::size_t>(n);
  return new_array(shape.n, shape.dims, type.numpy_type, bytes);
}

}  // namespace replay_buffer::python
