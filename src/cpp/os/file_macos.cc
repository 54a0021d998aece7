// Compiled for aarch64-macos, but never run there.
#if defined(__APPLE__)

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/directory.h"
#include "os/file.h"
#include "os/system_error.h"

namespace replay_buffer::os {

namespace {

// flock() and byte-range locks exclude one another on macOS, so the lock of the whole file is a
// lock of one byte too, beyond any that a segment has.
constexpr off_t kWholeFileByte = off_t{1} << 62;

bool lock_whole(const File& file, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kWholeFileByte;
  lock.l_len = 1;
  int result;
  do {
    result = ::fcntl(file.fd(), F_OFD_SETLK, &lock);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  const int error = errno;
  if (error != EAGAIN && error != EACCES) {
    throw system_error(error, "Locking " + file.name() + " failed");
  }
  // What File promises: after a refusal the caller holds no lock. Linux drops it by itself.
  lock.l_type = F_UNLCK;
  ::fcntl(file.fd(), F_OFD_SETLK, &lock);
  return false;
}

std::uint64_t free_bytes(int fd) {
  struct statfs status;
  if (::fstatfs(fd, &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_bsize;
}

}  // namespace

File File::create_unnamed(const std::string&, unsigned) { return File(); }

void File::start_writing(std::uint64_t, std::uint64_t) const noexcept {}

File File::anonymous(std::uint64_t bytes) {
  File file = create_with_hidden_name(shared_memory_dir(), 0600);
  ::unlink(file.hidden_path_.c_str());
  file.hidden_path_.clear();
  file.name_ = "anonymous shared memory";
  file.allocate(bytes);
  return file;
}

File File::reopen(Access access) const {
  if (File file = reopen_path(access)) return file;
  throw Error(ErrorCode::kSystemFailure,
              "Opening " + name_ +
                  " once more is not possible on this system, because no path leads "
                  "to it.");
}

void File::allocate(std::uint64_t bytes) {
  struct stat before;
  if (::fstat(fd_, &before) != 0) throw system_error(errno, "Asking about " + name_ + " failed");
  const std::uint64_t have = static_cast<std::uint64_t>(before.st_blocks) * 512;
  if (bytes > have) {
    const std::uint64_t missing = bytes - have;
    fstore_t request{};
    request.fst_flags = F_ALLOCATEALL;
    request.fst_posmode = F_PEOFPOSMODE;
    request.fst_length = static_cast<off_t>(missing);
    int result;
    do {
      result = ::fcntl(fd_, F_PREALLOCATE, &request);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && code_of(errno) == ErrorCode::kOutOfSpace) {
      throw Error(ErrorCode::kOutOfSpace, "Allocating " + std::to_string(bytes) + " bytes for " +
                                              name_ + " needs " + std::to_string(missing) +
                                              " more bytes, but only " +
                                              std::to_string(free_bytes(fd_)) + " are free there.");
    }
    if (result != 0) {
      throw system_error(errno,
                         "Allocating " + std::to_string(bytes) + " bytes for " + name_ + " failed");
    }
  }
  if (static_cast<std::uint64_t>(before.st_size) < bytes) truncate(bytes);
}

void File::link(const std::string& path) {
  if (::renameatx_np(AT_FDCWD, hidden_path_.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCL) != 0) {
    // A file system without it. A second name does as well, for the moment of two names.
    if (errno != ENOTSUP || ::link(hidden_path_.c_str(), path.c_str()) != 0) {
      throw system_error(errno, "Giving a new file the path " + path + " failed");
    }
    ::unlink(hidden_path_.c_str());
  }
  hidden_path_.clear();
  name_ = path;
  has_path_ = true;
}

bool File::try_lock_shared() const { return lock_whole(*this, F_RDLCK); }
bool File::try_lock_exclusive() const { return lock_whole(*this, F_WRLCK); }
void File::unlock() const { lock_whole(*this, F_UNLCK); }

}  // namespace replay_buffer::os

#endif
