// The contiguous memory of one buffer, and typed access to its sections.
//
// A segment is private memory, shared memory or a file. It does not know what is done with it, and
// nothing above it knows how it was mapped, but that one opened for reading must not be written.
//
// A segment appears at its location whole or not at all: it is made in a file that no path leads
// to, and linked when it is ready. Whoever has one open holds a shared lock on its file; one whose
// file can be locked exclusively belongs to nobody. Who writes to a file holds another lock
// besides, so that the last of the writers is known also while others read.
//
// Thread safety: the accessors are const and safe; what they return is shared memory whose rules
// stand in layout.h and in the core classes that own each section.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "os/file.h"
#include "os/memory.h"
#include "segment/layout.h"
#include "segment/location.h"

namespace replay_buffer {

// From the system's source of random numbers.
std::uint64_t random_number();

// Tells a segment from every other, also from one that gets its name or its inode later.
struct SegmentIdentity {
  os::FileIdentity file;
  std::uint64_t lineage = 0;  // see Counters; within a boot it stays
};
// What create() does where there is a segment already.
enum class Existing : std::uint8_t { kRefuse, kReplace };

class Segment {
 public:
  // A new, empty segment. Private memory is reserved, and used as rows are written; shared memory
  // and files are allocated now. Throws kAlreadyExists when there is one, whether or not anybody
  // has it open, unless it is to be replaced; then it lives on where it is open. Throws
  // kOutOfSpace, and kCorrupt when a file that is no segment would have to be replaced. `prepare`,
  // when given, writes to it before anybody else can see it.
  using Prepare = std::function<void(Segment&)>;
  static std::unique_ptr<Segment> create(const Location& location, const BufferConfig& config,
                                         const Schema& schema, const Prepare& prepare = {},
                                         Existing existing = Existing::kRefuse);

  // One that exists. Every fact about it is computed from a checked private copy of its header.
  // Throws kNotFound, kPermissionDenied, kCorrupt, kIncompatible (another format).
  static std::unique_ptr<Segment> open(const Location& location, os::Access access);

  // One whose file was handed over by another process.
  static std::unique_ptr<Segment> adopt(os::File file, const Location& location, os::Access access);

  // Removes a named segment, whichever has the name; it lives on where it is open. With
  // `only_stale`, only when nobody has it open: returns false otherwise.
  static bool remove(const Location& location, bool only_stale);
  // Removes the name of a certain segment, open or closed. False when it has the name no more:
  // nobody has it, or a newer segment, which keeps it.
  static bool remove(const Location& location, const SegmentIdentity& only);
  // The same as remove(location, false) for a user who names a location. Throws kNotFound, and
  // kCorrupt for a file that does not begin like a segment: any path can be given.
  static void unlink(const Location& location);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The private, checked copy of the header's facts. Never read again from shared memory.
  const Layout& layout() const { return layout_; }
  const Location& location() const { return location_; }
  bool writable() const { return mapping_.writable(); }
  // Null for private memory.
  const os::File* file() const { return file_ ? &file_ : nullptr; }

  SegmentIdentity identity() const {
    return {file_.identity(), counters().lineage.load(std::memory_order_relaxed)};
  }

  // For the child of a fork: an open file description, and so locks, of its own.
  void reopen();
  // Closes the file. The memory stays mapped for as long as this lives, and with it the shared
  // lock.
  void release_file() { file_ = os::File(); }

  // The lock of those who write to a file. share() is to be one of them, and waits for who is
  // alone; after 10 seconds it throws kTimeout. try_alone() is whether there is no other; when
  // there is, the caller is none of them any more. leave() ends both. REQUIRES: a file open for
  // writing.
  void share() const;
  bool try_alone() const;
  void leave() const;

  std::byte* base() const { return mapping_.data(); }
  Counters& counters() const { return at<Header>(0)->counters; }
  Owner* owners() const { return at<Owner>(layout_.owners_at); }
  Episode* episodes() const { return at<Episode>(layout_.episodes_at); }
  Block* blocks() const { return at<Block>(layout_.blocks_at); }
  std::atomic<std::uint64_t>* fills() const {
    return at<std::atomic<std::uint64_t>>(layout_.fills_at);
  }
  std::atomic<std::uint64_t>* priorities() const {
    return at<std::atomic<std::uint64_t>>(layout_.priorities_at);
  }
  std::atomic<float>* weights() const { return at<std::atomic<float>>(layout_.weights_at); }
  std::atomic<std::uint64_t>* sums() const {
    return at<std::atomic<std::uint64_t>>(layout_.sums_at);
  }
  std::atomic<std::uint64_t>* lows() const {
    return at<std::atomic<std::uint64_t>>(layout_.lows_at);
  }
  std::atomic<std::uint64_t>* given_back() const {
    return at<std::atomic<std::uint64_t>>(layout_.given_back_at);
  }
  std::atomic<std::uint64_t>* checks() const {
    return at<std::atomic<std::uint64_t>>(layout_.checks_at);
  }
  std::byte* words() const { return base() + layout_.words_at; }
  std::byte* records() const { return base() + layout_.records_at; }
  std::byte* arena(std::size_t block) const {
    return base() + layout_.arenas_at + block * layout_.settings.arena_bytes;
  }

  // Bytes of physical memory behind the segment now.
  std::size_t resident_bytes() const { return mapping_.resident_bytes(); }
  // From here on row ids may be given that were given before: see Counters::lineage.
  void begin_lineage() const;
  // Returns when what was written is on the disk. Does nothing unless it is a file.
  void sync() const { sync(mapping_.size()); }
  void sync_header() const { sync(sizeof(Header)); }

 private:
  void publish(Existing existing);
  void sync(std::size_t bytes) const {
    if (location_.kind == Location::Kind::kFile) mapping_.sync(0, bytes);
  }

  Segment(Location location, os::File file, os::Mapping mapping, Layout layout)
      : location_(std::move(location)),
        file_(std::move(file)),
        mapping_(std::move(mapping)),
        layout_(std::move(layout)) {}

  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(mapping_.data() + offset);
  }

  Location location_;
  os::File file_;
  os::Mapping mapping_;
  Layout layout_;
};

}  // namespace replay_buffer
