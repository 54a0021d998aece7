"""Where the orders of the table stand in the C++, and every relaxed operation with the reason why
no order is needed. A test compares both with the source: a new operation fails it until it stands
here, and an order of the table has a protocol that needs it.
"""

from __future__ import annotations

from collections.abc import Mapping

Places = Mapping[str, str]  # by file, what is called: "head.load"; "x2": two of a kind

ORDERED: Mapping[str, Places] = {
    "rows.writing": {"core/rows.h": "atomic_thread_fence"},
    "rows.committed": {"core/rows.h": "w.store"},
    "rows.word": {
        "core/buffer.cc": "rows.word.load x2",
        "core/checkpoint_copy.cc": "rows.word.load x2, word.load",
        "core/rows.h": "word_at",
        "core/ring.h": "rows.word.load",
        "core/streams.h": "rows.word.load",
        "core/verify.cc": "rows.word.load",
        "core/view_plain.cc": "rows.word.load, word_at x3",
    },
    "rows.copied": {
        "core/buffer.cc": "atomic_thread_fence",
        "core/buffer_view.cc": "atomic_thread_fence x2",
        "core/checkpoint_copy.cc": "atomic_thread_fence x4",
        "core/rows.h": "atomic_thread_fence",
        "core/ring.h": "atomic_thread_fence",
        "core/view_plain.cc": "atomic_thread_fence",
    },
    "blocks.taken": {
        "core/blocks.cc": "blocks_.word.compare_exchange_strong x2",
        "core/recovery.cc": "word.compare_exchange_strong x2",
    },
    "blocks.word": {
        "core/blocks.cc": "blocks_.word.load",
        "core/checkpoint_copy.cc": "block.word.load, lap",
        "core/recovery.cc": "blocks.word.load",
        "core/room.cc": "blocks.word.load",
        "core/verify.cc": "blocks.word.load",
    },
    "blocks.claimed": {"core/blocks.cc": "atomic_thread_fence"},
    "blocks.head_helped": {"core/blocks.cc": "counters_.head.compare_exchange_strong"},
    "blocks.head": {"core/blocks.h": "counters_.head.load"},
    "blocks.counted": {"core/blocks.h": "fills_.store x2"},
    "blocks.fill": {"core/blocks.h": "fills_.load", "core/priorities.cc": "fills_.load"},
    "blocks.sealed": {"core/blocks.cc": "blocks_.word.store"},
    "blocks.mended": {"core/recovery.cc": "word.store x2"},
    "blocks.era_begun": {"core/blocks.cc": "counters_.era.compare_exchange_weak"},
    "blocks.word_after_era": {"core/recovery.cc": "word.load"},
    "blocks.latest_era": {"core/blocks.h": "counters_.era.load"},
    "blocks.era": {"core/blocks.h": "counters_.era.load"},
    "recovery.emptied": {"core/recovery.cc": "rows.word.store"},
    "owners.joined": {"segment/owners.cc": "owner.activity.store"},
    "owners.epoch": {
        "segment/owners.cc": "owners.activity.load x2",
        "python/watch.cc": "slots.activity.load",
    },
    "owners.left": {"segment/owners.cc": "owner.pid.store x2"},
    "owners.pid": {"segment/owners.cc": "owner.pid.load"},
    "owners.slot_taken": {"segment/owners.cc": "owners.pid.compare_exchange_strong"},
    "owners.buried": {"segment/owners.cc": "owner.activity.compare_exchange_weak"},
    "owners.call_ends": {
        "segment/owners.cc": "slot.activity.fetch_sub",
        "segment/owners.h": "activity_.fetch_sub",
    },
    "leaves.exchanged": {"core/priorities.cc": "words_.compare_exchange_weak"},
    "leaves.committed": {"core/priorities.cc": "words_.store x2"},
    "leaves.alpha_set": {"core/priorities.cc": "counters_.alpha_bits.store"},
    "leaves.stored": {"core/tree.h": "leaves_.store"},
    "leaves.word_again": {"core/priorities.cc": "words_.load"},
    "leaves.alpha_again": {"core/priorities.cc": "counters_.alpha_bits.load"},
    "leaves.word_after_era": {"core/priorities.cc": "words_.load"},
    "leaves.word_looked_for": {"core/priorities.cc": "words_.load"},
    "leaves.before_many": {"core/priorities.cc": "atomic_thread_fence"},
    "leaves.after_many": {"core/priorities.cc": "atomic_thread_fence"},
    "tree.node": {"core/tree.cc": "word.load, words.load"},
    "tree.renewed": {"core/tree.cc": "word.compare_exchange_weak"},
    "tree.renewed_with_others": {"core/tree.cc": "word.compare_exchange_strong"},
    "queue.given_back": {"core/sample_queue.cc": "total_given_back.fetch_add"},
    "queue.share_taken": {"core/sample_queue.cc": "total_given_back.compare_exchange_weak"},
    "queue.row": {"core/sample_queue.cc": "given_back_.load"},
    "queue.row_taken": {"core/sample_queue.cc": "given_back_.compare_exchange_strong"},
    "links.linked": {"core/blocks.cc": "one.on.compare_exchange_strong"},
    "links.on": {"core/blocks.cc": "one.on.load"},
    "blocks.lap_remembered": {"core/blocks.cc": "older.taken.store"},
    "saving.lap_remembered": {"core/checkpoint_copy.cc": "laps.taken.load"},
    "saving.described": {"core/checkpoint_copy.cc": "atomic_thread_fence"},
    "waits.changed": {"core/limiter.cc": "atomic_thread_fence"},
    "waits.before_sleep": {"core/limiter.cc": "atomic_thread_fence"},
    "waits.bell_rung": {"core/limiter.cc": "counters_.bell.fetch_add"},
    "waits.bell": {"core/limiter.cc": "counters.bell.load"},
    "limiter.share_taken": {"core/limiter.cc": "counters_.balance.compare_exchange_weak"},
    "limiter.balance": {"core/limiter.cc": "counters_.balance.load"},
    "limiter.withdrawn": {"core/limiter.cc": "who.announced.fetch_sub"},
    "limiter.announced": {"core/limiter.cc": "owner.announced.load"},
    "waits.bell_again": {"os/futex_linux.cc": "word.load", "os/futex_macos.cc": "word.load x2"},
    "published.set": {
        "core/buffer.cc": "boot.store x2, counters.boot.store, own_seed_generation_.store",
        "os/process.cc": "cache.valid.store, watching.store",
    },
    "published.seen": {
        "core/buffer.cc": "boot.load, counters.boot.load, own_seed_generation_.load",
        "os/process.cc": "cache.valid.load, watching.load",
        "os/threads.cc": "current.load",
    },
    "published.made": {"os/threads.cc": "current.compare_exchange_strong"},
    "lock.taken": {"os/thread_lock.h": "word_.compare_exchange_strong x2"},
    "lock.freed": {"os/thread_lock.h": "word_.store"},
    "pool.busy_set": {"os/threads.cc": "pool.busy.exchange"},
    "pool.busy_ended": {"os/threads.cc": "pool.busy.store x2"},
    "pool.ticket_given": {"os/threads.cc": "pool.ticket.store"},
    "pool.ticket_taken": {"os/threads.cc": "pool.ticket.compare_exchange_weak"},
    "pool.posted": {"os/threads.cc": "pool.posted.fetch_add"},
    "pool.posted_seen": {"os/threads.cc": "pool.posted.load, pool.posted.wait"},
    "pool.task_finished": {"os/threads.cc": "pool.finished.fetch_add"},
    "pool.finished": {"os/threads.cc": "pool.finished.load, pool.finished.wait, word.load"},
}

# Named in the source with an order for failure too.
SPELLED = {"lock.taken": "acquire relaxed", "pool.ticket_taken": "acquire relaxed"}

# Steps of a protocol beside ordered ones: the programs have them as they are.
STEPS: Places = {
    "core/blocks.cc": "counters_.head.load x2, counters_.head.compare_exchange_strong, "
    "block.before.store, older.back.store, older.on.store, one.back.load, one.back.store, "
    "one.taken.load, one.taken.store, counters_.head.compare_exchange_weak, counters_.era.load, "
    "counters_.head.load",
    "core/blocks.h": "lap.on.load",
    "core/buffer.cc": "own_seed_.load, own_seed_.store, rows.word.load",
    "core/checkpoint_copy.cc": "block.before.load, laps.back.load, laps.on.load, lap, "
    "rows.word.load x3, word.load",
    "core/limiter.cc": "counters.waiting.store, counters_.waiting.load, counters_.waiting.store",
    "core/priorities.cc": "counters_.alpha_bits.load x2, words_.load x4, words_.store, word.load, "
    "blocks_.word.load",
    "core/recovery.cc": "rows.word.load x2",
    "core/rows.h": "w.store, word.load",
    "core/sample_queue.cc": "blocks_.before.load, rows.word.load, given_back_.load, "
    "given_back_.compare_exchange_weak, total_given_back.load x2, total_given_back.fetch_add",
    "core/simd_plain.h": "leaf.load, node.load",
    "core/streams.h": "rows.word.load",
    "core/tree.h": "leaves_.store",
    "core/view_plain.cc": "word_at",
    "core/writer.cc": "word.store x2",
    "os/process.cc": "cache.pid.load, cache.pid.store, cache.pid_namespace.load, "
    "cache.pid_namespace.store, cache.start_time.load, cache.start_time.store",
    "os/threads.cc": "pool.ticket.load x3, pool.finished.store, pool.finished.fetch_add, "
    "pool.busy.load",
    "segment/owners.cc": "owner.start_time.load, owner.start_time.store, owner.pid_namespace.load, "
    "owner.pid_namespace.store, owner.pid.store, owner.activity.load x2",
}

# By who holds the block, or has the lock, of what it or the holder before it has stored.
OWN: Places = {
    "core/blocks.cc": "older.taken.load, newer.taken.load x2, one.back.load",
    "core/blocks.h": "fills_.load, blocks_.before.load",
    "core/recovery.cc": "rows.word.load",
    "core/rows.h": "w.load",
    "core/writer.cc": "word.load x2, rows.word.load, blocks.before.load",
    "segment/owners.cc": "owner.waits.store, owner.pid.load, slot.activity.load",
}

# One number by itself, changed by read-modify-write: it leads to nothing else.
COUNTS: Places = {
    "core/buffer.cc": "draws.load, draws.fetch_add x2, draws.compare_exchange_strong x2, "
    "last_turn_.load, last_turn_.store, missing.load, missing.fetch_add",
    "core/buffer.h": "counters.draws.load, own_draws_.load",
    "core/buffer_view.cc": "draws.load",
    "core/limiter.cc": "counters_.balance.load x5, counters_.balance.compare_exchange_weak x2, "
    "counters_.balance.compare_exchange_strong, counters_.balance.store, filled_era_.load, "
    "filled_era_.store x2, me_.announced.fetch_add",
    "core/priorities.cc": "counters_.max_raw_bits.load x2, "
    "counters_.max_raw_bits.compare_exchange_weak",
    "core/sample_queue.cc": "lap.taken.load, taken.load x2, taken.compare_exchange_weak, "
    "lost_.load, lost_.fetch_add, lost_.exchange",
    "os/process.cc": "fork_count.fetch_add",
    "os/process.h": "fork_count.load",
    "python/view.cc": "self.calls.fetch_add",
    "segment/owners.h": "activity_.fetch_add",
}

# A guess, or a first look: whoever goes by it looks again, finds in it the lap it is of, or only
# loses a turn.
HINTS: Places = {
    "core/blocks.cc": "counters_.era.load, fills_.load, one.taken.load",
    "core/blocks.h": "blocks_.word.load x2",
    "core/buffer.cc": "rows.word.load",
    "core/checkpoint_copy.cc": "rows.word.load x2",
    "core/priorities.cc": "counters_.head.load",
    "core/priorities.h": "words_.load",
    "core/recent.cc": "rows.word.load",
    "core/ring.h": "counters.alpha_bits.load",
    "core/sample_epoch.cc": "rows.word.load",
    "core/limiter.cc": "counters.bell.load",
    "core/sample_queue.cc": "rows.word.load, total_given_back.load, blocks_.word.load",
    "core/sample_rank.cc": "rows.word.load, counters.updates_applied.load",
    "core/sampler.cc": "rows.word.load x2",
    "core/streams.h": "heads.word",
    "core/tree.h": "leaves_.load",
    "os/let_go.h": "long_work.load",
    "os/thread_lock.cc": "word_.load",
    "os/threads.h": "scarce.load, scarce.store",
    "python/core_call.cc": "handle.slow_disk.load, disk_.slow_disk.store",
    "python/module.cc": "long_work.exchange, long_work.load",
}

# Statistics and messages.
STATISTICS: Places = {
    "core/buffer.cc": "counters.rows_sampled.fetch_add, count.load",
    "core/checkpoint_copy.cc": "segment.given_back.load",
    "core/checkpoint_write.cc": "counters.lineage.load x2, c.draws.load, c.rows_sampled.load, "
    "c.updates_applied.load, c.updates_stale.load, c.episodes.load, c.episode_steps.load, "
    "c.return_bits.load, c.balance.load, c.alpha_bits.load, c.max_raw_bits.load, c.bytes_in.load, "
    "c.bytes_kept.load, one.steps.load, one.return_bits.load",
    "core/limiter.cc": "counters_.rows_sampled.load, me.waits.store, owner.waits.load x2, "
    "owner.pid.load x2",
    "core/priorities.cc": "counters_.updates_applied.fetch_add, counters_.updates_stale.fetch_add",
    "core/recovery.cc": "blocks.word.load",
    "core/ring.h": "owners.rows_added.load",
    "core/step_writer.cc": "counters.episodes.fetch_add, counters.episode_steps.fetch_add, "
    "counters.return_bits.load, counters.return_bits.compare_exchange_weak, latest.steps.store, "
    "latest.return_bits.store",
    "core/verify.cc": "laps.taken.load x2",
    "core/writer.cc": "counters.bytes_in.fetch_add, counters.bytes_kept.fetch_add, added.load, "
    "added.store, added.fetch_add",
    "python/module.cc": "one.steps.load, one.return_bits.load, counters.rows_sampled.load",
    "python/watch.cc": "slots.rows_before.load, slots.rows_added.load, slots.waits.load",
    "segment/owners.cc": "owner.waits.store, owner.announced.store, owner.rows_before.store, "
    "owner.rows_added.load, slot.pid.load x2",
    "segment/segment.h": "counters.lineage.load",
}

# Nobody else has the segment: it is being made, restored, or recovered after a power cut.
ALONE: Places = {
    "core/blocks.cc": "one.on.load, one.on.store",
    "core/checkpoint_read.cc": "block.before.store, block.word.store, c.balance.store, "
    "c.bytes_in.store, c.bytes_kept.store, c.draws.store, c.episode_steps.store, c.episodes.store, "
    "c.era.store, c.head.store, c.max_raw_bits.store, c.return_bits.store, c.rows_sampled.store, "
    "c.updates_applied.store, c.updates_stale.store, counters.balance.store, "
    "counters.given_back.fetch_add, episodes.return_bits.store, episodes.steps.store, "
    "laps.back.store, laps.on.store, laps.taken.store, owners.rows_added.store, "
    "rows_.word.load x2, rows_.word.store x2, segment_.checks.store, segment_.given_back.store, "
    "segment_.priorities.store x2",
    "core/recovery.cc": "bits.load, bits.store, block.before.store, block.word.load, "
    "block.word.store, counters.era.store, counters.head.store, laps.taken.load x2, most.load, "
    "most.store, older.back.store, older.on.store, older.taken.store, one.back.store, "
    "one.on.store, one.taken.load, one.taken.store, owner.activity.load, owner.activity.store, "
    "owner.announced.store, owner.pid.store, owner.waits.store, rows.word.load x2, rows.word.store, "
    "segment.given_back.store, segment.lows.store, segment.sums.store, segment.weights.store x2, "
    "word.load x3, word.store x3",
    "core/room.cc": "rows.word.load",
    "core/rows.h": "checks_.load, checks_.store",
    "segment/segment.cc": "counters.alpha_bits.store, counters.boot.store, "
    "counters.lineage.store x2, counters.max_raw_bits.store",
}

REASONS = (STEPS, OWN, COUNTS, HINTS, STATISTICS, ALONE)

# What looks like an operation on an atomic without an order.
NO_ATOMICS: Places = {
    "core/priorities.cc": "tree_.store",
    "core/powers.h": "power4.store",
    "core/sixteen.h": "sums.store",
    # Of the build for ThreadSanitizer, in the place of memcpy: relaxed.
    "core/shared_bytes.h": "__atomic_load_n x2, __atomic_store_n x2",
}
