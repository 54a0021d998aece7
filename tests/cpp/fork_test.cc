// The child of a fork has a copy of private memory, in which other threads of the parent were in
// the midst of something. It is mended before the child writes, counts or verifies.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "core/verify.h"
#include "numbered.h"
#include "os_child.h"
#include "sanitized.h"
#include "stepped.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using testing::NumberedRows;
using Clock = std::chrono::steady_clock;
using Work = std::function<void(const std::atomic<bool>& stop)>;

const std::size_t kForks = testing::rounds(150);
constexpr std::chrono::seconds kLongest{20};

// What is wrong in the child: nothing.
int look(Buffer& buffer, const std::string& when) {
  for (const std::string& found : verify(buffer.ring(), buffer.owners())) {
    std::fprintf(stderr, "%s: %s\n", when.c_str(), found.c_str());
    return 1;
  }
  std::vector<std::int64_t> ids(buffer.capacity());
  ids.resize(buffer.latest(ids.size(), ids.data()));
  NumberedRows rows(buffer.layout().schema, ids.size());
  const std::size_t gone = buffer.get(ids, rows.out(), nullptr);
  if (gone == 0 && ids.size() == buffer.size()) return 0;
  std::fprintf(stderr, "%s: %zu rows, %zu of them gone, and a size of %zu\n", when.c_str(),
               ids.size(), gone, buffer.size());
  return 1;
}

// Forks again and again beside threads that work, and looks at what each child has.
void fork_beside(Buffer& buffer, const std::vector<Work>& works,
                 const std::function<void()>& write_on) {
  if (testing::kSanitized) GTEST_SKIP() << "a child may inherit a lock of the sanitizer's malloc";
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(works.size());
  for (const Work& work : works) threads.emplace_back([&] { work(stop); });
  const Clock::time_point end = Clock::now() + kLongest;
  int code = 0;
  for (std::size_t i = 0; i < kForks && code == 0 && Clock::now() < end; ++i) {
    Child child([&] {
      ::alarm(60);  // should it hang
      buffer.mend_after_fork();
      if (look(buffer, "in the child") != 0) return 1;
      write_on();
      return look(buffer, "after it wrote");
    });
    code = child.join();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(code, 0);
  EXPECT_EQ(look(buffer, "in the parent"), 0);
}

void add(Buffer& buffer, std::size_t n, std::uint64_t first) {
  NumberedRows rows(buffer.layout().schema, n);
  for (std::size_t i = 0; i < n; ++i) rows.fill(i, first + i);
  buffer.add(n, rows.in(), nullptr, nullptr);
}

class Forked : public ::testing::TestWithParam<SamplingStrategy> {
 protected:
  void SetUp() override {}
};

TEST_P(Forked, BesideThreadsThatAdd) {
  const Schema schema = testing::small_schema();
  Buffer buffer(Segment::create({}, testing::config_of(300, GetParam(), 16), schema));
  const auto adding = [&](std::size_t n) {
    return [&buffer, n](const std::atomic<bool>& stop) {
      for (std::uint64_t i = 0; !stop; i += n) add(buffer, n, i);
    };
  };
  fork_beside(buffer, {adding(1), adding(37)}, [&] { add(buffer, 50, 0); });
}

TEST_P(Forked, BesideThreadsThatAddValuesOfAnyLength) {
  BufferConfig config = testing::config_of(60, GetParam(), 8);
  config.arena_bytes = 4096;
  Buffer buffer(Segment::create({}, config, testing::varied_schema()));
  const auto adding = [&](const std::atomic<bool>& stop) {
    for (std::uint64_t i = 0; !stop; i += 5) add(buffer, 5, i);
  };
  fork_beside(buffer, {adding}, [&] { add(buffer, 25, 0); });
}

TEST_P(Forked, BesideOneThatClears) {
  const Schema schema = testing::small_schema();
  Buffer buffer(Segment::create({}, testing::config_of(300, GetParam(), 16), schema));
  const auto adding = [&](const std::atomic<bool>& stop) {
    for (std::uint64_t i = 0; !stop; i += 5) add(buffer, 5, i);
  };
  const auto clearing = [&](const std::atomic<bool>& stop) {
    while (!stop) buffer.clear();
  };
  fork_beside(buffer, {adding, clearing}, [&] { add(buffer, 50, 0); });
}

INSTANTIATE_TEST_SUITE_P(Strategies, Forked,
                         ::testing::Values(SamplingStrategy::Uniform,
                                           SamplingStrategy::Prioritized));

TEST(ForkedPriorities, BesideThreadsThatUpdateThem) {
  const Schema schema = testing::small_schema();
  Buffer buffer(
      Segment::create({}, testing::config_of(3000, SamplingStrategy::Prioritized, 16), schema));
  add(buffer, 3000, 0);
  const auto updating = [&](std::int64_t from) {
    return [&buffer, from](const std::atomic<bool>& stop) {
      std::vector<std::int64_t> ids = testing::count_from(from, 1000);
      for (float raw = 1; !stop; raw += 1) buffer.update(ids, std::vector<float>(1000, raw));
    };
  };
  const auto exponents = [&](const std::atomic<bool>& stop) {
    while (!stop) {
      buffer.set_alpha(0.5F);
      buffer.set_alpha(0.7F);
    }
  };
  fork_beside(buffer, {updating(0), updating(900), exponents}, [&] { add(buffer, 50, 0); });
}

std::size_t lengths(std::size_t, std::size_t episode) { return 1 + episode % 5; }

TEST(ForkedWriters, BesideThreadsThatWriteSteps) {
  Buffer buffer(Segment::create({}, testing::step_config(300, 16, SamplingStrategy::Prioritized),
                                testing::step_schema()));
  testing::Steps one(buffer, 1, 1, Autoreset::SameStep, lengths);
  testing::Steps three(buffer, 2, 3, Autoreset::SameStep, lengths);
  const auto writing = [](testing::Steps& steps) {
    return [&steps](const std::atomic<bool>& stop) {
      while (!stop) steps.append();
    };
  };
  fork_beside(buffer, {writing(one), writing(three)}, [&] {
    for (int i = 0; i < 20; ++i) {
      three.append();
      one.append();
    }
  });
}

}  // namespace
}  // namespace replay_buffer
