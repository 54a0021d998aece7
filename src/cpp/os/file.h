// A file that is open: the memory of a shared or persistent segment before it is mapped.
//
// A File may be used by several threads at once, except that moving, link() and destruction need it
// alone. Descriptors are closed on exec and never take the numbers 0, 1 and 2. After a fork the
// child shares the open file description, and with it all locks, of the parent: see reopen().
//
// Every call that takes long goes on after a signal. Errors name the path and the size in question.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace replay_buffer::os {

enum class Access : std::uint8_t { kRead, kReadWrite };

// Equal for two descriptors exactly when they are the same file.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class File {
 public:
  File() noexcept = default;  // no file
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  // Closes the descriptor, which ends its locks unless a duplicate or forked child has it too.
  // A number that somebody else closed (os.closerange) and that names another file now is let be.
  ~File();

  // A new empty file in `directory` that no path leads to until link(). It vanishes with its last
  // descriptor, even by SIGKILL. Where the system cannot do that (macOS, a few file systems) it has
  // a hidden name that a kill may leave behind: see remove_abandoned() in directory.h.
  // `mode` is the exact permission, whatever the umask.
  static File create_hidden(const std::string& directory, unsigned mode = 0600);
  // The second way of create_hidden(), which it takes by itself where it must.
  static File create_with_hidden_name(const std::string& directory, unsigned mode = 0600);

  // Throws kNotFound when nothing is at `path`, kPermissionDenied when the system refuses, and
  // kInvalidArgument when it is not a regular file.
  static File open(const std::string& path, Access access);

  // `bytes` of shared memory without a path, really allocated, that vanish with their last
  // descriptor and mapping. Throws kOutOfSpace.
  static File anonymous(std::uint64_t bytes);

  // Takes over a descriptor, such as one received over a socket. When this throws, the descriptor
  // has been closed.
  static File from_fd(int fd);

  // A new open file description of the same file: locks of its own. This is how the child of a fork
  // gets locks that are not its parent's, and works for files without a path. Works also when the
  // descriptor was closed behind our back, if the path still leads to the same file.
  // On macOS it needs the path, so it throws kSystemFailure for an anonymous file.
  // `access` may not exceed what the permissions of the file allow this user.
  File reopen(Access access) const;
  File reopen() const { return reopen(access_); }

  bool is_open() const noexcept { return fd_ >= 0; }
  explicit operator bool() const noexcept { return is_open(); }
  int fd() const noexcept { return fd_; }
  Access access() const noexcept { return access_; }
  const std::string& name() const noexcept { return name_; }  // the path, or words for messages
  FileIdentity identity() const noexcept { return identity_; }

  // False when the descriptor was closed by somebody else, or stands for another file now.
  bool intact() const noexcept;
  // False when no path leads to the file: hidden, anonymous or removed.
  bool linked() const;
  std::uint64_t size() const;

  // Makes the file at least `bytes` long with storage behind every byte, so that writing through a
  // mapping cannot fail for lack of space. New bytes are zero. Throws kOutOfSpace naming what was
  // asked and what is free; the file then is as before. For shared memory the memory of the machine
  // and of the control group counts as well as the size of the file system.
  void allocate(std::uint64_t bytes);

  // Sets the size. Growing this way leaves a hole: storage is taken at the first write.
  void truncate(std::uint64_t bytes);

  // Gives a hidden file its path, atomically: whoever opens `path` sees the file as it is now.
  // Throws kAlreadyExists when something is there. The path must be on the file system of
  // the directory it was created in. Not durable until sync_directory().
  // REQUIRES: made by create_hidden(), and not linked yet.
  void link(const std::string& path);

  // Exactly `bytes`, or throws: kCorrupt when the file ends before, kOutOfSpace.
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) const;

  // Lets the disk begin to write a range, and does not wait: sync() then has less left to do. A
  // hint; where the system has no such call it does nothing.
  void start_writing(std::uint64_t offset, std::uint64_t bytes) const noexcept;

  // Returns when content and size are on the disk.
  void sync() const;

  // Locks on the whole file, for as long as the open file description lives. They are advisory, are
  // independent of the locks of byte_lock.h, and belong to the description: a second one in the
  // same process is a stranger. An exclusive lock needs a file opened for writing (macOS).
  //
  // Returns false when somebody holds the exclusive lock (any lock), and then the caller holds
  // none, not even one it had before.
  bool try_lock_shared() const;
  bool try_lock_exclusive() const;
  // Tries again until `timeout` and then throws kTimeout.
  void lock_shared(std::chrono::nanoseconds timeout = std::chrono::seconds(10)) const;
  void unlock() const;

  // Removes the path; the file lives on where it is open. Throws kNotFound when nothing is there.
  static void remove(const std::string& path);
  // Removes the path of this file if it still leads to it; false when it leads elsewhere or
  // nowhere. Processes that do this at once go one after the other, so that none removes a file
  // that was given the path meanwhile. Throws kTimeout after 10 seconds of waiting. REQUIRES:
  // opened by its path, for writing.
  bool remove_own_path() const;
  // Puts `from` in the place of `to`, atomically and durably. The content of `from` must have been
  // synced before.
  static void rename_over(const std::string& from, const std::string& to);
  // Returns when the entries of the directory that holds `path` are on the disk.
  static void sync_directory(const std::string& path);

 private:
  // Takes over `fd`, and remembers which file it is. Closes it when it throws.
  static File adopt(int fd, Access access, std::string name, bool has_path);
  // Gives no file where the system has none without a name.
  static File create_unnamed(const std::string& directory, unsigned mode);
  void set_mode(unsigned mode) const;  // the umask takes its part from what open() is given
  File reopen_path(Access access) const;
  void close() noexcept;

  int fd_ = -1;
  Access access_ = Access::kRead;
  FileIdentity identity_;
  std::string name_;
  bool has_path_ = false;                // name_ is a path
  std::string hidden_path_;              // of create_with_hidden_name(), until link()
  std::uint64_t hidden_generation_ = 0;  // only the process that made it may remove it
};

}  // namespace replay_buffer::os
