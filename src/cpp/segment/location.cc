#include "segment/location.h"

#include "os/directory.h"
#include "replay_buffer/error.h"

namespace replay_buffer {

Location Location::parse(const std::string& text) {
  if (text == "heap:") return {Kind::kHeap, ""};
  if (text.starts_with("shm:")) {
    Location location{Kind::kShm, text.substr(4)};
    if (location.named()) (void)location.path();  // checks the name
    return location;
  }
  if (text.starts_with("file:") && text.size() > 5 && text.find('\0') == std::string::npos) {
    return {Kind::kFile, text.substr(5)};
  }
  throw Error(ErrorCode::kInvalidArgument,
              "a location is 'heap:', 'shm:name', 'shm:' or 'file:path', not '" + text + "'");
}

std::string Location::text() const {
  switch (kind) {
    case Kind::kHeap:
      return "heap:";
    case Kind::kShm:
      return "shm:" + name;
    case Kind::kFile:
      return "file:" + name;
  }
  return {};
}

std::string Location::path() const {
  return kind == Kind::kShm ? os::shared_memory_path(name) : name;
}

}  // namespace replay_buffer
