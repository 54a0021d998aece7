#include "os/system_error.h"

#include <cerrno>
#include <system_error>

namespace replay_buffer::os {

ErrorCode code_of(int error) noexcept {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return ErrorCode::kOutOfSpace;
    default:
      return ErrorCode::kSystemFailure;
  }
}

Error system_error(int error, const std::string& sentence) {
  return Error(code_of(error), sentence + ": " + std::system_category().message(error) +
                                   " (errno " + std::to_string(error) + ").");
}

}  // namespace replay_buffer::os
