// A buffer in shared memory, or in a file, that a child works on until it is killed or stopped; and
// what has to hold for everybody else.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/step_writer.h"
#include "core/streams.h"
#include "core/verify.h"
#include "numbered.h"
#include "os/crash_point.h"
#include "os/process.h"

namespace replay_buffer::crash_tests {

using os::crash::Action;
using Hits = std::vector<std::pair<std::string, unsigned>>;

// The points at which a child was killed by any test of this program.
inline std::set<std::string>& killed_at() {
  static std::set<std::string> points;
  return points;
}

// Memory that outlives a child: the rows whose add() returned, and the points it passed.
struct Witness {
  static constexpr std::size_t kMost = 16384;

  std::atomic<std::size_t> rows;
  std::int64_t ids[kMost];
  std::uint64_t numbers[kMost];
  char points[16384];

  static Witness& make() {
    void* memory =
        ::mmap(nullptr, sizeof(Witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return *new (memory) Witness{};
  }
  void reset() {
    rows.store(0);
    points[0] = 0;
  }
  void acknowledge(std::int64_t id, std::uint64_t number) {
    const std::size_t at = rows.load(std::memory_order_relaxed);
    if (at == kMost) std::abort();
    ids[at] = id;
    numbers[at] = number;
    rows.store(at + 1, std::memory_order_release);
  }
  void record(const Hits& hits) {
    std::string text;
    for (const auto& [point, n] : hits) text += point + " " + std::to_string(n) + "\n";
    if (text.size() >= sizeof(points)) std::abort();
    std::memcpy(points, text.c_str(), text.size() + 1);
  }
  Hits hits() const {
    Hits found;
    char name[64];
    unsigned n = 0;
    int used = 0;
    for (const char* at = points; std::sscanf(at, "%63s %u\n%n", name, &n, &used) == 2; at += used)
      found.emplace_back(name, n);
    return found;
  }
};

// A process's way to the buffer: rows it adds are numbered apart from everybody else's.
class Participant {
 public:
  Participant(std::unique_ptr<Segment> segment, std::uint64_t who, Witness* witness = nullptr)
      : buffer(std::move(segment)), numbers_(who << 32), witness_(witness) {}

  // Adds n rows in one call; steps one after the other.
  void add(std::size_t n, bool with_priorities = false) {
    if (buffer.layout().has_steps()) return append(n, with_priorities);
    NumberedRows rows(buffer.layout().schema, n);
    std::vector<float> raws(n);
    for (std::size_t i = 0; i < n; ++i) {
      rows.fill(i, numbers_ + i);
      raws[i] = static_cast<float>((numbers_ + i) % 7) * 0.5F;
    }
    std::vector<std::int64_t> ids(n);
    buffer.add(n, rows.in(), with_priorities ? raws.data() : nullptr, ids.data());
    for (std::size_t i = 0; i < n; ++i) {
      if (witness_ != nullptr) witness_->acknowledge(ids[i], numbers_ + i);
      added[ids[i]] = numbers_ + i;
    }
    numbers_ += n;
  }

  // Every fifth step ends an episode; what comes after a step has the next number.
  void append(std::size_t n, bool with_priorities) {
    const std::vector<bool> observed(buffer.layout().schema.size(), true);
    if (!writer_) {
      writer_ = std::make_unique<StepWriter>(buffer, 1, Autoreset::SameStep, observed, -1);
    }
    NumberedRows step(buffer.layout().schema, 1);
    NumberedRows last(buffer.layout().schema, 1);
    for (std::size_t i = 0; i < n; ++i, ++numbers_) {
      step.fill(0, numbers_);
      last.fill(0, numbers_ + 1);
      const std::uint8_t end = numbers_ % 5 == 4 ? 1 : 0;
      const std::uint8_t no = 0;
      const float raw = static_cast<float>(numbers_ % 7) * 0.5F;
      std::int64_t id = 0;
      writer_->append({step.in(), last.in(), &end, &no, with_priorities ? &raw : nullptr, &id});
      if (witness_ != nullptr) witness_->acknowledge(id, numbers_);
      added[id] = numbers_;
    }
  }

  std::vector<std::int64_t> latest(std::size_t n) const {
    std::vector<std::int64_t> ids(n);
    ids.resize(buffer.latest(n, ids.data()));
    return ids;
  }
  void update(std::size_t n) {
    const std::vector<std::int64_t> ids = latest(n);
    std::vector<float> raws(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) raws[i] = static_cast<float>(i % 5) * 1.5F;
    buffer.update(ids, raws);
  }

  Buffer buffer;
  std::map<std::int64_t, std::uint64_t> added;

 private:
  using NumberedRows = testing::NumberedRows;
  std::uint64_t numbers_;
  Witness* witness_;
  std::unique_ptr<StepWriter> writer_;  // of steps
};

// Runs `body` in a child that never comes back, and says how it ended.
inline pid_t start(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::alarm(60);
  int code = 0;
  try {
    body();
  } catch (const Error& error) {
    code = error.code() == ErrorCode::kAlreadyExists ? 3 : 2;
    if (code == 2) std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}
inline int await(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  return status;
}

// Leaves a dead owner behind, killed at the first hit of `point` in `body`.
inline void leave_dead(const Location& where, const char* point,
                       const std::function<void(Participant&)>& body) {
  const int status = await(start([&] {
    Participant victim(Segment::open(where, os::Access::kReadWrite), 77);
    os::crash::arm(point, 1, Action::kKill);
    body(victim);
  }));
  if (!WIFSIGNALED(status)) std::abort();
}

// The rows that everybody was promised, and what survivors see.
class World {
 public:
  World(const Location& location, const BufferConfig& settings)
      : where(location), config(settings) {}
  // After a failure too nothing stays. A child leaves without this.
  ~World() {
    me.reset();
    ::unlink(where.path().c_str());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::unique_ptr<Segment> open() const { return Segment::open(where, os::Access::kReadWrite); }
  void open_and_close() const { const Buffer buffer(open()); }
  void create() { me = std::make_unique<Participant>(Segment::create(where, config, schema()), 1); }
  // An arena is asked for where values are to vary in size.
  Schema schema() const {
    return config.arena_bytes != 0 ? testing::varied_schema() : testing::small_schema();
  }
  bool prioritized() const { return config.strategy == SamplingStrategy::Prioritized; }

  void promise(const Participant& who) {
    for (const auto& [id, number] : who.added) promised_[id] = number;
  }
  void promise(const Witness& witness) {
    const std::size_t n = witness.rows.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < n; ++i) promised_[witness.ids[i]] = witness.numbers[i];
  }
  void lose(std::int64_t id) { promised_.erase(id); }

  // Every promised row that was neither overwritten nor cleared is there.
  void check_promises(const Participant& who) const {
    const Ring& ring = who.buffer.ring();
    const std::uint64_t capacity = who.buffer.capacity();
    testing::NumberedRows out(who.buffer.layout().schema, 1);
    for (const auto& [id, number] : promised_) {
      const std::size_t slot = static_cast<std::uint64_t>(id) % capacity;
      const std::uint64_t lap = static_cast<std::uint64_t>(id) / capacity;
      const std::uint64_t word = ring.rows.word(slot).load();
      if (row_id(word) > static_cast<std::uint64_t>(id)) continue;
      // Where rows are steps, a block forgets what two of its laps have passed by.
      const Block& block = ring.segment->blocks()[slot / ring.blocks.block_rows()];
      const std::uint64_t now = BlockWord::unpack(block.word.load()).lap;
      if (who.buffer.layout().has_steps() && now >= lap + 3) continue;
      if (lap * ring.blocks.block_count() + slot / ring.blocks.block_rows() < ring.blocks.era())
        continue;
      // A later lap of the block may have needed its bytes.
      if (ring.rows.has_arenas() && !row_committed(word) && now > lap + 1) continue;
      ASSERT_EQ(who.buffer.get({&id, 1}, out.out(), nullptr), 0u) << "row " << id << " is lost";
      ASSERT_TRUE(out.whole(0, number)) << "row " << id;
    }
  }

  // What sample, latest and get return is whole, and is what was added.
  void check_reads(Participant& who) const {
    const std::vector<std::int64_t> ids = who.latest(who.buffer.capacity());
    testing::NumberedRows out(who.buffer.layout().schema, ids.size() + 1);
    std::vector<std::uint8_t> gone(ids.size());
    who.buffer.get(ids, out.out(), gone.data());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (gone[i] == 0) check_row(ids[i], out, i);
    }
    if (who.buffer.layout().has_steps()) check_streams(who);
    if (ids.empty() || config.strategy == SamplingStrategy::Fifo) return;
    constexpr std::size_t kBatch = 32;
    testing::NumberedRows drawn(who.buffer.layout().schema, kBatch);
    std::int64_t drawn_ids[kBatch];
    float weights[kBatch];
    // Who draws may find a clear() that was killed, and finish it.
    for (int batch = 0; batch < 4; ++batch) {
      const std::size_t n = who.latest(kBatch).size();  // the newest are given once in a batch
      if (n == 0) break;
      who.buffer.sample({n, drawn.out(), drawn_ids, weights}, 0.4F);
      for (std::size_t i = 0; i < n; ++i) check_row(drawn_ids[i], drawn, i);
    }
  }

  // What survivors do anyway: two laps of rows, batches and updates; and as many draws as it takes
  // for a learner to look for dead ones.
  void work(Participant& who) {
    const std::size_t capacity = who.buffer.capacity();
    for (std::size_t done = 0; done < 2 * capacity; done += 16) {
      who.add(16, prioritized() && done % 32 == 0);
      if (prioritized()) who.update(8);
    }
    promise(who);
    check_reads(who);
    if (config.strategy == SamplingStrategy::Fifo) drain(who);
    who.add(3);
    promise(who);
    testing::NumberedRows out(who.buffer.layout().schema, 1);
    std::int64_t id = 0;
    for (int draw = 0; draw < 257 && config.strategy != SamplingStrategy::Fifo; ++draw) {
      who.buffer.sample({1, out.out(), &id, nullptr}, 0.4F);
      check_row(id, out, 0);
    }
  }

  void check_whole(const Participant& who, const char* when) const {
    const std::vector<std::string> found = verify(who.buffer.ring(), who.buffer.owners());
    EXPECT_TRUE(found.empty()) << when << ": " << found.size()
                               << " violations, first: " << found[0];
  }

  // Somebody who comes now finds everything in order.
  void check_newcomer() {
    Participant newcomer(open(), 3);
    check_promises(newcomer);
    check_reads(newcomer);
    newcomer.add(2);
    promise(newcomer);
    check_whole(newcomer, "opened anew");
  }

  // Nothing stays that `rm --stale` does not remove.
  void end() {
    me.reset();
    if (::access(where.path().c_str(), F_OK) != 0) return;
    EXPECT_TRUE(Segment::remove(where, true));
    EXPECT_NE(::access(where.path().c_str(), F_OK), 0);
  }

  const Location where;
  const BufferConfig config;
  std::unique_ptr<Participant> me;  // the survivor; null while it has nothing open

  // What comes after a step, in its episode, is what its writer wrote after it.
  static void check_streams(const Participant& who) {
    const Ring& ring = who.buffer.ring();
    const Streams streams(ring);
    testing::NumberedRows out(who.buffer.layout().schema, 2);
    for (std::size_t slot = 0; slot < who.buffer.capacity(); ++slot) {
      Place row{};
      Place next{};
      if (!streams.at(slot, row) || row.has(row_flag::kFinal)) continue;
      if (!streams.next(row, next) || next.has(row_flag::kFirst)) continue;
      if (!ring.rows.read(row.slot, row.word, out.out(), 0)) continue;
      if (!ring.rows.read(next.slot, next.word, out.out(), 1)) continue;
      ASSERT_EQ(out.number(0) + 1, out.number(1)) << "after row " << row.id();
      ASSERT_EQ(row.has(row_flag::kEnded), next.has(row_flag::kFinal)) << "row " << row.id();
    }
  }

 private:
  // A queue gives each row once, in order, and nothing that was not added.
  void drain(Participant& who) {
    testing::NumberedRows out(who.buffer.layout().schema, 1);
    std::int64_t id = 0;
    std::map<std::int64_t, int> seen;
    for (;;) {
      try {
        who.buffer.sample({1, out.out(), &id, nullptr}, 0);
      } catch (const Error&) {
        break;
      }
      check_row(id, out, 0);
      EXPECT_EQ(++seen[id], 1) << "row " << id << " was given twice";
    }
    EXPECT_FALSE(seen.empty());
  }

  void check_row(std::int64_t id, const testing::NumberedRows& rows, std::size_t at) const {
    ASSERT_TRUE(rows.whole(at)) << "row " << id << " is torn";
    const auto known = promised_.find(id);
    if (known == promised_.end()) return;
    ASSERT_EQ(rows.number(at), known->second) << "row " << id;
  }

  std::map<std::int64_t, std::uint64_t> promised_;
};

}  // namespace replay_buffer::crash_tests
