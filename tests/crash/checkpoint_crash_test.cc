// A checkpoint killed at every point leaves the old one or the new one, whole; so does one that is
// stopped while another is tried, and then goes on.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/buffer.h"
#include "core/checkpoint.h"
#include "core/verify.h"
#include "numbered.h"
#include "os/crash_point.h"
#include "os/directory.h"
#include "os_child.h"
#include "saved.h"
#include "world.h"

namespace replay_buffer {
namespace {

using os::testing::Child;
using os::testing::Directory;
using testing::config_of;
using testing::NumberedRows;
namespace crash = os::crash;

constexpr std::size_t kCapacity = 64;

Schema schema() { return testing::large_schema(3000); }

void add(Buffer& buffer, std::uint64_t from, std::size_t n) {
  NumberedRows rows(schema(), n);
  for (std::size_t i = 0; i < n; ++i) rows.fill(i, from + i);
  buffer.add(n, rows.in(), nullptr, nullptr);
}

std::unique_ptr<Buffer> new_buffer() {
  return std::make_unique<Buffer>(
      Segment::create({Location::Kind::kShm, ""},
                      config_of(kCapacity, SamplingStrategy::Prioritized, 8), schema()));
}

// The numbers of the oldest and the newest row of a checkpoint, all of whose rows are whole.
std::pair<std::uint64_t, std::uint64_t> saved_rows(const std::string& path) {
  Buffer buffer(restore_checkpoint(path, {}, false));
  EXPECT_EQ(verify(buffer.ring(), buffer.owners()), std::vector<std::string>{});
  std::vector<std::int64_t> ids(kCapacity);
  ids.resize(buffer.latest(kCapacity, ids.data()));
  NumberedRows rows(schema(), kCapacity);
  EXPECT_EQ(buffer.get(ids, rows.out(), nullptr), 0u);
  EXPECT_EQ(ids.size(), kCapacity);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_TRUE(rows.whole(i, static_cast<std::uint64_t>(ids[i])));
  }
  return {rows.number(0), rows.number(ids.size() - 1)};
}

// How often each point of a second checkpoint is passed.
std::map<std::string, unsigned> points() {
  const Directory directory;
  const std::unique_ptr<Buffer> buffer = new_buffer();
  add(*buffer, 0, 70);
  write_checkpoint(buffer->ring(), directory / "c");
  add(*buffer, 70, 40);
  crash::reset();
  write_checkpoint(buffer->ring(), directory / "c");
  std::map<std::string, unsigned> found;
  for (const auto& [point, times] : crash::passed()) {
    if (point.rfind("checkpoint.", 0) == 0) found[point] = times;
  }
  crash::reset();
  return found;
}

TEST(CheckpointCrash, KilledAnywhereTheOldOneOrTheNewOneIsThere) {
  const std::map<std::string, unsigned> all = points();
  EXPECT_GE(all.size(), 8u);
  for (const auto& [point, times] : all) {
    for (unsigned hit = 1; hit <= times; ++hit) {
      const std::string where = point + ":" + std::to_string(hit);
      const Directory directory;
      const std::string path = directory / "c";
      const std::unique_ptr<Buffer> buffer = new_buffer();
      add(*buffer, 0, 70);
      write_checkpoint(buffer->ring(), path);
      add(*buffer, 70, 40);
      Child child([&, p = point] {
        crash::arm(p, hit, crash::Action::kKill);
        write_checkpoint(buffer->ring(), path);
        return 0;
      });
      ASSERT_EQ(child.join(), 128 + SIGKILL) << where;
      crash_tests::killed_at().insert(point);
      const auto [oldest, newest] = saved_rows(path);
      EXPECT_TRUE((oldest == 6 && newest == 69) || (oldest == 46 && newest == 109))
          << where << ": " << oldest << " to " << newest;
      if (point == "checkpoint.renamed") {
        EXPECT_EQ(newest, 109u);
      }
      // The next one succeeds and clears up.
      const CheckpointResult result = write_checkpoint(buffer->ring(), path);
      EXPECT_EQ(result.rows, kCapacity) << where;
      EXPECT_EQ(saved_rows(path).second, 109u) << where;
      for (const std::string& name : os::list_directory(path)) {
        EXPECT_TRUE(name == "lock" || name == "manifest" || name.rfind("data-", 0) == 0)
            << where << ": " << name;
      }
    }
  }
}

TEST(CheckpointCrash, TheFirstOneKilledLeavesNoneOrAWholeOne) {
  for (const auto& [point, times] : points()) {
    const Directory directory;
    const std::string path = directory / "c";
    const std::unique_ptr<Buffer> buffer = new_buffer();
    add(*buffer, 0, 70);
    Child child([&, p = point] {
      crash::arm(p, 1, crash::Action::kKill);
      write_checkpoint(buffer->ring(), path);
      return 0;
    });
    child.join();
    try {
      EXPECT_EQ(saved_rows(path).second, 69u) << point;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound) << point << ": " << error.what();
    }
    write_checkpoint(buffer->ring(), path);
    EXPECT_EQ(saved_rows(path).second, 69u) << point;
  }
}

TEST(CheckpointCrash, StoppedAnywhereOthersAreRefusedAndItGoesOn) {
  for (const auto& [point, times] : points()) {
    const Directory directory;
    const std::string path = directory / "c";
    const std::unique_ptr<Buffer> buffer = new_buffer();
    add(*buffer, 0, 70);
    write_checkpoint(buffer->ring(), path);
    add(*buffer, 70, 40);
    Child child([&, p = point] {
      crash::arm(p, 1, crash::Action::kStop);
      write_checkpoint(buffer->ring(), path);
      return 0;
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
    ASSERT_TRUE(WIFSTOPPED(status)) << point;
    add(*buffer, 110, 2 * kCapacity);  // nobody waits for it
    EXPECT_EQ(testing::code_of([&] { write_checkpoint(buffer->ring(), path); }), ErrorCode::kBusy);
    saved_rows(path);
    child.signal(SIGCONT);
    EXPECT_EQ(child.join(), 0) << point;
    const Buffer restored(restore_checkpoint(path, {}, false));
    EXPECT_EQ(verify(restored.ring(), restored.owners()), std::vector<std::string>{}) << point;
    write_checkpoint(buffer->ring(), path);
    EXPECT_EQ(saved_rows(path).second, 109u + 2 * kCapacity) << point;
  }
}

// The claim of a ring's only block, killed or stopped between any two steps; then it goes on.
TEST(CheckpointCrash, AClaimOfTheOnlyBlockIsSavedWhole) {
  for (const char* point :
       {"claim.held", "claim.before", "claim.taken", "claim.begun", "claim.done"}) {
    for (const auto action : {crash::Action::kKill, crash::Action::kStop}) {
      for (const std::size_t rows : {0, 3, 4}) {
        SCOPED_TRACE(std::string(point) + " with " + std::to_string(rows) + " rows");
        const std::unique_ptr<Buffer> buffer = std::make_unique<Buffer>(Segment::create(
            {Location::Kind::kShm, ""}, config_of(4, SamplingStrategy::Fifo, 4), schema()));
        if (rows != 0) add(*buffer, 0, rows);
        buffer->release();
        crash_tests::Saved saved;
        saved.make(*buffer);
        Child child([&] {
          crash::arm(point, 1, action);
          add(*buffer, 100, 2);
          return 0;
        });
        if (action == crash::Action::kKill) {
          ASSERT_EQ(child.join(), 128 + SIGKILL);
          saved.check(*buffer, "in the claim");
          continue;
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
        ASSERT_TRUE(WIFSTOPPED(status));
        saved.check(*buffer, "in the claim");
        child.signal(SIGCONT);
        EXPECT_EQ(child.join(), 0);
        saved.check(*buffer, "after it");
      }
    }
  }
}

TEST(CheckpointCrash, ARestoreThatIsKilledLeavesNothing) {
  const Directory directory;
  const std::unique_ptr<Buffer> buffer = new_buffer();
  add(*buffer, 0, 70);
  write_checkpoint(buffer->ring(), directory / "c");
  const Location file{Location::Kind::kFile, directory / "file"};
  for (unsigned hit = 1; hit <= kCapacity / 8; ++hit) {
    Child child([&] {
      crash::arm("restore.block", hit, crash::Action::kKill);
      restore_checkpoint(directory / "c", file, false);
      return 0;
    });
    EXPECT_EQ(child.join(), 128 + SIGKILL);
    crash_tests::killed_at().insert("restore.block");
    EXPECT_EQ(testing::code_of([&] { Segment::open(file, os::Access::kRead); }),
              ErrorCode::kNotFound);
  }
  EXPECT_EQ(os::list_directory(directory.path()), std::vector<std::string>{"c"});
}

}  // namespace
}  // namespace replay_buffer
