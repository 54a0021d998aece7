#if defined(__linux__)

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "os/file.h"
#include "os/free_memory.h"
#include "os/system_error.h"

namespace replay_buffer::os {

namespace {

// A signal undoes what one fallocate of shared memory has done, so it is asked for in pieces; one
// takes a few milliseconds at most.
constexpr std::uint64_t kLargestPiece = std::uint64_t{64} << 20;
constexpr std::uint64_t kSmallestPiece = std::uint64_t{1} << 20;

std::string descriptor_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

bool lock_whole(const File& file, int operation) {
  int result;
  do {
    result = ::flock(file.fd(), operation);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  throw system_error(errno, "Locking " + file.name() + " failed");
}

bool in_memory(int fd) {
  struct statfs status;
  return ::fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

// How many bytes the file can still get. The greatest number when there is no telling.
std::uint64_t free_bytes(int fd) {
  std::uint64_t free = UINT64_MAX;
  struct statvfs status;
  if (::fstatvfs(fd, &status) == 0 && status.f_blocks != 0) {
    const std::uint64_t n_blocks = ::geteuid() == 0 ? status.f_bfree : status.f_bavail;
    free = n_blocks * status.f_frsize;
  }
  // Beyond this there is no error, the system kills a process to get the memory.
  return in_memory(fd) ? std::min(free, free_memory()) : free;
}

Error out_of_space(const std::string& name, std::uint64_t bytes, std::uint64_t missing,
                   std::uint64_t free) {
  return Error(ErrorCode::kOutOfSpace, "Allocating " + std::to_string(bytes) + " bytes for " +
                                           name + " needs " + std::to_string(missing) +
                                           " more bytes, but only " + std::to_string(free) +
                                           " are free there.");
}

void link_unnamed(int fd, const std::string& path) {
  if (::linkat(AT_FDCWD, descriptor_path(fd).c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) ==
      0) {
    return;
  }
  // Without /proc there is a way for the privileged.
  if (errno == ENOENT && ::linkat(fd, "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH) == 0) return;
  throw system_error(errno, "Giving a new file the path " + path + " failed");
}

}  // namespace

File File::create_unnamed(const std::string& directory, unsigned mode) {
  int fd;
  do {
    fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, static_cast<mode_t>(mode));
  } while (fd < 0 && errno == EINTR);
  if (fd >= 0) {
    File file = adopt(fd, Access::kReadWrite, "a new file in " + directory, false);
    file.set_mode(mode);
    return file;
  }
  // EISDIR: a kernel or file system that takes O_TMPFILE for an attempt to write the directory.
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) return File();
  throw system_error(errno, "Creating a file in " + directory + " failed");
}

void File::start_writing(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  (void)::sync_file_range(fd_, static_cast<off64_t>(offset), static_cast<off64_t>(bytes),
                          SYNC_FILE_RANGE_WRITE);
}

File File::anonymous(std::uint64_t bytes) {
  const int fd = ::memfd_create("replay_buffer", MFD_CLOEXEC);
  if (fd < 0) throw system_error(errno, "Creating anonymous shared memory failed");
  File file = adopt(fd, Access::kReadWrite, "anonymous shared memory", false);
  // Made for everyone, which would let others open it through /proc.
  file.set_mode(0600);
  file.allocate(bytes);
  return file;
}

File File::reopen(Access access) const {
  if (intact()) {
    const int flags = (access == Access::kReadWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    int fd;
    do {
      fd = ::open(descriptor_path(fd_).c_str(), flags);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0) return adopt(fd, access, name_, has_path_);
    if (errno != ENOENT) throw system_error(errno, "Opening " + name_ + " once more failed");
  }
  // Without the descriptor, or without /proc.
  if (File file = reopen_path(access)) return file;
  throw Error(ErrorCode::kClosed, "The descriptor of " + name_ +
                                      " was closed by another part of the program, and no path "
                                      "leads to the file any more.");
}

void File::allocate(std::uint64_t bytes) {
  struct stat before;
  if (::fstat(fd_, &before) != 0) throw system_error(errno, "Asking about " + name_ + " failed");
  const std::uint64_t have = static_cast<std::uint64_t>(before.st_blocks) * 512;
  const std::uint64_t missing = bytes > have ? bytes - have : 0;
  // Asked before, since half a segment in the meantime would take the space from others.
  if (const std::uint64_t free = free_bytes(fd_); missing > free) {
    throw out_of_space(name_, bytes, missing, free);
  }
  std::uint64_t piece = kLargestPiece;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t size = std::min(piece, bytes - done);
    const int error = ::posix_fallocate(fd_, static_cast<off_t>(done), static_cast<off_t>(size));
    if (error == 0) {
      done += size;
    } else if (error == EINTR) {
      piece = std::max(piece / 2, kSmallestPiece);
    } else {
      const std::uint64_t free = free_bytes(fd_);
      static_cast<void>(::ftruncate(fd_, before.st_size));
      // Not EFBIG: a limit on the size of files leaves space free.
      if (code_of(error) == ErrorCode::kOutOfSpace && error != EFBIG) {
        throw out_of_space(name_, bytes, missing, free);
      }
      throw system_error(error,
                         "Allocating " + std::to_string(bytes) + " bytes for " + name_ + " failed");
    }
  }
}

void File::link(const std::string& path) {
  if (hidden_path_.empty()) {
    link_unnamed(fd_, path);
  } else if (::syscall(SYS_renameat2, AT_FDCWD, hidden_path_.c_str(), AT_FDCWD, path.c_str(),
                       RENAME_NOREPLACE) != 0) {
    // EINVAL: not on this file system. A second name does as well, for the moment of two names.
    if (errno != EINVAL || ::link(hidden_path_.c_str(), path.c_str()) != 0) {
      throw system_error(errno, "Giving a new file the path " + path + " failed");
    }
    ::unlink(hidden_path_.c_str());
  }
  hidden_path_.clear();
  name_ = path;
  has_path_ = true;
}

bool File::try_lock_shared() const { return lock_whole(*this, LOCK_SH | LOCK_NB); }
bool File::try_lock_exclusive() const { return lock_whole(*this, LOCK_EX | LOCK_NB); }
void File::unlock() const { lock_whole(*this, LOCK_UN); }

}  // namespace replay_buffer::os

#endif
