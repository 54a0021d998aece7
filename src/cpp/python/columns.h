// Columns as Python sees them: which NumPy arrays hold them, and which values can be taken as they
// are.
//
// Everything here works with the GIL held and sets no Python exception: a value that is not exactly
// what a column stores is reported as such, and the caller leaves it to the converting slow path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "python/numpy_api.h"
#include "replay_buffer/schema.h"

namespace replay_buffer::python {

// What NumPy needs to know of one column.
struct ColumnType {
  DType dtype;
  int numpy_type;
  int dimensions;
  npy_intp shape[kMaxDimensions + 1];  // [0] is left for the batch
  std::size_t elements;
  std::size_t bytes;
  std::uint64_t limit;
  // Of values whose length varies; shape[1] then means nothing.
  std::size_t item;      // bytes of an item; 0: the length is fixed
  std::size_t expected;  // items in a value
  bool padded;
  npy_intp
      time;  // steps of an item of a batch, each with a value of its own; 0: one value, no time
};

ColumnType column_type(const Column& column);
// The same with another first dimension. REQUIRES: it has one.
ColumnType with_first(ColumnType type, npy_intp length);

// A key of a row: a column, or a dict of further keys. Keys are interned strings that live as long
// as the interpreter.
struct Field {
  PyObject* key = nullptr;
  int column = -1;
  std::vector<Field> children;
  PyObject* mask = nullptr;  // of a padded column: the key of its mask
};

// The fields of a schema whose names are paths ("obs/pixels"), in the order of first appearance.
std::vector<Field> make_fields(const Schema& schema);

// Room for values that have to be converted on their way: scalars and small float64 vectors.
class Scratch {
 public:
  // 8-byte aligned, or null when there is no more room.
  std::byte* take(std::size_t bytes) {
    const std::size_t size = (bytes + 7) & ~std::size_t{7};
    if (size > sizeof(room_) - used_) return nullptr;
    std::byte* at = room_ + used_;
    used_ += size;
    return at;
  }

 private:
  std::size_t used_ = 0;
  alignas(8) std::byte room_[4096];
};

// The bytes of one value of a column, or null when it needs the slow path. They are the value's own
// or lie in `scratch`. Where the length varies, a Ragged of one row.
const std::byte* read_value(PyObject* value, const ColumnType& type, Scratch& scratch);

// The bytes of n values in an array whose first dimension is n; n < 0 is set from the array.
const std::byte* read_values(PyObject* value, const ColumnType& type, npy_intp& n);

// The bytes of items of a column whose length varies, and how many there are; null as above.
const std::byte* read_items(PyObject* value, const ColumnType& type, npy_intp& n);

// n numbers of a float32 or float64 vector as float32; false when it is something else.
bool read_floats(PyObject* value, npy_intp n, float* out);

// The bytes of an array that a batch of n rows can be written into, or null.
std::byte* writable_values(PyObject* value, const ColumnType& type, npy_intp n);

// The same for items of a column whose length varies, behind `lead` dimensions. Sets `length`, how
// many there is room for.
std::byte* writable_items(PyObject* value, const ColumnType& type, std::span<const npy_intp> lead,
                          npy_intp& length);

// A new array for n rows; null with MemoryError set.
PyObject* new_values(const ColumnType& type, npy_intp n);
PyObject* new_items(const ColumnType& type, std::span<const npy_intp> lead, npy_intp length);

}  // namespace replay_buffer::python
