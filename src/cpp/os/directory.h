// Where named shared memory is: one file for each segment or array, in one directory.
#pragma once

#include <string>
#include <vector>

namespace replay_buffer::os {

// How the names of files begin: of segments, of shared arrays, and of files that are not ready yet
// where they must have a name. None is the beginning of another.
inline constexpr const char* kSegmentPrefix = "replay_buffer.";
inline constexpr const char* kArrayPrefix = "replay_buffer_array.";
inline constexpr const char* kHiddenPrefix = ".replay_buffer.";

// /dev/shm on Linux; a directory of the user, made with mode 0700, on macOS. The environment
// variable REPLAY_BUFFER_SHM_DIR names another one. Throws kNotFound when it is not there, and
// kInvalidArgument when the variable is not an absolute path.
std::string shared_memory_dir();

// The path of the segment called `name`, existing or not. Throws kInvalidArgument unless the name
// is 1 to 200 characters of A-Z a-z 0-9 . _ -
std::string shared_memory_path(const std::string& name);

// Names of the segments that exist, of all users, sorted.
std::vector<std::string> list_shared_memory();

// The same for shared arrays, whose names are apart from those of segments.
std::string shared_array_path(const std::string& name);
std::vector<std::string> list_shared_arrays();

// Removes files that create_hidden() had to give a hidden name in `directory` and whose process was
// killed: nobody holds a lock on them and nobody has written to them for a minute. Returns how
// many. Makers keep theirs by holding File::lock_shared().
int remove_abandoned(const std::string& directory);

// Makes a directory with mode 0700; false when one is there already. Throws kNotFound when its
// parent is not there, and kInvalidArgument when something else has the path.
bool make_directory(const std::string& path);

// Whether the path is a symbolic link to something that is not there: it can be neither opened nor
// made.
bool leads_nowhere(const std::string& path);

// Names of what is in a directory, sorted. Throws kNotFound.
std::vector<std::string> list_directory(const std::string& path);

}  // namespace replay_buffer::os
