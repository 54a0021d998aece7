// F_OFD_SETLK has been in Linux since 3.15 and in macOS since 10.11, with one meaning.
// Compiled for aarch64-macos, but never run there.
#include "os/byte_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "os/system_error.h"

namespace replay_buffer::os::byte_lock {

namespace {

// Returns 0 or an errno.
int call(const File& file, int command, struct flock& lock) {
  int result;
  do {
    result = ::fcntl(file.fd(), command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

struct flock one_byte(short type, std::uint64_t offset) {
  struct flock lock{};  // l_pid has to be 0
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = 1;
  return lock;
}

Error failure(int error, const File& file, std::uint64_t offset, const char* what) {
  return system_error(error, std::string(what) + " byte " + std::to_string(offset) + " of " +
                                 file.name() + " failed");
}

bool try_lock_as(short type, const File& file, std::uint64_t offset) {
  struct flock lock = one_byte(type, offset);
  const int error = call(file, F_OFD_SETLK, lock);
  if (error == EAGAIN || error == EACCES) return false;
  if (error != 0) throw failure(error, file, offset, "Locking");
  return true;
}

}  // namespace

bool try_lock(const File& file, std::uint64_t offset) { return try_lock_as(F_WRLCK, file, offset); }

bool try_lock_shared(const File& file, std::uint64_t offset) {
  return try_lock_as(F_RDLCK, file, offset);
}

void unlock(const File& file, std::uint64_t offset) {
  struct flock lock = one_byte(F_UNLCK, offset);
  const int error = call(file, F_OFD_SETLK, lock);
  if (error != 0) throw failure(error, file, offset, "Unlocking");
}

bool held_by_other(const File& file, std::uint64_t offset) {
  struct flock lock = one_byte(F_WRLCK, offset);
  const int error = call(file, F_OFD_GETLK, lock);
  if (error != 0) throw failure(error, file, offset, "Asking for the lock of");
  return lock.l_type != F_UNLCK;
}

}  // namespace replay_buffer::os::byte_lock
