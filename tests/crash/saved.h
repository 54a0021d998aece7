// A checkpoint of a buffer in which somebody died or stopped: it can be restored, holds the rows
// that are there and no others, and the restored buffer goes on.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/checkpoint.h"
#include "os_child.h"
#include "world.h"

namespace replay_buffer::crash_tests {

class Saved {
 public:
  // Each checkpoint builds on the one before.
  void make(const Buffer& live) { write_checkpoint(live.ring(), directory_ / "c"); }

  // Makes one of a buffer that nobody writes to now, and restores it.
  void check(const Buffer& live, const std::string& when) {
    SCOPED_TRACE("checkpoint " + when);
    const CheckpointResult result = write_checkpoint(live.ring(), directory_ / "c");
    std::vector<Room> room;
    Participant restored(restore_checkpoint(directory_ / "c", {}, false, &room), kRestored);
    const Buffer& copy = restored.buffer;
    EXPECT_EQ(result.rows, copy.size());
    expect_sound(copy);
    check_claims(live, copy);
    const testing::NumberedRows rows(live.layout().schema, 2);
    for (std::size_t slot = 0; slot < live.capacity(); ++slot) check_row(live, copy, slot, rows);
    World::check_streams(restored);
    if (copy.ring().settings().strategy == static_cast<std::uint32_t>(SamplingStrategy::Fifo)) {
      check_queue(restored);
    }
    go_on(restored, room);
  }

 private:
  static constexpr std::uint64_t kRestored = 1 << 9;  // its rows are numbered apart
  static constexpr std::size_t kMostRows = 200;       // that are added to it

  static void expect_sound(const Buffer& copy) {
    EXPECT_EQ(verify(copy.ring(), copy.owners()), std::vector<std::string>{});
  }

  // A claim is in the checkpoint with all that belongs to it; the head is behind it.
  static void check_claims(const Buffer& live, const Buffer& copy) {
    const Blocks& blocks = live.ring().blocks;
    bool ahead = false;
    for (std::size_t b = 0; b < blocks.block_count(); ++b) {
      const auto lap = [&](const Buffer& of) {
        return BlockWord::unpack(of.ring().segment->blocks()[b].word.load()).lap;
      };
      EXPECT_EQ(lap(live), lap(copy)) << "block " << b;
      ahead |=
          b == blocks.head() % blocks.block_count() && lap(live) == blocks.lap_of(blocks.head());
    }
    EXPECT_EQ(copy.ring().blocks.head(), blocks.head() + (ahead ? 1 : 0));
  }

  static void check_row(const Buffer& live, const Buffer& copy, std::size_t slot,
                        const testing::NumberedRows& rows) {
    const std::uint64_t word = live.ring().rows.word(slot).load();
    const std::uint64_t saved = copy.ring().rows.word(slot).load();
    if (!row_committed(saved)) {
      EXPECT_TRUE(!live.ring().blocks.live(word) || about_to_go(live, slot, word))
          << "row " << row_id(word) << " is not in the checkpoint";
      return;
    }
    ASSERT_EQ(saved, word) << "slot " << slot << " has a row that was not committed";
    ASSERT_TRUE(live.ring().rows.read(slot, word, rows.out(), 0));
    ASSERT_TRUE(copy.ring().rows.read(slot, word, rows.out(), 1));
    EXPECT_TRUE(rows.whole(1, rows.number(0))) << "row " << row_id(word);
    if (!live.ring().priorities || !row_weighed(word)) return;
    const float raw = own_priority(live, slot, word) ? live.ring().priorities->of(slot).raw
                                                     : live.ring().priorities->max_raw();
    EXPECT_EQ(copy.ring().priorities->of(slot).raw, raw) << "row " << row_id(word);
  }

  static bool own_priority(const Buffer& live, std::size_t slot, std::uint64_t word) {
    return live.ring().priorities->of(slot).lap == row_id(word) / live.capacity() + 1;
  }

  // Its priority is gone, because a writer who lives is about to overwrite it.
  static bool about_to_go(const Buffer& live, std::size_t slot, std::uint64_t word) {
    if (!live.ring().priorities || !row_weighed(word) || own_priority(live, slot, word))
      return false;
    const std::size_t b = slot / live.ring().blocks.block_rows();
    const BlockWord held = BlockWord::unpack(live.ring().segment->blocks()[b].word.load());
    return held.state == BlockState::kOpen && !live.owners().dead({held.owner, held.epoch});
  }

  // A queue that has given nothing out gives each row of the last two laps of the ring, once and in
  // order; of a block only the last two of its own.
  static void check_queue(Participant& restored) {
    const Ring& ring = restored.buffer.ring();
    std::vector<std::int64_t> there;
    std::uint64_t taken = 0;
    for (std::size_t slot = 0; slot < restored.buffer.capacity(); ++slot) {
      const Block& block = ring.segment->blocks()[slot / ring.blocks.block_rows()];
      const std::uint64_t word = ring.rows.word(slot).load();
      const std::uint64_t lap = row_id(word) / restored.buffer.capacity() + 1;
      const std::uint32_t now = BlockWord::unpack(block.word.load()).lap;
      const std::uint64_t sequence =
          (lap - 1) * ring.blocks.block_count() + slot / ring.blocks.block_rows();
      if (row_committed(word) && (lap == now || lap == block.before.load() >> 32) &&
          sequence + 2 * ring.blocks.block_count() >= ring.blocks.head()) {
        there.push_back(static_cast<std::int64_t>(row_id(word)));
      }
      for (const Block::Lap& one : block.laps) taken += one.taken.load() & 0xffffffff;
    }
    std::set<std::int64_t> given;
    testing::NumberedRows out(restored.buffer.layout().schema, 1);
    std::int64_t id = 0;
    while (given.size() < there.size()) {
      try {
        restored.buffer.sample({1, out.out(), &id, nullptr}, 0);
      } catch (const Error&) {
        break;
      }
      EXPECT_TRUE(out.whole(0));
      EXPECT_TRUE(given.empty() || id > *given.rbegin()) << "row " << id << " is out of order";
      given.insert(id);
    }
    if (taken != 0) return;
    EXPECT_EQ(given, std::set<std::int64_t>(there.begin(), there.end()));
  }

  // No id is given twice, and rows are added, found and drawn as in any other buffer.
  static void go_on(Participant& restored, const std::vector<Room>& room) {
    Buffer& copy = restored.buffer;
    std::set<std::int64_t> known;
    for (std::size_t slot = 0; slot < copy.capacity(); ++slot) {
      const std::uint64_t word = copy.ring().rows.word(slot).load();
      if (word != 0) known.insert(static_cast<std::int64_t>(row_id(word)));
    }
    if (copy.ring().blocks.head() % 2 == 0) copy.resume(room);  // the others do without
    for (std::size_t done = 0; done < std::min(2 * copy.capacity(), kMostRows); done += 8) {
      restored.add(8);
    }
    for (const auto& [id, number] : restored.added) {
      EXPECT_FALSE(known.contains(id)) << "row " << id << " was given again";
    }
    expect_sound(copy);
    World::check_streams(restored);
    const std::vector<std::int64_t> ids = restored.latest(copy.capacity());
    testing::NumberedRows rows(copy.layout().schema, ids.size());
    EXPECT_EQ(copy.get(ids, rows.out(), nullptr), 0u);
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_TRUE(rows.whole(i)) << "row " << ids[i];
  }

  os::testing::Directory directory_{"/dev/shm"};
};

}  // namespace replay_buffer::crash_tests
