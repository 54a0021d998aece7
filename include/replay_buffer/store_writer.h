// Writers of a store of steps. Untyped; steps.h has the typed face.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace replay_buffer {

class Buffer;
class StepWriter;
class Store;

// Where the last observation of an episode comes from, as Gymnasium's vector environments have it.
enum class Autoreset : std::uint32_t {
  SameStep = 0,  // beside the step that ended it
  NextStep = 1,  // as the observation of the next call, whose other values count for nothing
};

inline constexpr std::size_t kMaxStreams = 32'767;  // so that two slabs are a distance in a Link

// One step of each stream. Row i of column c is at columns[c] + i * bytes(c), or in the Ragged that
// stands there.
struct StepBatch {
  const std::byte* const* columns = nullptr;
  const std::byte* const* finals = nullptr;  // last observations, null for other columns; or null
  const std::uint8_t* terminated = nullptr;
  const std::uint8_t* truncated = nullptr;
  const float* raws = nullptr;  // priorities; or null
  std::int64_t* ids = nullptr;  // gets the ids of the steps' rows; or null
};

// K streams, one step of each at a time.
//
// Thread safety: every method may be called by any number of threads at once.
class StoreWriter {
 public:
  // The store must outlive it; it may be moved. `observed` says of each column whether a last
  // observation has it; `reward` is the column whose sum is the return, -1: none. Throws
  // kInvalidArgument.
  StoreWriter(Store& store, std::size_t streams, Autoreset autoreset, std::vector<bool> observed,
              int reward);
  ~StoreWriter();  // cuts the episodes that are open
  StoreWriter(StoreWriter&& other) noexcept;
  StoreWriter& operator=(StoreWriter&& other) noexcept;

  std::size_t streams() const;

  // Writes one step of each stream. Waits where the rate limiter says so. Throws kInvalidArgument,
  // with nothing written, when an episode ended whose last observation is missing.
  void append(const StepBatch& batch);

  // Cuts the episode of a stream: its last row has no successor. Throws kInvalidArgument.
  void end(std::size_t stream);

  // Cuts all episodes and gives the block back. The writer can go on.
  void close();

 private:
  Buffer* buffer_;
  std::unique_ptr<StepWriter> writer_;
};

}  // namespace replay_buffer
