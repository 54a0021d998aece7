// Batches of what a view makes of the rows drawn: draw, make, and draw again what cannot be made.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "core/buffer.h"
#include "os/clock.h"
#include "os/let_go.h"
#include "os/threads.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

constexpr std::uint64_t kPatienceNs = 1'000'000'000;

// Of finding out whether a row is a start, as in os/let_go.h: for it, and for the steps after it.
std::size_t work_of_one_look(const ViewSpec& spec) {
  return os::kFindWork + 8 * (spec.length + spec.steps);
}

// How often rows are drawn again for a batch before all starts are looked up. Where few rows are
// starts, guessing is cheaper until it has looked at a good part of the rows as well.
std::uint64_t most_guesses(const ViewSpec& spec, std::size_t items, std::size_t rows) {
  const bool rare = spec.sequence && (spec.whole || !spec.pad || spec.period > 1);
  const std::uint64_t each = rare ? 8192 : 80;
  const std::uint64_t all = items * each;
  return rare ? std::max<std::uint64_t>(all, rows / 4) : all;
}

}  // namespace

void Buffer::begin(Draw& draw, const View& view) {
  if (!sampler_->draws_freely() || ring_.blocks.used_slots() == 0) return;
  choose(draw, draws().load(std::memory_order_relaxed));
  for (const Pick& pick : draw.picks().first(std::min(draw.rows_, View::kRun))) {
    view.prefetch(pick.slot);
  }
  draw.begun_ = true;
}

void Buffer::finish(Draw& draw, const View& view, const ViewBatch& batch, float beta) {
  try {
    take_turn(draw);
    make_items(view, draw.random_, draw.picks(), batch);
  } catch (...) {
    give_back(draw);
    throw;
  }
  if (batch.weights != nullptr) weigh(draw, batch.ids, beta, batch.weights);
  count_turn(draw);
  drawn_batch(draw, batch.rows);
}

// Makes the items of picks, to places from `at` on; `failed` gets 1 for those that could not be.
void Buffer::make_some(const View& view, std::span<const Pick> picks, const ViewBatch& batch,
                       std::size_t at, std::uint64_t salt, std::uint8_t* failed,
                       Window& window) const {
  if (view.plain()) {
    view.make_plain(picks, batch, at, window, failed);
    for (std::size_t i = 0; i < picks.size() && ring_.priorities; ++i) {
      if (!same_mass(picks[i])) failed[i] = 1;
    }
    return;
  }
  const std::uint64_t oldest = ring_.blocks.oldest_id();
  std::uint64_t slots[View::kRun];
  for (std::size_t i = 0; i < picks.size(); ++i) slots[i] = picks[i].slot;
  view.fetch({slots, picks.size()});
  window.clear();
  std::size_t done = 0;  // items that were copied
  for (std::size_t i = 0; i < picks.size(); ++i) {
    if (i + 1 < picks.size()) view.fetch(slots[i + 1]);
    const std::uint64_t word = wanted_word(picks[i], oldest);
    if (word == 0) {
      window.items.emplace_back();
    } else {
      // Items have generators of their own, so that a batch is the same however it is shared out.
      view.resolve({picks[i].slot, word}, batch.time, Random(salt, at + i), window);
      batch.ids[at + i] = static_cast<std::int64_t>(row_id(word));
    }
    if (i + 1 < picks.size() && !view.ample(window)) continue;
    view.copy(window, batch, at + done);
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
    for (const Window::Item& item : window.items) {
      const bool made = item.made && view.whole(window, item) && same_mass(picks[done]);
      failed[done++] = made ? 0 : 1;
    }
    window.clear();
  }
}

void Buffer::make_items(const View& view, Random& random, std::span<Pick> picks,
                        const ViewBatch& batch) {
  const std::uint64_t salt = random.next();
  Spare spare;
  spare.guesses = most_guesses(view.spec(), picks.size(), ring_.blocks.used_slots());
  if (view.selective()) {
    for (Pick& pick : picks) {
      while (!view.may_start(pick.slot) && redraw(view, random, pick, spare)) {
      }
    }
  }
  std::uint8_t few[Draw::kInline];
  std::vector<std::uint8_t> more(picks.size() > Draw::kInline ? picks.size() : 0);
  const std::span<std::uint8_t> failed(more.empty() ? few : more.data(), picks.size());
  const bool shared_out = view.item_bytes(batch) * picks.size() >= kParallelBytes;
  const std::size_t together = view.together(batch, shared_out);
  // The starts of one run come into the cache while the run before is made.
  const auto fetch = [&](std::size_t from) {
    const std::size_t end = std::min(picks.size(), from + together);
    for (std::size_t i = from; i < end; ++i) view.prefetch(picks[i].slot);
  };
  const auto make_run = [&](std::size_t from, Window& window) {
    const std::span<const Pick> run = picks.subspan(from, std::min(together, picks.size() - from));
    make_some(view, run, batch, from, salt, failed.data() + from, window);
  };
  const std::size_t runs = (picks.size() + together - 1) / together;
  if (!shared_out) {
    static thread_local Window window;
    for (std::size_t run = 0; run < runs; ++run) {
      fetch((run + 1) * together);
      make_run(run * together, window);
    }
  } else {
    os::parallel_try(runs, [&](std::size_t run) {
      static thread_local Window window;
      make_run(run * together, window);
    });
  }
  const auto* const end = failed.data() + failed.size();
  const auto next = [&](const std::uint8_t* from) {  // memchr: most often there is none
    return static_cast<const std::uint8_t*>(
        std::memchr(from, 1, static_cast<std::size_t>(end - from)));
  };
  for (const std::uint8_t* at = next(failed.data()); at != nullptr; at = next(at + 1)) {
    const auto i = static_cast<std::size_t>(at - failed.data());
    make_one(view, random, picks[i], batch, i, salt, spare);
  }
}

// Draws one more row to try: several at a time, and the more of them the more are needed, so that
// they come into the cache together. Returns false when there is nothing to draw, or enough was.
bool Buffer::redraw(const View& view, Random& random, Pick& pick, Spare& spare) {
  const std::size_t most = sampler_->consumes() ? 1 : 64;
  if (spare.guesses == 0) return false;
  --spare.guesses;
  spare.work += work_of_one_look(view.spec());
  if (os::is_long(spare.work)) os::let_go();
  if (spare.used == spare.picks.size()) {
    spare.picks.resize(spare.wanted);
    spare.used = 0;
    if (!sampler_->redraw_many(random, spare.picks)) {
      spare.picks.clear();
      return false;
    }
    for (const Pick& next : spare.picks) view.prefetch(next.slot);
    spare.wanted = std::min(2 * spare.wanted, most);
  }
  sampler_->overtaken(pick);
  pick = spare.picks[spare.used++];
  return true;
}

bool Buffer::try_make(const View& view, const Pick& pick, const ViewBatch& batch, std::size_t at,
                      std::uint64_t salt, Window& window) const {
  std::uint8_t failed = 0;
  make_some(view, {&pick, 1}, batch, at, salt, &failed, window);
  return failed == 0;
}

// Draws until an item can be made: by guessing, which leaves every start the probability it has
// among the starts; then among all starts, which are looked up once for a batch.
void Buffer::make_one(const View& view, Random& random, Pick& pick, const ViewBatch& batch,
                      std::size_t at, std::uint64_t salt, Spare& spare) {
  static thread_local Window window;
  std::vector<Pick>& starts = spare.starts;
  while (redraw(view, random, pick, spare)) {
    if (view.may_start(pick.slot) && try_make(view, pick, batch, at, salt, window)) return;
  }
  const std::uint64_t since = os::monotonic_ns();
  do {
    if (sampler_->consumes()) throw_not_enough(batch.rows, 0);
    if (starts.empty()) starts = weighed_starts(view, batch.time);
    if (starts.empty()) {
      throw Error(ErrorCode::kNotEnoughRows, "cannot sample " + std::to_string(batch.rows) +
                                                 " items: of " + std::to_string(size()) +
                                                 " rows none is a start for this view");
    }
    double total = 0;
    for (const Pick& one : starts) total += static_cast<double>(one.mass);
    double target = random.unit() * total;
    pick = starts.back();
    for (const Pick& one : starts) {
      target -= static_cast<double>(one.mass);
      if (target >= 0) continue;
      pick = one;
      break;
    }
    if (try_make(view, pick, batch, at, salt, window)) return;
    starts.clear();  // overwritten meanwhile: they have changed
  } while (os::monotonic_ns() - since < kPatienceNs);
  throw Error(ErrorCode::kNotEnoughRows, "cannot sample " + std::to_string(batch.rows) +
                                             " items: none of them can be read whole");
}

std::vector<Place> Buffer::starts(const View& view, std::size_t time) const {
  if (os::is_long(ring_.blocks.used_slots() * work_of_one_look(view.spec()))) os::let_go();
  std::vector<Place> found;
  std::vector<bool> hopeless(ring_.rows.capacity());  // by slot, once that is known
  Window window;
  for (std::size_t slot = 0; slot < ring_.rows.capacity(); ++slot) {
    if (slot % ring_.blocks.block_rows() == 0 &&
        ring_.blocks.fill(slot / ring_.blocks.block_rows()).committed == 0) {
      slot += ring_.blocks.rows_in(slot / ring_.blocks.block_rows()) - 1;
      continue;
    }
    Place row{};
    if (hopeless[slot] || !view.streams().at(slot, row)) continue;
    window.clear();
    if (!view.resolve(row, time, Random(0, 0), window)) {
      if (!view.ran_out(window.items[0])) continue;
      for (const Stretch& rows : window.stretches) {
        for (std::size_t i = 0; i < rows.n; ++i) {
          if (rows[i].id() > row.id()) hopeless[rows[i].slot] = true;
        }
      }
      continue;
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence in Rows::write
    if (view.whole(window, window.items[0])) found.push_back(row);
  }
  return found;
}

// The same with the masses they are drawn with; all equal when none has any.
std::vector<Pick> Buffer::weighed_starts(const View& view, std::size_t time) {
  std::vector<Pick> picks;
  for (const Place& row : starts(view, time)) {
    picks.push_back({row.slot, ring_.blocks.lap_of_id(row.id()), 0});
  }
  sampler_->weigh(picks);
  const bool equal =
      std::none_of(picks.begin(), picks.end(), [](const Pick& pick) { return pick.mass > 0; });
  if (equal) {
    for (Pick& pick : picks) pick.mass = 1;
  }
  return picks;
}

std::size_t Buffer::make(const View& view, std::span<const std::int64_t> ids,
                         const ViewBatch& batch, std::uint8_t* not_made, std::uint64_t call) const {
  const std::uint64_t salt = Random(~ring_.settings().seed, call).next();  // not that of a draw
  share_out(ids.size(), view.item_bytes(batch), [&](std::size_t from, std::size_t end) {
    Window window;
    for (std::size_t i = from; i < end; ++i) {
      const auto id = static_cast<std::uint64_t>(ids[i]);
      const std::uint32_t lap = ring_.blocks.lap_of_id(id);
      bool made = false;
      if (ids[i] >= 0 && lap != 0) {
        const Pick pick{id % ring_.rows.capacity(), lap, 1};
        // A row further on may have been overwritten on the way: then the item is another.
        for (int tries = 0; tries < 16 && !made; ++tries) {
          made = try_make(view, pick, batch, i, salt, window);
        }
      }
      not_made[i] = made ? 0 : 1;
    }
  });
  return static_cast<std::size_t>(std::count(not_made, not_made + ids.size(), 1));
}

}  // namespace replay_buffer
