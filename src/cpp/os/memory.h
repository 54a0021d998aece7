// A range of mapped memory: private and reserved, or shared and backed by a file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/file.h"

namespace replay_buffer::os {

// Owns the range; unmaps it at the end. Moving it does not move the memory. Thread safe, except for
// moving and destruction; what the bytes mean to several threads is the caller's concern.
class Mapping {
 public:
  Mapping() noexcept = default;  // no memory
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Private memory that reads as zero. It is reserved, not committed: it may be larger than the
  // machine's memory and costs what has been touched. A fork gives the child a copy.
  // `huge` asks for huge pages where the system has them: faster random access to a large range, at
  // the price of 2 MiB of memory for each first touch. Throws kOutOfSpace, kInvalidArgument for 0.
  static Mapping reserve(std::size_t bytes, bool huge = false);

  // The first `bytes` of `file`, shared with all who map it. The file may be closed afterwards.
  // Throws kCorrupt when the file is shorter (it would be a SIGBUS later), kPermissionDenied when
  // it was not opened with this access. A file that somebody shortens later still gives a SIGBUS.
  static Mapping map(const File& file, std::size_t bytes, Access access);

  // Starts at a page boundary. The address is the same for as long as the mapping lives.
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool writable() const noexcept { return writable_; }
  explicit operator bool() const noexcept { return data_ != nullptr; }

  // Returns when what was written to the range is on the disk. For mapped files.
  void sync(std::size_t offset, std::size_t bytes) const;

  // How much of the range is in memory now and has been touched: for reserve() by this process, for
  // map() by anybody. Shared memory that was allocated and not yet touched does not count, although
  // it is taken. Costs some 5 ns per page.
  std::size_t resident_bytes() const;

 private:
  Mapping(std::byte* data, std::size_t size, bool writable) noexcept
      : data_(data), size_(size), writable_(writable) {}
  void check_range(const char* call, std::size_t offset, std::size_t bytes) const;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool writable_ = false;
};

}  // namespace replay_buffer::os
