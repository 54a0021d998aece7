#include "python/shared_array.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <utility>

#include "os/directory.h"
#include "os/process.h"
#include "python/columns.h"
#include "python/handle.h"
#include "replay_buffer/error.h"
#include "segment/checksum.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
constexpr const char* kCapsule = "replay_buffer.shared_array";

// None when the dtype is unknown, a dimension is 0 or there are too many, or the product is
// beyond any memory.
std::optional<std::uint64_t> data_bytes_of(DType dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = dtype_bytes(dtype);
  if (bytes == 0 || shape.size() > kMaxDimensions) return std::nullopt;
  for (const std::uint64_t n : shape) {
    if (n == 0 || n > kMostBytes / bytes) return std::nullopt;
    bytes *= n;
  }
  return bytes;
}

std::uint64_t checksum_of(const ArrayHeader& header) {
  return checksum64(std::as_bytes(std::span(&header, 1)).first(offsetof(ArrayHeader, checksum)));
}

ArrayHeader make_header(DType dtype, const std::vector<std::uint64_t>& shape) {
  const std::optional<std::uint64_t> bytes = data_bytes_of(dtype, shape);
  if (!bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "The shape and dtype of a shared array must give at least one element and at most "
                "2^60 bytes, in at most 8 dimensions.");
  }
  ArrayHeader header{};
  header.magic = kArrayMagic;
  header.version = kArrayVersion;
  header.dtype = static_cast<std::uint32_t>(dtype);
  header.dimensions = static_cast<std::uint32_t>(shape.size());
  header.data_bytes = *bytes;
  std::copy(shape.begin(), shape.end(), header.shape);
  header.checksum = checksum_of(header);
  return header;
}

// What the file says it is. The size of the file is left to Mapping::map().
Column read_header(const os::File& file) {
  ArrayHeader header;
  file.read_at(0, &header, sizeof header);
  if (header.magic != kArrayMagic) {
    throw Error(ErrorCode::kCorrupt, file.name() + " is not a shared array.");
  }
  if (header.version != kArrayVersion) {
    throw Error(ErrorCode::kIncompatible, file.name() + " is a shared array of format version " +
                                              std::to_string(header.version) +
                                              "; this program knows version " +
                                              std::to_string(kArrayVersion) + ".");
  }
  const auto dtype = static_cast<DType>(header.dtype);
  if (header.checksum == checksum_of(header) && header.dimensions <= kMaxDimensions) {
    const std::span shape(header.shape, header.dimensions);
    if (data_bytes_of(dtype, shape) == header.data_bytes) {
      return {"", dtype, {shape.begin(), shape.end()}, 0};
    }
  }
  throw Error(ErrorCode::kCorrupt,
              "The header of the shared array " + file.name() + " is damaged.");
}

std::string random_name() {
  std::random_device random;
  char name[33];
  std::snprintf(name, sizeof name, "%08x%08x%08x%08x", random(), random(), random(), random());
  return name;
}

// Gives the file a name that nobody has.
std::string link_somewhere(os::File& file) {
  for (;;) {
    std::string name = random_name();
    try {
      file.link(os::shared_array_path(name));
      return name;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAlreadyExists) throw;
    }
  }
}

// No file when it is not one of ours, or not to be opened by this user.
os::File open_array_file(const std::string& path) {
  try {
    os::File file = os::File::open(path, os::Access::kReadWrite);
    std::uint64_t magic;
    file.read_at(0, &magic, sizeof magic);
    return magic == kArrayMagic ? std::move(file) : os::File();
  } catch (const Error&) {
    return {};
  }
}

// ---- Python

void delete_elements(PyObject* capsule) {
  delete static_cast<std::shared_ptr<std::byte>*>(PyCapsule_GetPointer(capsule, kCapsule));
}

// A NumPy array of the elements that keeps their memory mapped.
nb::object as_numpy(const SharedArray& array) {
  auto elements = std::make_unique<std::shared_ptr<std::byte>>(array.elements());
  void* data = elements->get();
  nb::object base = nb::steal(PyCapsule_New(elements.get(), kCapsule, delete_elements));
  if (!base.is_valid()) throw nb::python_error();
  [[maybe_unused]] const auto* owned = elements.release();
  const ColumnType type = column_type(array.column());
  nb::object view =
      nb::steal(PyArray_New(&PyArray_Type, type.dimensions, type.shape + 1, type.numpy_type,
                            nullptr, data, 0, NPY_ARRAY_CARRAY, nullptr));
  if (!view.is_valid() || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(view.ptr()),
                                                base.release().ptr()) < 0) {
    throw nb::python_error();
  }
  return view;
}

}  // namespace

SharedArray::SharedArray(os::File file, Column column, bool created)
    : file_(std::move(file)),
      identity_(file_.identity()),
      mapping_(std::make_shared<os::Mapping>(
          os::Mapping::map(file_, sizeof(ArrayHeader) + column.bytes(), os::Access::kReadWrite))),
      column_(std::move(column)),
      created_(created),
      generation_(os::fork_generation()) {}

SharedArray SharedArray::create(DType dtype, const std::vector<std::uint64_t>& shape) {
  const ArrayHeader header = make_header(dtype, shape);
  os::watch_forks();
  os::File file = os::File::create_hidden(os::shared_memory_dir());
  file.lock_shared();
  file.allocate(sizeof header + header.data_bytes);
  SharedArray array(std::move(file), {"", dtype, shape, 0}, true);
  std::memcpy(array.mapping_->data(), &header, sizeof header);
  array.name_ = link_somewhere(array.file_);
  array.path_ = array.file_.name();
  return array;
}

SharedArray SharedArray::open(const std::string& name) {
  os::watch_forks();
  const std::string path = os::shared_array_path(name);
  const auto not_found = [&] {
    return Error(ErrorCode::kNotFound, "There is no shared array \"" + name + "\" (" + path + ").");
  };
  os::File file;
  try {
    file = os::File::open(path, os::Access::kReadWrite);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) throw not_found();
    throw;
  }
  file.lock_shared();
  if (!file.linked()) throw not_found();  // removed as stale between the two lines above
  Column column = read_header(file);
  SharedArray array(std::move(file), std::move(column), false);
  array.name_ = name;
  array.path_ = path;
  return array;
}

bool SharedArray::created_here() const { return created_ && generation_ == os::fork_generation(); }

std::shared_ptr<std::byte> SharedArray::elements() const {
  if (closed()) throw Error(ErrorCode::kClosed, "the shared array \"" + name_ + "\" is closed");
  return {mapping_, mapping_->data() + sizeof(ArrayHeader)};
}

void SharedArray::close() {
  // No unlock(): a forked child or its parent may hold the same lock.
  file_ = os::File();
  mapping_.reset();
}

void SharedArray::unlink() {
  if (unlinked_ || generation_ != os::fork_generation()) return;
  try {
    const os::File file = os::File::open(path_, os::Access::kReadWrite);
    if (file.identity() == identity_) file.remove_own_path();  // else another array has the name
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  unlinked_ = true;
}

std::vector<ArrayFile> list_shared_arrays() {
  std::vector<ArrayFile> found;
  for (const std::string& name : os::list_shared_arrays()) {
    const os::File file = open_array_file(os::shared_array_path(name));
    if (file) found.push_back({name, file.size(), !file.try_lock_exclusive()});
  }
  return found;
}

std::vector<std::string> remove_stale_shared_arrays() {
  std::vector<std::string> removed;
  for (const std::string& name : os::list_shared_arrays()) {
    const std::string path = os::shared_array_path(name);
    const os::File file = open_array_file(path);
    // Whoever opens it from now on waits for the lock, and then finds that it has no name.
    if (!file || !file.try_lock_exclusive()) continue;
    try {
      if (file.remove_own_path()) removed.push_back(name);
    } catch (const Error&) {
      continue;  // the directory does not let this user
    }
  }
  os::remove_abandoned(os::shared_memory_dir());
  return removed;
}

void bind_shared_array(nb::module_& module) {
  nb::class_<SharedArray>(module, "SharedArray")
      .def_static("create",
                  [](const std::vector<std::uint64_t>& shape, std::uint32_t dtype) {
                    const CoreCall call(CoreCall::kWaits);
                    return SharedArray::create(static_cast<DType>(dtype), shape);
                  })
      .def_static("open",
                  [](const std::string& name) {
                    const CoreCall call(CoreCall::kWaits);
                    return SharedArray::open(name);
                  })
      .def_prop_ro("name", &SharedArray::name)
      .def_prop_ro("closed", &SharedArray::closed)
      .def_prop_ro("created_here", &SharedArray::created_here)
      .def_prop_ro("unlinked", &SharedArray::unlinked)
      .def("array", &as_numpy)
      .def("close", &SharedArray::close)
      .def("unlink", &SharedArray::unlink);
  module.def("list_shared_arrays", [] {
    std::vector<std::tuple<std::string, std::uint64_t, bool>> found;
    const CoreCall call(CoreCall::kWaits);
    for (const ArrayFile& file : list_shared_arrays()) {
      found.emplace_back(file.name, file.bytes, file.in_use);
    }
    return found;
  });
  module.def("remove_stale_shared_arrays", [] {
    const CoreCall call(CoreCall::kWaits);
    return remove_stale_shared_arrays();
  });
}

}  // namespace replay_buffer::python
