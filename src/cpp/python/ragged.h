// Values whose length varies, between Python and the ring.
//
// All access is with the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/pieces.h"
#include "python/handle.h"

namespace replay_buffer::python {

// Such values given for n rows: a dict or a tuple of `values` and `offsets`. The offsets are copied
// and checked, so that whatever becomes of the caller's array, no read goes beyond the values.
class RaggedInput {
 public:
  // False when it is something else; n < 0 is set from the offsets. The arrays belong to the
  // caller, who holds them.
  bool read(PyObject* values, PyObject* offsets, const ColumnType& type, npy_intp& n);

  const std::byte* place() const { return reinterpret_cast<const std::byte*>(&ragged_); }

 private:
  std::vector<std::int64_t> offsets_;
  Ragged ragged_;
};

// Such values read from n rows, on their way into a batch.
//
// How large the arrays for them are is known when they are read. So the caller's are used where
// they have room, and others take their place where they have not.
class RaggedOutput {
 public:
  // Takes the places of such columns among `columns`.
  RaggedOutput(const std::vector<ColumnType>& types, npy_intp n, std::byte** columns);

  // Takes the arrays for such columns from the caller's batch, unless that is null. False, with or
  // without an exception, when one is missing, cannot hold such values however few they are, or
  // shares its memory with another. They are what put() fills, whatever becomes of the dicts.
  bool own(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
           PyObject* batch) {
    if (columns_.empty() || batch == nullptr) return true;
    owned_ = true;
    return own_fields(types, fields, batch) && own_apart();
  }

  // Puts what was read into the batch: values and offsets, or padded with a mask. New arrays are
  // just as large as it needs; in the caller's, what is behind the values is left as it was, and
  // what is behind padded ones is zero. False with an exception set.
  bool put(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
           PyObject* batch) {
    return columns_.empty() || put_fields(types, fields, batch);
  }

 private:
  struct Column {
    std::unique_ptr<OwnPieces> pieces;  // null where the length is fixed
    Reference holder;                   // the dict that has these arrays
    Reference values;
    Reference beside;  // the offsets, or the mask
  };
  // The dimensions of padded values before the one that varies.
  struct Lead {
    Lead(const ColumnType& type, npy_intp n) : dims{n, type.time}, count(type.time == 0 ? 1 : 2) {}
    std::span<const npy_intp> all() const { return {dims, count}; }

    npy_intp dims[2];
    std::size_t count;
  };

  bool own_fields(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
                  PyObject* batch);
  bool own_column(const ColumnType& type, const Field& field, PyObject* batch, Column& column);
  bool own_apart() const;
  bool put_fields(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
                  PyObject* batch);
  bool put_values(const ColumnType& type, const Field& field, PyObject* batch, Column& column);
  bool put_padded(const ColumnType& type, const Field& field, PyObject* batch, Column& column);

  npy_intp n_;
  bool owned_ = false;           // the arrays are the caller's
  std::vector<Column> columns_;  // empty where no length varies
};

}  // namespace replay_buffer::python
