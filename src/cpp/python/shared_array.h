// An array in shared memory: one file in the directory of os/directory.h, a header and the
// elements.
//
//      0  magic        u64   "rb array"
//      8  version      u32
//     12  dtype        u32   of DType
//     16  dimensions   u32   0 to 8
//     20  (zero)       u32
//     24  data_bytes   u64   product of the shape times the bytes of an element
//     32  shape        u64 x 8, zero beyond the dimensions
//     96  (zero)       u64 x 3
//    120  checksum     u64   checksum64() of the bytes before
//    128  elements, C order
//
// The header is written once, before the file has its name. All who have the memory mapped hold a
// shared flock on the file, so a file that can be locked exclusively is in nobody's use. There is
// no lock on the elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "os/file.h"
#include "os/memory.h"
#include "replay_buffer/schema.h"

namespace nanobind {
class module_;
}

namespace replay_buffer::python {

inline constexpr std::uint64_t kArrayMagic = 0x7961727261206272;  // "rb array", little endian
inline constexpr std::uint32_t kArrayVersion = 1;

struct ArrayHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t dtype;
  std::uint32_t dimensions;
  std::uint32_t reserved;
  std::uint64_t data_bytes;
  std::uint64_t shape[kMaxDimensions];
  std::uint64_t reserved_words[3];
  std::uint64_t checksum;
};
static_assert(sizeof(ArrayHeader) == 128 && offsetof(ArrayHeader, shape) == 32 &&
              offsetof(ArrayHeader, checksum) == 120);
static_assert(std::is_trivially_copyable_v<ArrayHeader>);

// A handle. Not safe for threads: the Python class uses it with the GIL.
class SharedArray {
 public:
  // New, all zero, under a random name. Throws kOutOfSpace before anything is there, and
  // kInvalidArgument for a shape that no memory could hold.
  static SharedArray create(DType dtype, const std::vector<std::uint64_t>& shape);

  // Throws kNotFound, kPermissionDenied, kCorrupt (not such a file, or cut short), kIncompatible,
  // and kTimeout when somebody holds the file locked for removal for 10 seconds.
  static SharedArray open(const std::string& name);

  const std::string& name() const { return name_; }
  bool closed() const { return mapping_ == nullptr; }
  // Made by create() in this very process, not in one that it was forked from.
  bool created_here() const;
  bool unlinked() const { return unlinked_; }

  // Facts of the checked, private copy of the header.
  const Column& column() const { return column_; }
  // The elements. Throws kClosed. The memory lives as long as any copy of this pointer.
  std::shared_ptr<std::byte> elements() const;

  // Closes the file and drops the mapping. Not an error when done before.
  void close();
  // Removes the name; the memory lives on where it is mapped. Not an error when the name is gone,
  // or has become that of another array, which keeps it.
  // Does nothing in a forked child: this handle is its parent's.
  void unlink();

 private:
  SharedArray(os::File file, Column column, bool created);  // without a name yet

  std::string name_;
  std::string path_;
  os::File file_;  // holds the lock
  os::FileIdentity identity_;
  std::shared_ptr<os::Mapping> mapping_;
  Column column_;
  bool created_;
  bool unlinked_ = false;
  std::uint64_t generation_;
};

struct ArrayFile {
  std::string name;
  std::uint64_t bytes;
  bool in_use;  // some process has it mapped
};

// The shared arrays that this user may open.
std::vector<ArrayFile> list_shared_arrays();

// Removes those that are in nobody's use: their processes were killed, or left without unlink().
// Returns their names. An array whose name was handed on and not opened yet is one of them.
std::vector<std::string> remove_stale_shared_arrays();

// Adds the above to the module.
void bind_shared_array(nanobind::module_& module);

}  // namespace replay_buffer::python
