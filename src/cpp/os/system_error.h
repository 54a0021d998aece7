// One place that turns an errno into an Error.
#pragma once

#include <string>

#include "replay_buffer/error.h"

namespace replay_buffer::os {

// The code that fits an errno: ENOENT is kNotFound, EEXIST kAlreadyExists, EACCES/EPERM/EROFS
// kPermissionDenied, ENOSPC/EDQUOT/EFBIG/ENOMEM kOutOfSpace; all others are kSystemFailure.
ErrorCode code_of(int error) noexcept;

// An Error that reads "<sentence>: <what the system says>." `sentence` names the path and the size
// and has no full stop. For use as `throw system_error(errno, ...)`.
Error system_error(int error, const std::string& sentence);

}  // namespace replay_buffer::os
