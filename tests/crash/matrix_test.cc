// The crash matrix: every operation, killed and stopped at every point it passes, at every hit of
// that point up to a limit. See docs/internals/failure-modes.md for what has to hold.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "operations.h"
#include "saved.h"
#include "world.h"

namespace replay_buffer::crash_tests {
namespace {

class Matrix : public ::testing::Test {
 protected:
  static inline unsigned kills = 0;
  static inline unsigned stops = 0;

  void TearDown() override { ::alarm(0); }

  static Witness& witness() {
    static Witness& it = Witness::make();
    return it;
  }

  // Every hit of the first few, then a spread.
  static std::vector<unsigned> chosen(unsigned hits) {
    constexpr unsigned kAll = 10;
    constexpr unsigned kSpread = 6;
    std::vector<unsigned> found;
    for (unsigned k = 1; k <= std::min(hits, kAll); ++k) found.push_back(k);
    for (unsigned i = 1; i <= kSpread && hits > kAll; ++i) {
      const unsigned k = kAll + (hits - kAll) * i / kSpread;
      if (k > found.back()) found.push_back(k);
    }
    return found;
  }

  static Location place(const Operation& operation) {
    const std::string name = "replay-crash-" + std::to_string(::getpid());
    return operation.file ? Location{Location::Kind::kFile, "/dev/shm/" + name + ".file"}
                          : Location{Location::Kind::kShm, name};
  }

  static void body(const Operation& operation, World& world, const std::function<void()>& arm) {
    if (operation.run_alone) {
      arm();
      operation.run_alone(world, witness());
      return;
    }
    Participant child(world.open(), 2, &witness());
    if (operation.death) operation.death(world);
    arm();
    operation.run(world, child);
  }

  void run(const Operation& operation) {
    for (const auto& [point, hits] : count(operation)) {
      if (!point.starts_with(operation.points)) continue;
      for (const unsigned k : chosen(hits)) {
        const std::string text = operation.name + " at " + point + ":" + std::to_string(k);
        try {
          kill(operation, point, k, "kill: " + text);
          stop(operation, point, k, "stop: " + text);
        } catch (const Error& error) {
          ADD_FAILURE() << text << ": " << error.what();
        }
        if (HasFailure() && std::getenv("REPLAY_CRASH_ALL") == nullptr) return;
      }
    }
  }

  static Hits count(const Operation& operation) {
    World world(place(operation), operation.config);
    operation.prepare(world);
    witness().reset();
    const int status = await(start([&] {
      body(operation, world, [] { os::crash::reset(); });
      witness().record(os::crash::passed());
    }));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << operation.name;
    world.end();
    return witness().hits();
  }

  static void guard(const std::string& text) {
    static char name[256];
    std::snprintf(name, sizeof(name), "hung: %s\n", text.c_str());
    ::signal(SIGALRM, [](int) {
      static_cast<void>(!::write(2, name, std::strlen(name)));
      ::_exit(9);
    });
    ::alarm(60);
  }

  void kill(const Operation& operation, const std::string& point, unsigned k,
            const std::string& text) {
    SCOPED_TRACE(text);
    guard(text);
    World world(place(operation), operation.config);
    operation.prepare(world);
    Saved saved;
    if (world.me) saved.make(world.me->buffer);
    witness().reset();
    const int status = await(
        start([&] { body(operation, world, [&] { os::crash::arm(point, k, Action::kKill); }); }));
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
    killed_at().insert(point);
    world.promise(witness());
    save(world, saved, "after the kill");
    survive(world, kills++ % 2 == 0);
    world.end();
  }

  // A checkpoint of what is there now; by one who only reads, where no survivor has it open.
  static void save(const World& world, Saved& saved, const char* when) {
    if (world.me) return saved.check(world.me->buffer, when);
    if (::access(world.where.path().c_str(), F_OK) != 0) return;
    try {
      saved.check(Buffer(Segment::open(world.where, os::Access::kRead)), when);
    } catch (const Error& error) {
      // A file that has to be recovered first.
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      EXPECT_TRUE(world.config.durable) << error.what();
    }
  }

  // Who was there before, and who comes now, in either order.
  static void survive(World& world, bool newcomer_first) {
    if (!world.me) {
      if (::access(world.where.path().c_str(), F_OK) != 0) return;  // it was never made
      world.me = std::make_unique<Participant>(world.open(), 1 << 8);
      world.check_whole(*world.me, "opened anew");
    }
    world.check_promises(*world.me);
    world.check_reads(*world.me);
    if (world.config.min_size != 0) check_limiter(world);
    if (newcomer_first) world.check_newcomer();
    world.work(*world.me);
    world.check_promises(*world.me);
    world.check_whole(*world.me, "after two laps");
    world.check_newcomer();
  }

  // Whoever was killed had its share: those who stay can always draw or add, and each in its turn.
  static void check_limiter(World& world) {
    int drawn = 0;
    int added = 0;
    for (int call = 0; call < 400; ++call) {
      const bool one = call % 2 == 0 ? try_draw(*world.me) : try_add(*world.me);
      const bool other = !one && (call % 2 == 0 ? try_add(*world.me) : try_draw(*world.me));
      ASSERT_TRUE(one || other) << "nobody can go on";
      ++(one == (call % 2 == 0) ? drawn : added);
    }
    EXPECT_GT(drawn, 100);
    EXPECT_GT(added, 100);
    world.promise(*world.me);
  }

  void stop(const Operation& operation, const std::string& point, unsigned k,
            const std::string& text) {
    SCOPED_TRACE(text);
    guard(text);
    ++stops;
    World world(place(operation), operation.config);
    operation.prepare(world);
    Saved saved;
    if (world.me) saved.make(world.me->buffer);
    witness().reset();
    const pid_t pid =
        start([&] { body(operation, world, [&] { os::crash::arm(point, k, Action::kStop); }); });
    int status = await(pid);
    ASSERT_TRUE(WIFSTOPPED(status)) << "status " << status;
    world.promise(witness());
    bool rival = false;
    save(world, saved, "while it is stopped");
    if (!operation.alone && point != "close.alone") work_beside(world, pid, rival);
    ::kill(pid, SIGCONT);
    status = await(pid);
    ASSERT_TRUE(WIFEXITED(status)) << "status " << status;
    EXPECT_EQ(WEXITSTATUS(status), rival ? 3 : 0);
    world.promise(witness());
    survive(world, stops % 2 == 0);
    save(world, saved, "in the end");
    world.end();
  }

  static std::map<std::size_t, std::uint64_t> held_by(const Participant& who, pid_t pid) {
    std::map<std::size_t, std::uint64_t> held;
    const Segment& segment = *who.buffer.ring().segment;
    for (std::size_t b = 0; b < who.buffer.ring().blocks.block_count(); ++b) {
      const std::uint64_t word = segment.blocks()[b].word.load();
      const BlockWord block = BlockWord::unpack(word);
      if (block.state == BlockState::kSealed) continue;
      if (segment.owners()[block.owner].pid.load() == static_cast<std::uint32_t>(pid)) {
        held[b] = word;
      }
    }
    return held;
  }

  // The child is stopped: what it holds is skipped, and nobody waits for it.
  static void work_beside(World& world, pid_t pid, bool& rival) {
    if (!world.me) {
      if (::access(world.where.path().c_str(), F_OK) == 0) {
        world.me = std::make_unique<Participant>(world.open(), 1 << 8);
      } else {
        rival = true;
        world.create();
      }
    }
    const auto held = held_by(*world.me, pid);
    world.check_promises(*world.me);
    world.check_reads(*world.me);
    world.work(*world.me);
    world.check_promises(*world.me);
    EXPECT_EQ(held_by(*world.me, pid), held) << "a block of a live owner was taken";
    // Somebody may come meanwhile.
    Participant newcomer(world.open(), 5);
    newcomer.add(2);
    world.promise(newcomer);
    world.check_reads(newcomer);
  }
};

TEST_F(Matrix, Writing) {
  for (const Operation& operation : writing()) run(operation);
}
TEST_F(Matrix, Claiming) {
  for (const Operation& operation : claiming()) run(operation);
}
TEST_F(Matrix, Changing) {
  for (const Operation& operation : changing()) run(operation);
}
TEST_F(Matrix, Mending) {
  for (const Operation& operation : mending()) run(operation);
}
TEST_F(Matrix, Recovering) { run(recovering()); }
TEST_F(Matrix, Filing) {
  for (const Operation& operation : filing()) run(operation);
}
TEST_F(Matrix, Limiting) { run(limiting()); }

// One process recovers a file, a second waits for it, and the first is killed.
TEST_F(Matrix, WhoWaitsForARecoveryThatIsKilledRecovers) {
  for (const char* point : {"recover.rows", "recover.block", "recover.owners", "recover.done"}) {
    SCOPED_TRACE(point);
    guard(point);
    const Operation operation = recovering();
    World world(place(operation), operation.config);
    operation.prepare(world);
    const pid_t first = start([&] {
      os::crash::arm(point, 1, Action::kStop);
      world.open_and_close();
    });
    ASSERT_TRUE(WIFSTOPPED(await(first)));
    const pid_t second = start([&] { world.open_and_close(); });
    ::usleep(20'000);  // it waits by now; if not, the test shows less
    ::kill(first, SIGKILL);
    ASSERT_TRUE(WIFSIGNALED(await(first)));
    const int status = await(second);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    survive(world, true);
    world.end();
  }
}

// One is stopped between the two steps of clear(), and another clears meanwhile: the era of the
// first, when it goes on, is in the past.
TEST_F(Matrix, AnEraNeverGoesBack) {
  guard("era");
  World world({Location::Kind::kShm, "replay-crash-" + std::to_string(::getpid())}, uniform());
  fill(world);
  const pid_t pid = start([&] {
    Participant child(world.open(), 2);
    os::crash::arm("clear.head", 1, Action::kStop);
    child.buffer.clear();
  });
  ASSERT_TRUE(WIFSTOPPED(await(pid)));
  world.me->add(5);
  world.me->buffer.clear();
  world.me->add(3);
  const Blocks& blocks = world.me->buffer.ring().blocks;
  const std::uint64_t era = blocks.era();
  ::kill(pid, SIGCONT);
  const int status = await(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_EQ(blocks.era(), era);
  EXPECT_EQ(world.me->buffer.size(), 3u);
  world.end();
}

// After all of it.
TEST_F(Matrix, ZLeavesNothingInSharedMemory) {
  const std::string mine = "replay-crash-" + std::to_string(::getpid());
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().filename().string().find(mine), std::string::npos) << entry.path();
  }
  std::cout << "crash matrix: " << kills << " kills, " << stops << " stops\n";
  RecordProperty("kills", static_cast<int>(kills));
  RecordProperty("stops", static_cast<int>(stops));
}

// A point that no test was killed at shows nothing: a new one needs an operation that passes it.
class EveryPoint : public ::testing::Environment {
 public:
  void TearDown() override {
    if (::testing::GTEST_FLAG(filter) != "*") return;
    for (const std::string& point : os::crash::all()) {
      EXPECT_TRUE(killed_at().contains(point)) << "nobody was killed at " << point;
    }
    EXPECT_GE(os::crash::all().size(), 50u);
  }
};
const auto* const kEveryPoint = ::testing::AddGlobalTestEnvironment(new EveryPoint);

}  // namespace
}  // namespace replay_buffer::crash_tests
