// Segments of which some bytes are wrong, and what tests of these need: a place that nothing may
// leave, and a watch over calls that hang.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "numbered.h"
#include "segment/segment.h"

namespace replay_buffer::testing {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

inline constexpr std::chrono::seconds kHang{40};

// Ends the program, naming the round, when a round takes so long that it must be a hang.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    done_ = true;
    thread_.join();
  }
  void begin(std::uint64_t round) {
    round_ = round;
    since_ = Clock::now().time_since_epoch().count();
  }

 private:
  void watch() const {
    while (!done_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const Clock::duration begun{since_.load()};
      if (begun.count() == 0 || Clock::now().time_since_epoch() - begun < kHang) continue;
      std::fprintf(stderr, "round %llu hangs\n", static_cast<unsigned long long>(round_.load()));
      std::abort();
    }
  }

  std::atomic<bool> done_{false};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<Clock::rep> since_{0};
  std::thread thread_;
};

// A place for segments with memory around it that nobody may touch. The kernel puts a mapping into
// the highest gap that it fits into: all gaps above the place are filled.
class Surroundings {
 public:
  Surroundings(std::size_t least, std::size_t most) : most_(most) {
    above_ = take(nullptr, kSide, 0);
    for (int i = 0; i < 20'000; ++i) {
      std::byte* next = take(nullptr, least, 0);
      if (next + least != above_) continue;
      ::munmap(next, least);
      ranges_.pop_back();
      break;
    }
    take(above_ - most - kSide, kSide, MAP_FIXED_NOREPLACE);
  }
  ~Surroundings() {
    for (const auto& [at, bytes] : ranges_) ::munmap(at, bytes);
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  bool hold(const std::byte* base) const { return base >= above_ - most_ && base < above_; }

 private:
  static constexpr std::size_t kSide = std::size_t{64} << 20;

  std::byte* take(std::byte* at, std::size_t bytes, int flags) {
    void* got =
        ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (got == MAP_FAILED) return nullptr;
    ranges_.emplace_back(static_cast<std::byte*>(got), bytes);
    return ranges_.back().first;
  }

  std::size_t most_;
  std::byte* above_ = nullptr;
  std::vector<std::pair<std::byte*, std::size_t>> ranges_;
};

inline os::File file_of(const Bytes& bytes) {
  os::File file = os::File::anonymous(bytes.size());
  file.write_at(0, bytes.data(), bytes.size());
  return file;
}

inline std::unique_ptr<Segment> open_copy(const Bytes& bytes, os::Access access) {
  return Segment::adopt(file_of(bytes), {Location::Kind::kFile, "fuzzed"}, access);
}

// A sound segment as a writer left it that was killed: its last block is open.
struct Specimen {
  std::string name;
  Schema schema;
  Layout layout;
  Bytes bytes;
};

// What `fill` has written, while it holds the buffer.
template <class Fill>
Specimen specimen_by(const std::string& name, const BufferConfig& config, const Schema& schema,
                     const Fill& fill) {
  Buffer buffer(Segment::create({Location::Kind::kShm, ""}, config, schema));
  [[maybe_unused]] const auto held = fill(buffer);
  const Segment& segment = *buffer.ring().segment;
  const std::byte* base = segment.base();
  return {name, schema, segment.layout(), Bytes(base, base + segment.layout().total_bytes)};
}

// Rows added by a writer that has its block open.
inline Specimen specimen_of(const std::string& name, const BufferConfig& config,
                            const Schema& schema, std::size_t rows) {
  return specimen_by(name, config, schema, [&](Buffer& buffer) {
    NumberedRows values(schema, 1);
    for (std::size_t i = 0; i < rows; ++i) {
      values.fill(0, i);
      buffer.add(1, values.in(), nullptr, nullptr);
    }
    return 0;
  });
}

// How calls ended.
using Codes = std::map<ErrorCode, std::size_t>;

inline void attempt(Codes& codes, const std::function<void()>& call) {
  try {
    call();
    ++codes[ErrorCode{}];
  } catch (const Error& error) {
    ++codes[error.code()];
    ASSERT_NE(error.code(), ErrorCode::kSystemFailure) << error.what();
    ASSERT_STRNE(error.what(), "");
  }
}

// Seconds for which a test goes on: more of them in a soak.
inline Clock::time_point fuzz_until() {
  const char* seconds = std::getenv("REPLAY_FUZZ_SECONDS");
  return Clock::now() + std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 8);
}

}  // namespace replay_buffer::testing
