#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <deque>
#include <string>

#include "numbered.h"
#include "os_child.h"
#include "replay_buffer/shared.h"

namespace replay_buffer {
namespace {

using Observation = std::array<float, 4>;
using Circular = SharedCircularBuffer<Observation, std::int64_t>;
using Prioritized = SharedPrioritizedReplayBuffer<Observation, std::int64_t>;
using os::testing::Child;
using testing::code_of;

// A name of this test and process, removed at the end.
struct Name {
  explicit Name(const std::string& test)
      : location("shm:test." + test + "." + std::to_string(::getpid())) {}
  ~Name() {
    try {
      Store::unlink(location);
    } catch (const Error&) {
    }
  }
  std::string location;
};

BufferConfig config_of(std::uint64_t capacity) {
  BufferConfig config;
  config.capacity = capacity;
  config.seed = 1;
  return config;
}

Transition<Observation, std::int64_t> row_of(int i) {
  const auto x = static_cast<float>(i);
  return {{x, x, x, x}, i, x, {x, x, x, x}, false};
}

// Runs work() in a child. Returns how it ended: see Child::join().
template <class Work>
int in_child(Work&& work) {
  Child child([&] {
    work();
    return 0;
  });
  return child.join();
}

TEST(SharedBuffer, WhatAnotherProcessAddsIsThere) {
  const Name name("adds");
  Circular buffer = Circular::create(name.location, config_of(100));
  for (int i = 0; i < 10; ++i) buffer.add(row_of(i));
  const int status = in_child([&] {
    Circular other = Circular::open(name.location);
    for (int i = 10; i < 30; ++i) other.add(row_of(i));
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(buffer.size(), 30u);
  for (const auto& row : buffer.sample(64)) {
    EXPECT_EQ(row.observation[3], static_cast<float>(row.action));
  }
}

TEST(SharedBuffer, AForkedCopyIsAWriterOfItsOwn) {
  const Name name("fork");
  Circular buffer = Circular::create(name.location, config_of(1000));
  buffer.add(row_of(0));
  const int status = in_child([&] {
    for (int i = 1; i < 100; ++i) buffer.add(row_of(i));
  });
  EXPECT_EQ(status, 0);
  for (int i = 100; i < 200; ++i) buffer.add(row_of(i));
  EXPECT_EQ(buffer.size(), 200u);
}

TEST(SharedBuffer, AKilledWriterIsInNobodysWay) {
  const Name name("killed");
  Prioritized buffer = Prioritized::create(name.location, config_of(64));
  const int status = in_child([&] {
    Prioritized other = Prioritized::open(name.location);
    for (int i = 0; i < 5; ++i) other.add(row_of(i));
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_EQ(buffer.size(), 5u);
  for (int i = 5; i < 200; ++i) buffer.add(row_of(i));
  EXPECT_EQ(buffer.size(), 64u);
  const auto batch = buffer.sample_batch(32);
  const std::vector<float> ones(32, 1.0F);
  EXPECT_EQ(buffer.update_priorities(batch.indices, ones), 32u);
}

TEST(SharedBuffer, TheConfigComesFromTheSegment) {
  const Name name("config");
  BufferConfig config = config_of(50);
  config.alpha = 0.7F;
  config.strategy = SamplingStrategy::Rank;
  const Prioritized buffer = Prioritized::create(name.location, config);
  const Prioritized other = Prioritized::open(name.location);
  EXPECT_EQ(other.capacity(), 50u);
  EXPECT_EQ(other.config().alpha, 0.7F);
  EXPECT_EQ(other.config().strategy, SamplingStrategy::Rank);
}

TEST(SharedBuffer, OpenedForReadingItDoesNotWrite) {
  const Name name("reading");
  Circular buffer = Circular::create(name.location, config_of(50));
  for (int i = 0; i < 10; ++i) buffer.add(row_of(i));
  Circular reader = Circular::open(name.location, true);
  EXPECT_EQ(reader.sample(20).size(), 20u);
  EXPECT_EQ(code_of([&] { reader.add(row_of(0)); }), ErrorCode::kReadOnly);
  EXPECT_EQ(code_of([&] { reader.clear(); }), ErrorCode::kReadOnly);
}

TEST(SharedBuffer, WhatIsNotThereOrNotTheSameIsRefused) {
  const Name name("refused");
  EXPECT_EQ(code_of([&] { Circular::open(name.location); }), ErrorCode::kNotFound);
  const Circular buffer = Circular::create(name.location, config_of(50));
  EXPECT_EQ(code_of([&] { Circular::create(name.location, config_of(50)); }),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(code_of([&] { Circular::open_or_create(name.location, config_of(51)); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { Prioritized::open(name.location); }), ErrorCode::kInvalidArgument);
  using Other = SharedCircularBuffer<std::array<float, 5>, std::int64_t>;
  try {
    Other::open(name.location);
    ADD_FAILURE() << "observations of another size were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSchemaMismatch);
    EXPECT_NE(std::string(error.what()).find("'obs float32[4]', not 'obs float32[5]'"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(code_of([&] { Other::open_or_create(name.location, config_of(50)); }),
            ErrorCode::kSchemaMismatch);
}

TEST(SharedBuffer, RowsAreReplacedOnlyWhereThatIsAsked) {
  const Name name("replaced");
  const int status = in_child([&] {
    Circular buffer = Circular::create(name.location, config_of(50));
    for (int i = 0; i < 10; ++i) buffer.add(row_of(i));
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_EQ(status, 128 + SIGKILL);
  EXPECT_EQ(code_of([&] { Circular::create(name.location, config_of(50)); }),
            ErrorCode::kAlreadyExists);
  Circular old = Circular::open(name.location);
  EXPECT_EQ(old.size(), 10u);
  const Circular fresh = Circular::create(name.location, config_of(50), true);
  EXPECT_EQ(fresh.size(), 0u);
  old.add(row_of(10));
  EXPECT_EQ(old.size(), 11u);
  EXPECT_EQ(Circular::open(name.location).size(), 0u);
}

TEST(SharedBuffer, OfManyThatOpenOrCreateOneCreates) {
  const Name name("open_or_create");
  std::deque<Child> children;
  for (int child = 0; child < 8; ++child) {
    children.emplace_back([&] {
      Circular buffer = Circular::open_or_create(name.location, config_of(1000));
      for (int i = 0; i < 10; ++i) buffer.add(row_of(i));
      return 0;
    });
  }
  for (Child& child : children) EXPECT_EQ(child.join(), 0);
  EXPECT_EQ(Circular::open(name.location).size(), 80u);
}

}  // namespace
}  // namespace replay_buffer
