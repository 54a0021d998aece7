#pragma once

#include "replay_buffer/error.h"

namespace replay_buffer::testing {

// The code of the Error that `call` throws; 0 when it throws none.
template <class Call>
ErrorCode code_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode{};
}

}  // namespace replay_buffer::testing
