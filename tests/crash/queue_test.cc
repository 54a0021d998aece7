// A queue whose consumers overtake each other: a batch is taken whole or not at all.
#include <gtest/gtest.h>

#include <algorithm>

#include "operations.h"
#include "world.h"

namespace replay_buffer::crash_tests {
namespace {

using Ids = std::vector<std::int64_t>;

Ids draw(Buffer& buffer, std::size_t n) {
  testing::NumberedRows rows(buffer.layout().schema, n);
  Ids ids(n);
  buffer.sample({n, rows.out(), ids.data(), nullptr}, 0);
  return ids;
}

// Draws of one row each until there is none.
Ids drain(Buffer& buffer) {
  Ids all;
  try {
    for (;;) all.push_back(draw(buffer, 1)[0]);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotEnoughRows) << error.what();
  }
  return all;
}

class Queue : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static BufferConfig config() {
    BufferConfig config = testing::config_of(16, SamplingStrategy::Fifo, 2);
    config.max_times_sampled = GetParam();
    return config;
  }

  // Starts a consumer of n draws, and returns when it has taken from the first block.
  pid_t stopped_consumer(std::size_t n) {
    const pid_t pid = start([&] {
      Participant child(world.open(), 2);
      os::crash::arm("sample.taken", 1, Action::kStop);
      try {
        draw(child.buffer, n);
        ::_exit(7);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kNotEnoughRows) throw;
      }
    });
    EXPECT_TRUE(WIFSTOPPED(await(pid)));
    return pid;
  }

  static void expect_short(pid_t consumer) {
    ::kill(consumer, SIGCONT);
    const int status = await(consumer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

  // Every row was drawn as often as it may be.
  void expect_all_drawn(Ids drawn, const Ids& rows) {
    const Ids rest = drain(world.me->buffer);
    drawn.insert(drawn.end(), rest.begin(), rest.end());
    std::sort(drawn.begin(), drawn.end());
    Ids wanted;
    for (const std::int64_t id : rows) wanted.insert(wanted.end(), GetParam(), id);
    EXPECT_EQ(drawn, wanted);
    EXPECT_TRUE(verify(world.me->buffer.ring(), world.me->buffer.owners()).empty());
  }

  World world{{Location::Kind::kShm, "replay-crash-queue-" + std::to_string(::getpid())}, config()};
};

TEST_P(Queue, ABatchThatComesShortGivesBackWhatItTook) {
  world.create();
  world.me->add(5);
  const std::size_t times = GetParam();
  const pid_t consumer = stopped_consumer(5 * times);
  const Ids drawn = draw(world.me->buffer, times);  // of the second block
  EXPECT_EQ(drawn, Ids(times, 2));
  expect_short(consumer);
  expect_all_drawn(drawn, {0, 1, 2, 3, 4});
}

// Two writers have a row each in a block of their own. Draws of the first block are taken that lie
// behind those of the batch.
TEST_P(Queue, ABatchThatComesShortGivesBackWhereOthersTookLaterDrawsOfTheBlock) {
  world.create();
  Participant other(world.open(), 3);
  world.me->add(1);
  other.add(1);
  const std::size_t times = GetParam();
  const pid_t consumer = stopped_consumer(2 * times);
  world.me->add(1);
  const Ids drawn = draw(world.me->buffer, 2 * times);
  EXPECT_EQ(drawn.front(), 1);
  EXPECT_EQ(drawn.back(), 2);
  expect_short(consumer);
  expect_all_drawn(drawn, {0, 1, 2});
}

// What was given back is given out before what is newer, and is gone with its row.
TEST_P(Queue, GivenBackRowsComeFirstAndGoWithTheirRows) {
  world.create();
  world.me->add(6);
  const std::size_t times = GetParam();
  const pid_t consumer = stopped_consumer(6 * times);
  const Ids drawn = draw(world.me->buffer, 4 * times);
  expect_short(consumer);
  world.me->add(2);
  EXPECT_EQ(draw(world.me->buffer, 1)[0], 0);
  world.me->add(16);  // over all of them
  Ids rows(16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(8 + i);
  expect_all_drawn({}, rows);
}

INSTANTIATE_TEST_SUITE_P(Times, Queue, ::testing::Values(1, 2, 3));

// The sum of what was given back goes to others while a consumer is stopped who has taken some.
using QueueOfOnce = Queue;

TEST_P(QueueOfOnce, DrawsGivenBackAreNotForgottenWhileAConsumerOfOthersIsStopped) {
  world.create();
  world.me->add(5);
  pid_t other = stopped_consumer(5);
  EXPECT_EQ(draw(world.me->buffer, 1)[0], 2);
  expect_short(other);  // gave back rows 0, 1, 3 and 4
  const pid_t stopped = start([&] {
    Participant child(world.open(), 4);
    os::crash::arm("sample.taken_back", 2, Action::kStop);
    if (draw(child.buffer, 2) != Ids{0, 1}) ::_exit(7);
  });
  EXPECT_TRUE(WIFSTOPPED(await(stopped)));
  EXPECT_EQ(draw(world.me->buffer, 2), (Ids{3, 4}));
  world.me->add(1);
  EXPECT_EQ(draw(world.me->buffer, 1)[0], 5);  // finds nothing that was given back
  world.me->add(3);
  other = stopped_consumer(3);
  EXPECT_EQ(draw(world.me->buffer, 1)[0], 8);
  expect_short(other);  // gave back rows 6 and 7
  ::kill(stopped, SIGCONT);
  const int status = await(stopped);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_all_drawn({}, {6, 7});
}

// A consumer is stopped while it gives a row back. Meanwhile another row takes its slot, and is
// given back as well.
TEST_P(QueueOfOnce, ADrawGivenBackLateTakesNoneFromTheRowThatFollows) {
  world.create();
  world.me->add(5);
  const pid_t late = start([&] {
    Participant child(world.open(), 4);
    ::signal(SIGCONT, [](int) { os::crash::arm("sample.giving_back", 1, Action::kStop); });
    os::crash::arm("sample.taken", 1, Action::kStop);
    try {
      draw(child.buffer, 5);
      ::_exit(7);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotEnoughRows) throw;
    }
  });
  EXPECT_TRUE(WIFSTOPPED(await(late)));
  EXPECT_EQ(draw(world.me->buffer, 1)[0], 2);
  ::kill(late, SIGCONT);
  EXPECT_TRUE(WIFSTOPPED(await(late)));  // about to give row 0 back
  world.me->add(16);
  const pid_t other = stopped_consumer(16);
  const Ids drawn = draw(world.me->buffer, 1);
  expect_short(other);  // gave back row 16 among others, in the slot of row 0
  expect_short(late);
  Ids rows(16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(5 + i);
  expect_all_drawn(drawn, rows);
}

INSTANTIATE_TEST_SUITE_P(Once, QueueOfOnce, ::testing::Values(1));

}  // namespace
}  // namespace replay_buffer::crash_tests
