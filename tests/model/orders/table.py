"""Every order of the C++ that is stronger than relaxed: its name, where it stands, what it meets,
and the rule that breaks when it is weakened.

An order that stands here fails a test until some protocol breaks without it. Which places of the
source it stands for is in places.txt.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.orders.operations import Order

# The rules, in the words of the protocols.
TORN = "a torn row is accepted"
LEAF = "a leaf does not follow from its priority"
LOST = "the root is not the sum of the leaves"
TWO_HOLDERS = "the rows of the last owner overwrite those of the next"
REAPED = "the block of a live owner is reaped"
TAKEN_FOR_DEAD = "a live owner is taken for dead"
SAME_NAME = "two owners have the same name"
UNMENDED = "sums are stale, and nobody is known to be at work"
STILL_COUNTED = "a row that was cleared is still counted"
OLD_ERA = "a writer of the new era writes rows of the old"
OUT_OF_ORDER = "a row is given out before an older one of the same writer"
NOT_THERE = "a row is taken that is not there yet"
FORGOTTEN = "a draw that was given back is forgotten"
MISPLACED = "a neighbour is looked for where it cannot be"
LATER_LAP = "a block is saved with what a later lap says"
OTHER_LINKS = "a block is saved with the links of another lap"
FUTURE = "a checkpoint is refused because of a row from the future"
HALF_CLEARED = "a checkpoint has one half of a clear()"
OVERSLEPT = "somebody sleeps through the change it waits for"
NOT_FOUND = "somebody is woken and does not find the change"
NO_MEANING = "a flag is seen without what it stands for"
UNMADE = "a pool is used before it is made"
BOTH_INSIDE = "two threads are inside of a lock"
OTHER_RESULT = "a job gets the result of another"
IDLE = "a helper sleeps beside a task"
FORGIVEN = "a row is forgiven that is being added"


@dataclass(frozen=True)
class Named:
    order: Order
    where: str
    meets: str  # names of others
    breaks: tuple[str, ...]  # a rule for each way to weaken it by one step


ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL, Order.SEQ_CST

ROWS = {
    "rows.writing": Named(RELEASE, "fence in Rows::write", "rows.copied", (TORN,)),
    "rows.committed": Named(RELEASE, "Rows::write", "rows.word", (TORN,)),
    "rows.word": Named(
        ACQUIRE,
        "whoever copies a row, before",
        "rows.committed, recovery.emptied, blocks.claimed",
        (TORN,),
    ),
    "rows.copied": Named(ACQUIRE, "fence of whoever copies a row, after", "rows.writing", (TORN,)),
}

BLOCKS = {
    "blocks.taken": Named(
        ACQ_REL,
        "CAS that takes a block: claim, reclaim, alter, reap",
        "blocks.sealed, blocks.mended; blocks.word",
        (REAPED, TWO_HOLDERS),
    ),
    "blocks.word": Named(ACQUIRE, "whoever looks who has a block", "blocks.taken", (REAPED,)),
    "blocks.claimed": Named(
        RELEASE, "fence in Blocks::claim", "blocks.head, rows.word, saving.described", (FUTURE,)
    ),
    "blocks.head_helped": Named(
        RELEASE, "CAS of whoever moves the head for another", "blocks.head", (OUT_OF_ORDER,)
    ),
    "blocks.head": Named(
        ACQUIRE, "Blocks::head", "blocks.claimed, blocks.head_helped", (OUT_OF_ORDER,)
    ),
    "blocks.counted": Named(RELEASE, "Blocks::count, set_fill", "blocks.fill", (NOT_THERE,)),
    "blocks.fill": Named(ACQUIRE, "Blocks::fill, never_given", "blocks.counted", (NOT_THERE,)),
    "blocks.sealed": Named(
        SEQ_CST, "Blocks::seal", "blocks.taken; blocks.word_after_era", (STILL_COUNTED,)
    ),
    "blocks.mended": Named(RELEASE, "Recovery::alter, reap", "blocks.taken", (TWO_HOLDERS,)),
}

CLEAR = {
    "blocks.era_begun": Named(
        SEQ_CST, "CAS in Blocks::begin_era", "blocks.era; blocks.latest_era", (STILL_COUNTED,)
    ),
    "blocks.word_after_era": Named(SEQ_CST, "Recovery::alter", "blocks.sealed", (STILL_COUNTED,)),
    "blocks.latest_era": Named(SEQ_CST, "Blocks::latest_era", "blocks.era_begun", (STILL_COUNTED,)),
    "blocks.era": Named(ACQUIRE, "Blocks::era", "blocks.era_begun", (OLD_ERA,)),
    "recovery.emptied": Named(RELEASE, "Recovery::mend_block", "rows.word", (HALF_CLEARED,)),
}

OWNERS = {
    "owners.joined": Named(
        RELEASE, "the epoch, in Owners::join", "owners.epoch", (TAKEN_FOR_DEAD,)
    ),
    "owners.epoch": Named(
        ACQUIRE,
        "whoever asks who has a slot",
        "owners.joined, owners.buried, owners.call_ends",
        (TAKEN_FOR_DEAD,),
    ),
    "owners.left": Named(
        RELEASE, "the pid, in Owners::leave, bury", "owners.pid, owners.slot_taken", (REAPED,)
    ),
    "owners.pid": Named(ACQUIRE, "Owners::process_of", "owners.left", (REAPED,)),
    "owners.slot_taken": Named(ACQUIRE, "CAS in Owners::take", "owners.left", (SAME_NAME,)),
    "owners.buried": Named(RELEASE, "CAS in Owners::bury", "owners.epoch", (UNMENDED,)),
    "owners.call_ends": Named(RELEASE, "~Change, finish_inherited", "owners.epoch", (UNMENDED,)),
}

LEAVES = {
    "leaves.exchanged": Named(SEQ_CST, "CAS in Priorities::exchange", "leaves.word_again", (LEAF,)),
    "leaves.committed": Named(
        SEQ_CST,
        "Priorities::commit, mend",
        "leaves.word_again, leaves.word_looked_for, leaves.word_after_era",
        (LEAF,),
    ),
    "leaves.alpha_set": Named(SEQ_CST, "Priorities::set_alpha", "leaves.alpha_again", (LEAF,)),
    "leaves.stored": Named(SEQ_CST, "Tree::store", "itself, leaves.before_many", (LEAF,)),
    "leaves.word_again": Named(
        SEQ_CST, "Priorities::refresh_leaf", "leaves.exchanged, leaves.committed", (LEAF,)
    ),
    "leaves.alpha_again": Named(SEQ_CST, "Priorities::refresh_leaf", "leaves.alpha_set", (LEAF,)),
    "leaves.word_after_era": Named(
        SEQ_CST, "Priorities::drop_before", "leaves.committed", (STILL_COUNTED,)
    ),
    "leaves.word_looked_for": Named(
        SEQ_CST, "Priorities::refresh_all", "leaves.committed", (LEAF,)
    ),
    "leaves.before_many": Named(
        SEQ_CST, "first fence in refresh_leaves", "leaves.after_many, leaves.stored", (LEAF,)
    ),
    "leaves.after_many": Named(
        SEQ_CST, "second fence in refresh_leaves", "leaves.before_many, leaves.stored", (LEAF,)
    ),
}

TREE = {
    "tree.node": Named(
        ACQUIRE, "the first look of a refresh", "tree.renewed, tree.renewed_with_others", (LOST,)
    ),
    "tree.renewed": Named(ACQ_REL, "CAS in renew", "tree.node, itself", (LOST, LOST)),
    "tree.renewed_with_others": Named(RELEASE, "CAS in Tree::refresh_nodes", "tree.node", (LOST,)),
}

QUEUE = {
    "queue.given_back": Named(RELEASE, "the sum, in give_back", "queue.share_taken", (FORGOTTEN,)),
    "queue.share_taken": Named(
        ACQUIRE, "CAS of the sum, in take_given_back", "queue.given_back", (FORGOTTEN,)
    ),
    "queue.row": Named(ACQUIRE, "visit_given_back", "queue.row_taken", (FORGOTTEN,)),
    "queue.row_taken": Named(
        ACQ_REL, "CAS of a row, in take_given_back", "queue.row, itself", (FORGOTTEN, FORGOTTEN)
    ),
}

LINKS = {
    "links.linked": Named(RELEASE, "CAS in Blocks::link", "links.on", (MISPLACED,)),
    "links.on": Named(ACQUIRE, "Blocks::after", "links.linked", (MISPLACED,)),
}

SAVING = {
    "blocks.lap_remembered": Named(
        RELEASE, "Blocks::begin_lap", "saving.lap_remembered", (OTHER_LINKS,)
    ),
    "saving.lap_remembered": Named(
        ACQUIRE, "BlockCopier::describe", "blocks.lap_remembered", (OTHER_LINKS,)
    ),
    "saving.described": Named(
        ACQUIRE, "fence in BlockCopier::describe", "blocks.claimed", (LATER_LAP,)
    ),
}

WAITS = {
    "waits.changed": Named(
        SEQ_CST, "fence in Limiter::changed", "waits.before_sleep", (OVERSLEPT,)
    ),
    "waits.before_sleep": Named(SEQ_CST, "fence in Wait::sleep", "waits.changed", (OVERSLEPT,)),
    "waits.bell_rung": Named(
        RELEASE, "Limiter::wake", "waits.bell, waits.bell_again", (OVERSLEPT,)
    ),
    "waits.bell": Named(ACQUIRE, "Wait::sleep", "waits.bell_rung", (OVERSLEPT,)),
    "waits.bell_again": Named(ACQUIRE, "os::futex::wait", "waits.bell_rung", (NOT_FOUND,)),
    "limiter.share_taken": Named(
        RELEASE, "CAS in Limiter::take_add", "limiter.balance", (FORGIVEN,)
    ),
    "limiter.balance": Named(ACQUIRE, "Limiter::forgive", "limiter.share_taken", (FORGIVEN,)),
    "limiter.withdrawn": Named(RELEASE, "Limiter::withdraw", "limiter.announced", (FORGIVEN,)),
    "limiter.announced": Named(ACQUIRE, "Limiter::announced", "limiter.withdrawn", (FORGIVEN,)),
}

PROCESS = {
    "published.set": Named(
        RELEASE,
        "boot, the seed of a handle, what this process is, watch_forks",
        "published.seen",
        (NO_MEANING,),
    ),
    "published.seen": Named(
        ACQUIRE,
        "whoever looks for these, and for the pool",
        "published.set, published.made",
        (NO_MEANING,),
    ),
    "published.made": Named(
        ACQ_REL, "CAS in pool_of_this_process", "published.seen, itself", (UNMADE, UNMADE)
    ),
    "lock.taken": Named(ACQUIRE, "CAS in SpinLock::try_lock", "lock.freed", (BOTH_INSIDE,)),
    "lock.freed": Named(RELEASE, "SpinLock::unlock", "lock.taken", (BOTH_INSIDE,)),
    "pool.busy_set": Named(ACQUIRE, "parallel_for", "pool.busy_ended", (OTHER_RESULT,)),
    "pool.busy_ended": Named(RELEASE, "parallel_for", "pool.busy_set", (OTHER_RESULT,)),
    "pool.ticket_given": Named(RELEASE, "parallel_for", "pool.ticket_taken", (OTHER_RESULT,)),
    "pool.ticket_taken": Named(ACQUIRE, "CAS in run_tasks", "pool.ticket_given", (OTHER_RESULT,)),
    "pool.posted": Named(RELEASE, "parallel_for", "pool.posted_seen", (IDLE,)),
    "pool.posted_seen": Named(ACQUIRE, "helper_main", "pool.posted", (IDLE,)),
    "pool.task_finished": Named(RELEASE, "helper_main", "pool.finished", (OTHER_RESULT,)),
    "pool.finished": Named(ACQUIRE, "wait_for_finish", "pool.task_finished", (OTHER_RESULT,)),
}

GROUPS = (ROWS, BLOCKS, CLEAR, OWNERS, LEAVES, TREE, QUEUE, LINKS, SAVING, WAITS, PROCESS)
TABLE = {name: named for group in GROUPS for name, named in group.items()}
ORDERS = {name: named.order for name, named in TABLE.items()}


def weaker(named: Named) -> tuple[Order, ...]:
    """The ways to weaken an order by one step."""
    match named.order:
        case Order.SEQ_CST:
            return (Order.ACQ_REL,)
        case Order.ACQ_REL:
            return (Order.ACQUIRE, Order.RELEASE)
        case _:
            return (Order.RELAXED,)
