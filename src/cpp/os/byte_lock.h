// Locks on single bytes of a file: the kernel's word on whether a process lives, and on who is
// alone.
//
// A lock belongs to the open file description it was taken through, and ends with it: when the last
// descriptor of it is closed, and so when its process is killed, however that happens. The byte
// need not exist. Two descriptions of one process exclude each other like two processes.
//
// A forked child has the description too and keeps the lock alive after its parent's death, unless
// it closes the descriptor; it takes locks of its own through File::reopen(). Descriptors do not
// survive exec.
//
// These are locks of the local machine; over a network file system they are what it makes of them.
#pragma once

#include <cstdint>

#include "os/file.h"

namespace replay_buffer::os::byte_lock {

// Takes the lock and returns true, also when this description has it already; false when another
// description holds it. Never waits. REQUIRES: the file was opened for writing.
bool try_lock(const File& file, std::uint64_t offset);

// The same for a lock that any number may have at once, and that excludes try_lock(). Who has the
// exclusive one has this one instead; who has this one and is refused the exclusive one keeps it.
bool try_lock_shared(const File& file, std::uint64_t offset);

// Gives the lock up. Not an error when it was not held.
void unlock(const File& file, std::uint64_t offset);

// Whether another description than that of `file` holds the lock. Works on files opened for
// reading.
bool held_by_other(const File& file, std::uint64_t offset);

}  // namespace replay_buffer::os::byte_lock
