#include "os/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "os/process.h"
#include "os/system_error.h"

namespace replay_buffer::os {

namespace {

constexpr std::size_t kPagesPerQuery = 16 * 1024;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::byte* map_private(std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (data == MAP_FAILED) {
    throw system_error(errno, "Reserving " + std::to_string(bytes) + " bytes of memory failed");
  }
  return static_cast<std::byte*>(data);
}

#if defined(__linux__)
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Starts at a multiple of a huge page, without which the first and last would stay small.
std::byte* map_private_huge(std::size_t bytes) {
  std::byte* const range = map_private(bytes + kHugePage);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(range) % kHugePage;
  const std::size_t after = kHugePage - before;
  std::byte* const data = range + before;
  if (before != 0) ::munmap(range, before);
  if (after != 0) ::munmap(data + bytes, after);
  // Only a hint: a kernel without huge pages gives small ones.
  ::madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}
#endif

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      writable_(std::exchange(other.writable_, false)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  Mapping taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(writable_, taken.writable_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, round_up(size_, page_size()));
}

Mapping Mapping::reserve(std::size_t bytes, bool huge) {
  watch_forks();
  if (bytes == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "A reservation of memory needs a size, and 0 was given.");
  }
  if (bytes > SIZE_MAX / 2) {
    throw Error(ErrorCode::kOutOfSpace, "Reserving " + std::to_string(bytes) +
                                            " bytes of memory is more than any address space has.");
  }
  const std::size_t rounded = round_up(bytes, page_size());
#if defined(__linux__)
  if (huge) return Mapping(map_private_huge(rounded), bytes, true);
#else
  static_cast<void>(huge);
#endif
  return Mapping(map_private(rounded), bytes, true);
}

Mapping Mapping::map(const File& file, std::size_t bytes, Access access) {
  watch_forks();
  if (bytes == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "A mapping of " + file.name() + " needs a size, and 0 was given.");
  }
  if (const std::uint64_t size = file.size(); size < bytes) {
    throw Error(ErrorCode::kCorrupt, "Mapping " + std::to_string(bytes) + " bytes of " +
                                         file.name() + " is not possible: it has only " +
                                         std::to_string(size) + " bytes.");
  }
  const bool writable = access == Access::kReadWrite;
  void* data = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                      file.fd(), 0);
  if (data == MAP_FAILED) {
    throw system_error(errno, "Mapping " + std::to_string(bytes) + " bytes of " + file.name() +
                                  (writable ? " for writing failed" : " for reading failed"));
  }
  return Mapping(static_cast<std::byte*>(data), bytes, writable);
}

void Mapping::check_range(const char* call, std::size_t offset, std::size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(call) + " of " + std::to_string(bytes) +
                                               " bytes at offset " + std::to_string(offset) +
                                               " leaves a mapping of " + std::to_string(size_) +
                                               " bytes.");
}

void Mapping::sync(std::size_t offset, std::size_t bytes) const {
  check_range("A sync", offset, bytes);
  if (bytes == 0) return;
  const std::size_t start = offset / page_size() * page_size();
  if (::msync(data_ + start, offset - start + bytes, MS_SYNC) != 0) {
    throw system_error(errno, "Writing " + std::to_string(bytes) +
                                  " bytes of mapped memory back to the disk failed");
  }
}

std::size_t Mapping::resident_bytes() const {
  // One byte per page, of which the lowest bit counts.
  std::uint64_t present[kPagesPerQuery / 8];
#if defined(__APPLE__)
  auto* const answer = reinterpret_cast<char*>(present);
#else
  auto* const answer = reinterpret_cast<unsigned char*>(present);
#endif
  std::size_t n_resident = 0;
  const std::size_t step = kPagesPerQuery * page_size();
  for (std::size_t at = 0; at < size_; at += step) {
    const std::size_t bytes = std::min(step, size_ - at);
    const std::size_t n_words = (round_up(bytes, page_size()) / page_size() + 7) / 8;
    present[n_words - 1] = 0;
    if (::mincore(data_ + at, bytes, answer) != 0) {
      throw system_error(
          errno, "Asking which of " + std::to_string(size_) + " bytes are in memory failed");
    }
    // The product adds up the eight lowest bits of a word in its highest byte.
    constexpr std::uint64_t kLowBits = 0x0101010101010101u;
    for (std::size_t i = 0; i < n_words; ++i)
      n_resident += ((present[i] & kLowBits) * kLowBits) >> 56;
  }
  return n_resident * page_size();
}

}  // namespace replay_buffer::os
