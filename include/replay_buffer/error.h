// The errors of replay_buffer: one list for C++, the wire and Python.
//
// A code is the number a remote peer sends and the Python class that is raised; the three lists are
// compared by a test. Numbers are part of the wire format: append, never renumber.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace replay_buffer {

enum class ErrorCode : std::uint16_t {
  kInvalidArgument = 1,    // an argument is outside what the call documents
  kSchemaMismatch = 2,     // a value does not fit its column
  kNotEnoughRows = 3,      // a batch was asked of a buffer that cannot fill it
  kRowGone = 4,            // a row id names a row that was overwritten or never written
  kClosed = 5,             // the buffer or writer was closed
  kReadOnly = 6,           // a write through a read-only handle
  kNotFound = 7,           // no segment at that location
  kAlreadyExists = 8,      // a segment is already at that location
  kCorrupt = 9,            // a segment or file fails its own checks
  kIncompatible = 10,      // made by another format version
  kOutOfSpace = 11,        // memory, disk or row ids are used up
  kPermissionDenied = 12,  // the operating system refused access
  kTimeout = 13,           // a wait reached its deadline
  kBusy = 14,              // every block (or process slot) is held by a live process
  kSystemFailure = 15,     // any other failure of the operating system
};

// Thrown by every part of the library. what() is the whole sentence for the user.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace replay_buffer
