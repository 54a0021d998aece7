// Arrays over the memory of rows, and whether the rows are still there.
//
// An InPlace is the base of its arrays. It keeps the memory mapped, whatever becomes of the buffer.
// All addresses come from the checked layout, and lie in the segment whatever a damaged one says.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <span>
#include <string>

#include "core/ring.h"
#include "python/local.h"
#include "replay_buffer/error.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

[[noreturn]] void no_array(const Column& column, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              "column '" + column.name + "' " + why + ": get() copies its values");
}

class InPlace {
 public:
  explicit InPlace(const Ring& ring) : ring_(ring) {}

  const Ring& ring() const { return ring_; }
  // One whose values lie there as they were given.
  const Column& column(std::size_t c) const {
    if (c >= ring_.rows.columns()) throw Error(ErrorCode::kInvalidArgument, "no such column");
    const Column& column = ring_.layout().schema[c];
    const ColumnPlace& place = ring_.rows.place(c);
    if (place.in_arena && place.codec != Codec::kNone) no_array(column, "is compressed");
    return column;
  }
  std::size_t slot_of(std::int64_t id) const {
    return static_cast<std::uint64_t>(id) % ring_.rows.capacity();
  }

 private:
  Ring ring_;
};

using Self = nb::pointer_and_handle<InPlace>;

// n rows of a column, `stride` bytes apart; one value where n is below 0. The array cannot be made
// writable, because its base gives out no memory.
nb::object array_over(const Self& self, const ColumnType& type, npy_intp n, std::size_t stride,
                      const std::byte* data) {
  const bool many = n >= 0;
  const std::size_t dimensions =
      std::min<std::size_t>(static_cast<std::size_t>(type.dimensions), kMaxDimensions);
  npy_intp shape[kMaxDimensions + 1];
  npy_intp strides[kMaxDimensions + 1];
  std::copy_n(type.shape, dimensions + 1, shape);
  shape[0] = n;
  strides[0] = static_cast<npy_intp>(stride);
  auto step = static_cast<npy_intp>(dtype_bytes(type.dtype));
  for (std::size_t i = dimensions; i > 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  const int first = many ? 0 : 1;
  nb::object array = nb::steal(PyArray_New(&PyArray_Type, type.dimensions + (many ? 1 : 0),
                                           shape + first, type.numpy_type, strides + first,
                                           const_cast<std::byte*>(data), 0, 0, nullptr));
  if (!array.is_valid() || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()),
                                                 self.h.inc_ref().ptr()) < 0) {
    throw nb::python_error();
  }
  return array;
}

// The value of one row.
nb::object row(const Self& self, std::size_t c, std::int64_t id) {
  const Column& column = self.p->column(c);
  const Rows& rows = self.p->ring().rows;
  const std::size_t slot = self.p->slot_of(id);
  if (!rows.place(c).in_arena) {
    return array_over(self, column_type(column), -1, 0, rows.cell(c, slot));
  }
  const std::span<const std::byte> piece = rows.piece(c, slot);
  const auto items = static_cast<npy_intp>(piece.size() / rows.place(c).item);
  return array_over(self, with_first(column_type(column), items), -1, 0, piece.data());
}

// The values of n rows that lie one after the other, from the one with this id on.
nb::object run(const Self& self, std::size_t c, std::int64_t first, std::size_t n) {
  const Column& column = self.p->column(c);
  const Rows& rows = self.p->ring().rows;
  const std::size_t slot = self.p->slot_of(first);
  if (n > rows.capacity() - slot) throw Error(ErrorCode::kInvalidArgument, "no such rows");
  if (rows.place(c).in_arena) no_array(column, "has values of any length");
  return array_over(self, column_type(column), static_cast<npy_intp>(n), rows.place(c).stride,
                    rows.cell(c, slot));
}

std::span<const std::int64_t> ids_of(nb::handle ids) {
  auto* array = reinterpret_cast<PyArrayObject*>(ids.ptr());
  return {static_cast<const std::int64_t*>(PyArray_DATA(array)),
          static_cast<std::size_t>(PyArray_SIZE(array))};
}

bool intact(const InPlace& self, const nb::object& ids) {
  const std::span<const std::int64_t> all = ids_of(ids);
  const CoreCall call(all.size() * os::kFindWork);
  return std::all_of(all.begin(), all.end(),
                     [&](std::int64_t id) { return self.ring().holds(id); });
}

nb::object gone(const InPlace& self, const nb::object& ids) {
  const std::span<const std::int64_t> all = ids_of(ids);
  auto n = static_cast<npy_intp>(all.size());
  nb::object mask = nb::steal(PyArray_SimpleNew(1, &n, NPY_BOOL));
  if (!mask.is_valid()) throw nb::python_error();
  auto* to = static_cast<std::uint8_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(mask.ptr())));
  const CoreCall call(all.size() * os::kFindWork);
  for (const std::int64_t id : all) *to++ = self.ring().holds(id) ? 0 : 1;
  return mask;
}

}  // namespace

void bind_in_place(nb::module_& m, nb::class_<Local>& local) {
  nb::class_<InPlace>(m, "InPlace")
      .def_prop_ro("capacity", [](const InPlace& self) { return self.ring().rows.capacity(); })
      .def("row", &row)
      .def("run", &run)
      .def("intact", &intact)
      .def("gone", &gone);
  local.def("in_place", [](const Local& l) { return InPlace(opened(l).ring()); });
}

}  // namespace replay_buffer::python
