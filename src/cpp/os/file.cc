#include "os/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <thread>
#include <utility>

#include "os/byte_lock.h"
#include "os/clock.h"
#include "os/directory.h"
#include "os/process.h"
#include "os/system_error.h"

namespace replay_buffer::os {

namespace {

// More than this in one call is cut short by Linux and refused by macOS.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;
// The byte that who removes a path holds: before those of segments.
constexpr std::uint64_t kRemoverAt = (std::uint64_t{1} << 61) - 2;
constexpr std::uint64_t kRemoverPatienceNs = 10'000'000'000;

std::string range_of(const std::string& name, std::uint64_t offset, std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of " + name;
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

FileIdentity identity_of(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino)};
}

}  // namespace

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      access_(other.access_),
      identity_(std::exchange(other.identity_, {})),
      name_(std::exchange(other.name_, {})),
      has_path_(other.has_path_),
      hidden_path_(std::exchange(other.hidden_path_, {})),
      hidden_generation_(other.hidden_generation_) {}

File& File::operator=(File&& other) noexcept {
  File taken(std::move(other));
  std::swap(fd_, taken.fd_);
  std::swap(access_, taken.access_);
  std::swap(identity_, taken.identity_);
  std::swap(name_, taken.name_);
  std::swap(has_path_, taken.has_path_);
  std::swap(hidden_path_, taken.hidden_path_);
  std::swap(hidden_generation_, taken.hidden_generation_);
  return *this;
}

File::~File() { close(); }

void File::close() noexcept {
  if (fd_ < 0) return;
  if (!hidden_path_.empty() && hidden_generation_ == fork_generation()) {
    ::unlink(hidden_path_.c_str());
  }
  if (intact()) ::close(fd_);
  fd_ = -1;
}

File File::adopt(int fd, Access access, std::string name, bool has_path) {
  // A program that closed its standard streams would write its messages into the file.
  if (fd >= 0 && fd <= 2) {
    const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    const int error = errno;
    ::close(fd);
    if (higher < 0) throw system_error(error, "Keeping a descriptor of " + name + " failed");
    fd = higher;
  }
  struct stat status;
  if (::fstat(fd, &status) != 0) {
    const int error = errno;
    ::close(fd);
    throw system_error(
        error, "Asking what descriptor " + std::to_string(fd) + " of " + name + " is failed");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    throw Error(ErrorCode::kInvalidArgument, name + " is not a regular file.");
  }
  File file;
  file.fd_ = fd;
  file.access_ = access;
  file.identity_ = identity_of(status);
  file.name_ = std::move(name);
  file.has_path_ = has_path;
  return file;
}

File File::create_hidden(const std::string& directory, unsigned mode) {
  File file = create_unnamed(directory, mode);
  return file ? std::move(file) : create_with_hidden_name(directory, mode);
}

File File::create_with_hidden_name(const std::string& directory, unsigned mode) {
  watch_forks();
  std::random_device random;
  for (;;) {
    char suffix[17];
    std::snprintf(suffix, sizeof suffix, "%08x%08x", random(), random());
    const std::string path = directory + "/" + kHiddenPrefix + suffix;
    const int fd =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode));
    if (fd < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (fd < 0) throw system_error(errno, "Creating a file in " + directory + " failed");
    File file = adopt(fd, Access::kReadWrite, "a new file in " + directory, false);
    file.hidden_path_ = path;
    file.hidden_generation_ = fork_generation();
    file.set_mode(mode);
    return file;
  }
}

void File::set_mode(unsigned mode) const {
  if (::fchmod(fd_, static_cast<mode_t>(mode)) != 0) {
    throw system_error(errno, "Setting the mode of " + name_ + " failed");
  }
}

File File::open(const std::string& path, Access access) {
  // Without O_NONBLOCK a pipe in the place of the file would hang the caller.
  const int flags =
      (access == Access::kReadWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int fd;
  do {
    fd = ::open(path.c_str(), flags);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0 && errno == EISDIR) {
    throw Error(ErrorCode::kInvalidArgument, path + " is a directory, not a file.");
  }
  if (fd < 0) {
    throw system_error(
        errno, "Opening " + path +
                   (access == Access::kReadWrite ? " for writing failed" : " for reading failed"));
  }
  return adopt(fd, access, path, true);
}

File File::from_fd(int fd) {
  const std::string name = "the file received as descriptor " + std::to_string(fd);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) throw system_error(errno, "Using " + name + " failed");
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return adopt(fd, (flags & O_ACCMODE) == O_RDWR ? Access::kReadWrite : Access::kRead, name, false);
}

File File::reopen_path(Access access) const {
  const std::string& path = hidden_path_.empty() ? name_ : hidden_path_;
  if (!has_path_ && hidden_path_.empty()) return File();
  File file;
  try {
    file = open(path, access);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  if (!file || file.identity_ != identity_) return File();
  file.name_ = name_;
  file.has_path_ = has_path_;
  return file;
}

bool File::intact() const noexcept {
  struct stat status;
  return fd_ >= 0 && ::fstat(fd_, &status) == 0 && identity_of(status) == identity_;
}

bool File::linked() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) throw system_error(errno, "Asking about " + name_ + " failed");
  return status.st_nlink > 0 && hidden_path_.empty();
}

std::uint64_t File::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) {
    throw system_error(errno, "Asking for the size of " + name_ + " failed");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void File::truncate(std::uint64_t bytes) {
  int result;
  do {
    result = ::ftruncate(fd_, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    throw system_error(
        errno, "Setting the size of " + name_ + " to " + std::to_string(bytes) + " bytes failed");
  }
}

void File::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
  auto* at = static_cast<char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd_, at + done, std::min(bytes - done, kMaxTransfer),
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error(errno, "Reading " + range_of(name_, offset, bytes) + " failed");
    if (n == 0) {
      throw Error(ErrorCode::kCorrupt, "Reading " + range_of(name_, offset, bytes) +
                                           " met the end of the file after " +
                                           std::to_string(done) + " bytes.");
    }
    done += static_cast<std::size_t>(n);
  }
}

void File::write_at(std::uint64_t offset, const void* data, std::size_t bytes) const {
  const auto* at = static_cast<const char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(fd_, at + done, std::min(bytes - done, kMaxTransfer),
                               static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw system_error(n < 0 ? errno : ENOSPC,
                         "Writing " + range_of(name_, offset, bytes) + " failed");
    }
    done += static_cast<std::size_t>(n);
  }
}

void File::sync() const {
  int result;
  do {
#if defined(__APPLE__)
    // fsync() there leaves the data in the cache of the drive.
    result = ::fcntl(fd_, F_FULLFSYNC);
    if (result != 0 && errno != EINTR) result = ::fsync(fd_);
#else
    result = ::fsync(fd_);
#endif
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw system_error(errno, "Writing " + name_ + " to the disk failed");
}

void File::lock_shared(std::chrono::nanoseconds timeout) const {
  const std::uint64_t start = monotonic_ns();
  // Not by a call that blocks: the holder of the exclusive lock may be stopped.
  while (!try_lock_shared()) {
    if (monotonic_ns() - start >= static_cast<std::uint64_t>(std::max(timeout.count(), {}))) {
      throw Error(ErrorCode::kTimeout, "Another process holds the exclusive lock of " + name_ +
                                           " and did not release it within " +
                                           std::to_string(timeout.count() / 1'000'000) + " ms.");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void File::remove(const std::string& path) {
  if (::unlink(path.c_str()) != 0) throw system_error(errno, "Removing " + path + " failed");
}

bool File::remove_own_path() const {
  const std::uint64_t start = monotonic_ns();
  while (!byte_lock::try_lock(*this, kRemoverAt)) {
    if (monotonic_ns() - start > kRemoverPatienceNs) {
      throw Error(ErrorCode::kTimeout, "Another process has been removing " + name_ +
                                           " for 10 seconds and has not finished.");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  struct stat status;
  const bool own = ::stat(name_.c_str(), &status) == 0 && identity_of(status) == identity_;
  if (own) remove(name_);
  byte_lock::unlock(*this, kRemoverAt);
  return own;
}

void File::rename_over(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    throw system_error(errno, "Renaming " + from + " to " + to + " failed");
  }
  sync_directory(to);
}

void File::sync_directory(const std::string& path) {
  const std::string directory = directory_of(path);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw system_error(errno, "Opening the directory " + directory + " failed");
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  const int error = errno;
  ::close(fd);
  // EINVAL: a file system whose directories need no such call.
  if (result != 0 && error != EINVAL) {
    throw system_error(error, "Writing the directory " + directory + " to the disk failed");
  }
}

}  // namespace replay_buffer::os
