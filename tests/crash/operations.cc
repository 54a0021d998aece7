#include "operations.h"

#include <chrono>

namespace replay_buffer::crash_tests {

using testing::config_of;

void fill(World& world) {
  world.create();
  world.me->add(world.config.capacity + world.config.capacity / 2 + 1, world.prioritized());
  world.promise(*world.me);
}
BufferConfig uniform() { return config_of(32, SamplingStrategy::Uniform, 4); }

namespace {

void fill_and_release(World& world) {
  fill(world);
  world.me->buffer.release();
}

BufferConfig prioritized(std::uint64_t capacity = 32) {
  BufferConfig config = config_of(capacity, SamplingStrategy::Prioritized, 4);
  config.weights = WeightScale::GlobalMax;
  return config;
}
BufferConfig tall() { return prioritized(5000); }  // two levels of inner nodes
BufferConfig fifo() { return config_of(32, SamplingStrategy::Fifo, 4); }
BufferConfig steps(BufferConfig config = prioritized()) {
  config.storage = Storage::Steps;
  return config;
}
BufferConfig durable() {
  BufferConfig config = prioritized();
  config.durable = true;
  return config;
}

// Values that vary in size, in arenas that are full before the block is.
BufferConfig varied(BufferConfig config) {
  config.arena_bytes = 1536;
  return config;
}

// Owners that were killed are there: one in a row, one in an update, one while clearing.
void leave_victims(const World& world) {
  leave_dead(world.where, "row.cell", [](Participant& victim) { victim.add(3); });
  if (world.prioritized()) {
    leave_dead(world.where, "update.words", [](Participant& victim) { victim.update(10); });
    leave_dead(world.where, "row.prioritized", [](Participant& victim) { victim.add(5); });
  }
  leave_dead(world.where, "clear.head", [](Participant& victim) { victim.buffer.clear(); });
}

// A file that was open when the machine went down, with a row torn and one half written.
void power_cut(World& world) {
  fill(world);
  world.me.reset();
  const Ring ring(Segment::open(world.where, os::Access::kReadWrite));
  *ring.rows.cell(1, 5) ^= std::byte{1};
  world.lose(static_cast<std::int64_t>(row_id(ring.rows.word(5).load())));
  const std::uint64_t seventh = row_id(ring.rows.word(7).load());
  ring.rows.word(7).store(row_word(seventh, RowState::kWriting));
  world.lose(static_cast<std::int64_t>(seventh));
  ring.segment->priorities()[9].store(0);
  ring.segment->sums()[0].store(0);
  ring.blocks.set_fill(3, {9, 9, 9});
  ring.counters().boot.store(12345);
}

BufferConfig limited() {
  BufferConfig config = prioritized();
  config.min_size = 4;
  config.samples_per_insert = 1;
  config.tolerance = 64;
  return config;
}

}  // namespace

std::vector<Operation> writing() {
  std::vector<Operation> all;
  const auto each = [&](const std::string& name, std::vector<BufferConfig> configs,
                        std::function<void(World&, Participant&)> run) {
    for (const BufferConfig& config : configs) {
      const std::string kind = config.capacity > 256                          ? " tall"
                               : config.durable                               ? " durable"
                               : config.strategy == SamplingStrategy::Uniform ? " uniform"
                               : config.strategy == SamplingStrategy::Fifo    ? " fifo"
                                                                              : " prioritized";
      const std::string size = config.arena_bytes != 0 ? " varied" : "";
      all.push_back({name + kind + size, config, fill, run});
    }
  };
  for (const BufferConfig& config : {steps(uniform()), steps(), steps(durable())}) {
    const std::string kind = config.durable                                 ? " durable"
                             : config.strategy == SamplingStrategy::Uniform ? " uniform"
                                                                            : " prioritized";
    all.push_back({"append" + kind, config, fill, [](World&, Participant& child) {
                     child.add(13, child.buffer.layout().has_priorities());
                   }});
    all.push_back({"append and close" + kind, config, fill, [](World&, Participant& child) {
                     child.add(6);
                     child.buffer.clear();
                     child.add(3);
                   }});
  }
  each("add", {uniform(), prioritized(), tall(), durable(), fifo()},
       [](World&, Participant& child) { child.add(1); });
  each("add many", {uniform(), prioritized(), tall(), durable(), fifo()},
       [](World&, Participant& child) {
         for (int call = 0; call < 6; ++call) child.add(9);
       });
  each("add many", {varied(uniform()), varied(prioritized()), varied(durable()), varied(fifo())},
       [](World&, Participant& child) {
         for (int call = 0; call < 3; ++call) child.add(9);
       });
  each("add with priorities", {prioritized(), tall(), durable()},
       [](World&, Participant& child) { child.add(11, true); });
  each("close", {uniform(), prioritized()}, [](World&, Participant& child) {
    child.add(2);
    child.buffer.release();
    child.add(1);
  });
  return all;
}

// Every strategy, in rings of few small blocks: of one row, two blocks, a last block that is short.
// Each block is claimed, and some more than once.
std::vector<Operation> claiming() {
  std::vector<Operation> all;
  const auto claim = [&](const std::string& kind, BufferConfig config) {
    for (const auto& [capacity, rows] : {std::pair{4, 1}, {8, 4}, {10, 3}, {64, 8}}) {
      config.capacity = static_cast<std::uint64_t>(capacity);
      config.block_rows = static_cast<std::uint64_t>(rows);
      const std::string size = " " + std::to_string(capacity) + " by " + std::to_string(rows);
      all.push_back({"claim " + kind + size, config, fill_and_release,
                     [n = capacity](World&, Participant& child) {
                       for (int row = 0; row <= n; ++row) child.add(1);
                     }});
      all.back().alone = capacity == 2 * rows;  // there is one block beside the child's
      all.back().points = "claim.";
    }
  };
  using enum SamplingStrategy;
  for (const auto& [kind, strategy] : {std::pair{"uniform", Uniform},
                                       {"prioritized", Prioritized},
                                       {"rank", Rank},
                                       {"fifo", Fifo},
                                       {"lifo", Lifo},
                                       {"without replacement", WithoutReplacement}}) {
    claim(kind, config_of(4, strategy, 1));
  }
  claim("steps", steps(uniform()));
  claim("prioritized steps", steps());
  claim("durable", durable());
  claim("varied", varied(prioritized()));
  claim("varied fifo", varied(fifo()));
  return all;
}

std::vector<Operation> changing() {
  std::vector<Operation> all;
  for (const BufferConfig& config : {prioritized(), tall()}) {
    const std::string kind = config.capacity > 256 ? " tall" : " prioritized";
    all.push_back(
        {"update" + kind, config, fill, [](World&, Participant& child) { child.update(20); }});
    all.push_back({"alpha" + kind, config, fill,
                   [](World&, Participant& child) { child.buffer.set_alpha(0.9F); }});
  }
  for (const BufferConfig& config : {uniform(), prioritized(), fifo()}) {
    for (const bool held : {true, false}) {
      all.push_back({held ? "clear a held block" : "clear", config, held ? fill : fill_and_release,
                     [](World&, Participant& child) {
                       child.buffer.clear();
                       child.add(2);
                     }});
    }
  }
  // Stopped, it may find that others have emptied the queue.
  const auto unless_empty = [](auto&& draws) {
    try {
      draws();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotEnoughRows) throw;
    }
  };
  all.push_back({"sample fifo and give back", fifo(), fill, [=](World&, Participant& child) {
                   unless_empty([&] {
                     const auto sampler = make_fifo_sampler(child.buffer.ring());
                     Random random(0, 0);
                     Pick picks[6];
                     sampler->draw(random, picks);
                     sampler->give_back(picks);
                     sampler->draw(random, picks);
                   });
                 }});
  all.push_back({"sample fifo", fifo(), fill, [=](World&, Participant& child) {
                   testing::NumberedRows out(child.buffer.layout().schema, 6);
                   std::int64_t ids[6];
                   unless_empty([&] {
                     for (int batch = 0; batch < 3; ++batch)
                       child.buffer.sample({6, out.out(), ids, nullptr}, 0);
                   });
                 }});
  return all;
}

std::vector<Operation> mending() {
  std::vector<Operation> all;
  for (const BufferConfig& config : {uniform(), prioritized(), tall(), varied(prioritized())}) {
    const std::string kind = config.arena_bytes != 0                        ? " varied"
                             : config.capacity > 256                        ? " tall"
                             : config.strategy == SamplingStrategy::Uniform ? " uniform"
                                                                            : " prioritized";
    // By one that opens the buffer.
    all.push_back({"open beside the dead" + kind,
                   config,
                   [](World& world) {
                     fill(world);
                     leave_victims(world);
                   },
                   {},
                   [](World& world, Witness& witness) {
                     Participant child(world.open(), 2, &witness);
                     child.add(2);
                   }});
    // By one that has it open, and comes by their block.
    all.push_back({"reap" + kind, config, fill,
                   [](World& world, Participant& child) { child.add(2 * world.config.capacity); }});
    all.back().death = [](const World& world) {
      leave_dead(world.where, "row.cell", [](Participant& victim) { victim.add(3); });
    };
    // By a learner, who looks for them once in 256 draws.
    all.push_back({"mend" + kind, config, fill, [](World&, Participant& child) {
                     testing::NumberedRows out(child.buffer.layout().schema, 1);
                     std::int64_t id = 0;
                     child.add(5);  // what was there may have been cleared
                     for (int draw = 0; draw < 257; ++draw)
                       child.buffer.sample({1, out.out(), &id, nullptr}, 0.4F);
                   }});
    all.back().death = [](const World& world) {
      const char* point = world.prioritized() ? "update.words" : "clear.block";
      leave_dead(world.where, point, [&](Participant& victim) {
        if (world.prioritized()) return victim.update(10);
        victim.buffer.clear();
      });
    };
    all.push_back({"open" + kind, config, fill, {}, [](World& world, Witness& witness) {
                     Participant child(world.open(), 2, &witness);
                     child.add(1);
                   }});
    all.push_back({"create" + kind,
                   config,
                   [](World&) {},
                   {},
                   [](World& world, Witness& witness) {
                     Participant child(Segment::create(world.where, world.config, world.schema()),
                                       2, &witness);
                     child.add(2);
                   }});
  }
  all.push_back(
      {"create in the place of another",
       uniform(),
       [](World& world) {
         Participant(Segment::create(world.where, world.config, world.schema()), 3).add(5);
       },
       {},
       [](World& world, Witness& witness) {
         Participant child(
             Segment::create(world.where, world.config, world.schema(), {}, Existing::kReplace), 2,
             &witness);
         child.add(2);
       },
       true});
  return all;
}

Operation recovering() {
  return {"recover",
          durable(),
          power_cut,
          {},
          [](World& world, Witness& witness) {
            Participant child(world.open(), 2, &witness);
            child.add(2);
          },
          true,
          true};
}

// A file: made, opened by a second one, and closed by the last one.
std::vector<Operation> filing() {
  const auto make = [](World& world, Witness& witness) {
    Participant child(Segment::create(world.where, world.config, testing::small_schema()), 2,
                      &witness);
    child.add(2);
  };
  const auto use = [](World& world, Witness& witness) {
    Participant child(world.open(), 2, &witness);
    child.add(2);
  };
  const auto close = [](World& world) {
    fill(world);
    world.me.reset();
  };
  return {{"create a file", prioritized(), [](World&) {}, {}, make, false, true},
          {"open a file", prioritized(), fill, {}, use, false, true},
          {"close a file", durable(), close, {}, use, true, true}};
}

bool try_draw(Participant& who) {
  if (!who.buffer.limiter().try_take(Want::kDraw, 1)) return false;
  Share share(who.buffer.limiter(), Want::kDraw, 1);
  testing::NumberedRows out(who.buffer.layout().schema, 1);
  std::int64_t id = 0;
  who.buffer.sample({1, out.out(), &id, nullptr}, 0.4F);
  share.keep();
  return true;
}
bool try_add(Participant& who) {
  if (!who.buffer.limiter().try_take(Want::kAdd, 1)) return false;
  Share share(who.buffer.limiter(), Want::kAdd, 1);
  who.add(1);
  share.keep();
  return true;
}

Operation limiting() {
  return {"limiter", limited(), fill, [](World&, Participant& child) {
            while (try_draw(child)) {
            }
            Wait wait = child.buffer.wait_for(Want::kDraw, 1);
            wait.sleep(std::chrono::milliseconds(1));
            for (int i = 0; i < 4; ++i) try_add(child);
          }};
}

}  // namespace replay_buffer::crash_tests
