// What process.cc asks of each system. Not for use outside of process.cc.
#pragma once

#include "os/process.h"

namespace replay_buffer::os::internal {

// The identity of the calling process, always read anew.
ProcessIdentity query_self();

// A digest of this boot of the machine, never 0; 0 when it cannot be read.
std::uint64_t query_boot();

// As gone(), for an identity of our own namespace whose pid is a positive number.
bool query_gone(const ProcessIdentity& process);

}  // namespace replay_buffer::os::internal
