#include "os/directory.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "os/clock.h"
#include "os/file.h"
#include "os/system_error.h"

namespace replay_buffer::os {

namespace {

constexpr std::size_t kMaxName = 200;
constexpr const char* kVariable = "REPLAY_BUFFER_SHM_DIR";
constexpr std::uint64_t kAbandonedSeconds = 60;

bool valid_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

bool is_directory(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

#if defined(__APPLE__)
// Under the caches of the user and not among the temporary files, which the system clears away when
// they have not been touched for three days. Compiled for aarch64-macos, but never run there.
std::string default_directory() {
  char base[1024];
  const std::size_t size = ::confstr(_CS_DARWIN_USER_CACHE_DIR, base, sizeof base);
  if (size == 0 || size > sizeof base) {
    throw system_error(errno, "Asking for the cache directory of the user failed");
  }
  const std::string path = std::string(base) + "replay_buffer";
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error(errno, "Creating the directory " + path + " failed");
  }
  return path;
}
#else
std::string default_directory() { return "/dev/shm"; }
#endif

// The names of the entries of a directory that begin with `prefix`, without it.
std::vector<std::string> entries_of(const std::string& directory, const std::string& prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), ::closedir);
  if (!stream) throw system_error(errno, "Listing the directory " + directory + " failed");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name.rfind(prefix, 0) == 0) names.push_back(name.substr(prefix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_abandoned(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const std::uint64_t now = wall_ns() / 1'000'000'000;
  if (static_cast<std::uint64_t>(status.st_mtime) + kAbandonedSeconds > now) return false;
  try {
    return File::open(path, Access::kReadWrite).try_lock_exclusive();
  } catch (const Error&) {
    return false;  // not ours, or already gone
  }
}

std::string path_of(const char* prefix, const std::string& name) {
  if (!valid_name(name)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "A name in shared memory is 1 to 200 characters of A-Z, a-z, 0-9, '.', '_' and '-', "
        "and \"" +
            name + "\" is not.");
  }
  return shared_memory_dir() + "/" + prefix + name;
}

std::vector<std::string> names_of(const char* prefix) {
  const std::string directory = shared_memory_dir();
  const std::string start = directory + "/" + prefix;
  std::vector<std::string> names = entries_of(directory, prefix);
  std::erase_if(names, [&](const std::string& name) {
    struct stat status;
    return !valid_name(name) || ::lstat((start + name).c_str(), &status) != 0 ||
           !S_ISREG(status.st_mode);
  });
  return names;
}

}  // namespace

std::string shared_memory_dir() {
  const char* chosen = std::getenv(kVariable);
  if (chosen == nullptr || *chosen == '\0') {
    const std::string directory = default_directory();
    if (is_directory(directory)) return directory;
    throw Error(ErrorCode::kNotFound, "The directory for shared memory, " + directory +
                                          ", is not there; " + kVariable +
                                          " can name another directory in memory.");
  }
  const std::string directory = chosen;
  if (directory.front() != '/') {
    throw Error(
        ErrorCode::kInvalidArgument,
        std::string(kVariable) + " must be an absolute path, and is \"" + directory + "\".");
  }
  if (!is_directory(directory)) {
    throw Error(ErrorCode::kNotFound,
                std::string(kVariable) + " names " + directory + ", which is not a directory.");
  }
  return directory;
}

std::string shared_memory_path(const std::string& name) { return path_of(kSegmentPrefix, name); }
std::vector<std::string> list_shared_memory() { return names_of(kSegmentPrefix); }

std::string shared_array_path(const std::string& name) { return path_of(kArrayPrefix, name); }
std::vector<std::string> list_shared_arrays() { return names_of(kArrayPrefix); }

int remove_abandoned(const std::string& directory) {
  int n_removed = 0;
  const std::string start = directory + "/" + kHiddenPrefix;
  for (const std::string& suffix : entries_of(directory, kHiddenPrefix)) {
    const std::string path = start + suffix;
    if (is_abandoned(path) && ::unlink(path.c_str()) == 0) ++n_removed;
  }
  return n_removed;
}

bool leads_nowhere(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) &&
         ::stat(path.c_str(), &status) != 0 && errno == ENOENT;
}

bool make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return true;
  const int error = errno;
  if (error == EEXIST && is_directory(path)) return false;
  if (error == EEXIST) throw Error(ErrorCode::kInvalidArgument, path + " is not a directory.");
  throw system_error(error, "Creating the directory " + path + " failed");
}

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names = entries_of(path, "");
  std::erase_if(names, [](const std::string& name) { return name == "." || name == ".."; });
  return names;
}

}  // namespace replay_buffer::os
