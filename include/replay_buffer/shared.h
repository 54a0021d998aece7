// Buffers in shared memory or files, that processes open by location: any number for reading, up to
// 256 handles for writing, each of which needs a block of its own (BufferConfig::block_rows).
//
//   using Buffer = SharedPrioritizedReplayBuffer<Observation, int>;
//   auto buffer = Buffer::create("shm:atari", config);
//   auto buffer = Buffer::open("shm:atari");
//   auto buffer = Buffer::open_or_create("shm:atari", config);
//
// Locations are "shm:name" and "file:path". Any process may be killed at any time: no row is torn,
// none that was added is lost, nobody waits for the dead.
#pragma once

#include <string>
#include <utility>

#include "replay_buffer/buffer.h"

namespace replay_buffer {

// A ring of transitions, drawn as the config it was created with says.
template <typename Observation, typename Action>
class SharedCircularBuffer : public ReplayBuffer<Observation, Action> {
  using Base = ReplayBuffer<Observation, Action>;

 public:
  // Throws kOutOfSpace, and kAlreadyExists when there is one, whether or not anybody has it open;
  // with `overwrite` that one is replaced, and lives on where it is open.
  static SharedCircularBuffer create(const std::string& location, const BufferConfig& config,
                                     bool overwrite = false) {
    return SharedCircularBuffer(
        Store::create(location, Base::transitions(config), Base::schema(), overwrite));
  }
  // Opens the one that is there, or creates it: of processes that call this at once one creates.
  // Throws also kInvalidArgument when the one there was made with another config.
  static SharedCircularBuffer open_or_create(const std::string& location,
                                             const BufferConfig& config) {
    return SharedCircularBuffer(
        Store::open_or_create(location, Base::transitions(config), Base::schema()));
  }
  // Throws kNotFound, kSchemaMismatch when it holds something else. One opened for reading cannot
  // add, and needs no permission to write.
  static SharedCircularBuffer open(const std::string& location, bool readonly = false) {
    return SharedCircularBuffer(
        Store::open(location, Base::schema(), Storage::Transitions, readonly));
  }
  // One from a checkpoint of any buffer; see ReplayBuffer::restore and create().
  static SharedCircularBuffer restore(const std::string& path, const std::string& location,
                                      bool overwrite = false) {
    return SharedCircularBuffer(
        Store::restore(path, location, Base::schema(), Storage::Transitions, overwrite));
  }
  // Removes the name; the buffer lives on where it is open. Throws kNotFound.
  static void unlink(const std::string& location) { Store::unlink(location); }

 protected:
  explicit SharedCircularBuffer(Store store) : Base(std::move(store)) {}
};

// The same drawn by priority: the config's strategy may be Prioritized or Rank, and any other
// becomes Prioritized.
template <typename Observation, typename Action>
class SharedPrioritizedReplayBuffer : public SharedCircularBuffer<Observation, Action> {
  using Base = SharedCircularBuffer<Observation, Action>;

 public:
  static SharedPrioritizedReplayBuffer create(const std::string& location,
                                              const BufferConfig& config, bool overwrite = false) {
    return SharedPrioritizedReplayBuffer(
        Store::create(location, prioritized(config), Base::schema(), overwrite));
  }
  static SharedPrioritizedReplayBuffer open_or_create(const std::string& location,
                                                      const BufferConfig& config) {
    return SharedPrioritizedReplayBuffer(
        Store::open_or_create(location, prioritized(config), Base::schema()));
  }
  // Throws also kInvalidArgument when the buffer there is not drawn by priority.
  static SharedPrioritizedReplayBuffer open(const std::string& location, bool readonly = false) {
    Store store = Store::open(location, Base::schema(), Storage::Transitions, readonly);
    check(store.config(), location);
    return SharedPrioritizedReplayBuffer(std::move(store));
  }
  // The same of the one in the checkpoint.
  static SharedPrioritizedReplayBuffer restore(const std::string& path, const std::string& location,
                                               bool overwrite = false) {
    check(Store::saved_config(path), path);
    return SharedPrioritizedReplayBuffer(
        Store::restore(path, location, Base::schema(), Storage::Transitions, overwrite));
  }

 private:
  explicit SharedPrioritizedReplayBuffer(Store store) : Base(std::move(store)) {}

  static void check(const BufferConfig& config, const std::string& where) {
    if (Base::weighted(config)) return;
    throw Error(ErrorCode::kInvalidArgument, where + " keeps no priorities");
  }
  static BufferConfig prioritized(BufferConfig config) {
    Base::transitions(config);
    if (!Base::weighted(config)) config.strategy = SamplingStrategy::Prioritized;
    return config;
  }
};

}  // namespace replay_buffer
