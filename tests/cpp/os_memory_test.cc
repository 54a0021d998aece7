#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "os/free_memory.h"
#include "os/memory.h"
#include "os_child.h"

namespace replay_buffer::os {
namespace {

using testing::Child;
using testing::Directory;
using testing::expect_error;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

bool all_zero(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; });
}

TEST(OsMemory, ReservationReadsAsZeroAndIsWritable) {
  const Mapping mapping = Mapping::reserve(kMiB + 123);
  EXPECT_EQ(mapping.size(), kMiB + 123);
  EXPECT_TRUE(mapping.writable());
  EXPECT_TRUE(all_zero(mapping.data(), mapping.size()));
  std::memset(mapping.data(), 7, mapping.size());
  EXPECT_EQ(mapping.data()[mapping.size() - 1], std::byte{7});
}

TEST(OsMemory, ReservationMayExceedTheMachineAndCostsWhatIsTouched) {
  const Mapping mapping = Mapping::reserve(56 * kGiB);
  for (std::size_t gib = 0; gib < 56; gib += 8) mapping.data()[gib * kGiB] = std::byte{1};
  EXPECT_GE(mapping.resident_bytes(), 7 * 4096u);
  EXPECT_LE(mapping.resident_bytes(), 7 * 2 * kMiB);
}

TEST(OsMemory, HugeReservationStartsAtAHugePage) {
  const Mapping mapping = Mapping::reserve(5 * kMiB + 1, /*huge=*/true);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % (2 * kMiB), 0u);
  std::memset(mapping.data(), 1, mapping.size());
  EXPECT_GE(mapping.resident_bytes(), 5 * kMiB);
}

TEST(OsMemory, ImpossibleReservationsAreErrors) {
  expect_error(ErrorCode::kInvalidArgument, {"0"}, [] { Mapping::reserve(0); });
  expect_error(ErrorCode::kOutOfSpace, {std::to_string(SIZE_MAX)},
               [] { Mapping::reserve(SIZE_MAX); });
  expect_error(ErrorCode::kOutOfSpace, {std::to_string(SIZE_MAX / 4 + 1)},
               [] { Mapping::reserve(SIZE_MAX / 4 + 1); });
}

TEST(OsMemory, RangesOutsideAreErrors) {
  const Mapping mapping = Mapping::reserve(kMiB);
  expect_error(ErrorCode::kInvalidArgument, {"1048577"}, [&] { mapping.sync(0, kMiB + 1); });
  expect_error(ErrorCode::kInvalidArgument, {}, [&] { mapping.sync(kMiB + 1, 0); });
  expect_error(ErrorCode::kInvalidArgument, {}, [&] { mapping.sync(8, SIZE_MAX); });
}

TEST(OsMemory, MovingKeepsTheAddressAndReleasesOnce) {
  Mapping first = Mapping::reserve(kMiB);
  std::byte* const data = first.data();
  Mapping second = std::move(first);
  EXPECT_EQ(second.data(), data);
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(first.size(), 0u);
  first = Mapping::reserve(4096);
  first = std::move(second);
  EXPECT_EQ(first.data(), data);
  EXPECT_FALSE(second);
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
}

TEST(OsMemory, MappedFileIsSharedBetweenProcessesAndOutlivesTheDescriptor) {
  File file = File::anonymous(kMiB);
  const Mapping mapping = Mapping::map(file, kMiB, Access::kReadWrite);
  file = File();
  Child child([&] {
    mapping.data()[kMiB - 1] = std::byte{42};
    return 0;
  });
  EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(mapping.data()[kMiB - 1], std::byte{42});
  EXPECT_GE(mapping.resident_bytes(), 4096u);
  std::memset(mapping.data(), 1, kMiB);
  EXPECT_EQ(mapping.resident_bytes(), kMiB);
}

TEST(OsMemory, WhatIsSyncedIsInTheFile) {
  const Directory directory;
  File file = File::create_hidden(directory.path());
  file.allocate(3 * 4096);
  const Mapping mapping = Mapping::map(file, 3 * 4096, Access::kReadWrite);
  mapping.data()[5000] = std::byte{5};
  mapping.sync(4999, 2);
  mapping.sync(0, 3 * 4096);
  std::byte byte{};
  file.read_at(5000, &byte, 1);
  EXPECT_EQ(byte, std::byte{5});
}

TEST(OsMemory, AFileShorterThanTheMappingIsAnErrorAndNoSigbus) {
  const Directory directory;
  File file = File::create_hidden(directory.path());
  file.allocate(4096);
  expect_error(ErrorCode::kCorrupt, {"4097", "4096", directory.path()},
               [&] { Mapping::map(file, 4097, Access::kRead); });
  expect_error(ErrorCode::kInvalidArgument, {}, [&] { Mapping::map(file, 0, Access::kRead); });
}

TEST(OsMemory, ReadOnlyMappingRefusesWrites) {
  const Directory directory;
  const std::string path = directory / "file";
  {
    File file = File::create_hidden(directory.path());
    file.allocate(4096);
    file.link(path);
  }
  const File file = File::open(path, Access::kRead);
  expect_error(ErrorCode::kPermissionDenied, {path, "4096"},
               [&] { Mapping::map(file, 4096, Access::kReadWrite); });
  const Mapping mapping = Mapping::map(file, 4096, Access::kRead);
  EXPECT_FALSE(mapping.writable());
  Child child([&] {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    *reinterpret_cast<volatile char*>(mapping.data()) = 1;
    return 0;
  });
  EXPECT_GT(child.join(), 128);
}

TEST(OsMemory, FreeMemoryIsAPlausibleNumber) {
  EXPECT_GT(free_memory(), 16 * kMiB);
#if defined(__linux__)
  EXPECT_LT(free_memory(), std::uint64_t{1} << 50);
#endif
}

}  // namespace
}  // namespace replay_buffer::os
