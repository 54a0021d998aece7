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
class RaggedOutput {
 public:
  // Takes the places of such columns among `columns`. Where an item of the batch has several values
  // of a column, one for each step, `times` says how many; 0, or none said: one, and no dimension
  // for it.
  RaggedOutput(const std::vector<ColumnType>& types, npy_intp n, std::byte** columns,
               std::span<const npy_intp> times = {});

  // Puts what was read into the batch: values and offsets, or padded with a mask. False with an
  // exception set.
  bool put(const std::vector<ColumnType>& types, const std::vector<Field>& fields,
           PyObject* batch) const;

 private:
  bool put_column(const ColumnType& type, std::size_t column, const Field& field,
                  PyObject* batch) const;
  PyObject* by_time(PyObject* values, std::size_t column) const;

  npy_intp n_;
  std::vector<npy_intp> times_;

  std::vector<std::unique_ptr<Pieces>> pieces_;  // by column; null for the others
};

}  // namespace replay_buffer::python
