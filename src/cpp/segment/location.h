// Where a segment is: "heap:", "shm:name", "shm:" (shared, without a name), "file:path".
#pragma once

#include <cstdint>
#include <string>

namespace replay_buffer {

struct Location {
  enum class Kind : std::uint8_t { kHeap, kShm, kFile };

  Kind kind = Kind::kHeap;
  std::string name;  // of shm; the path of file; empty when there is none

  // Throws kInvalidArgument, saying what locations look like.
  static Location parse(const std::string& text);

  bool named() const { return !name.empty(); }
  std::string text() const;
  // The file that holds the segment. REQUIRES: named().
  std::string path() const;
};

}  // namespace replay_buffer
