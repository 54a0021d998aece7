"""The orders of the model are those of the C++: none is missing, none is left over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from model.orders.functions import code, functions
from model.orders.places import FILE, NONE, RELAXED, order_of, read, suggest, write
from model.orders.sources import Site, sites, sites_in, texts
from model.orders.table import GROUPS, TABLE

DOCUMENT = Path(__file__).parents[3] / "docs" / "internals" / "concurrency.md"
KNOWN = read(FILE.read_text())
TEXTS = texts()


def differences(sources: Mapping[str, str]) -> list[str]:
    """What has to stand in places.txt for this source, where it does not."""
    found = sites(sources)
    lines = []
    for place in sorted({**KNOWN, **found}):
        known, there = KNOWN.get(place, []), found.get(place, [])
        if [Site(what, order_of(name)) for what, name in known] != there:
            entries = suggest(known, there)
            lines += [place[0], write(place[1], entries) if there else f"  {place[1]} is gone"]
    return lines


def test_every_place_of_the_source_has_the_order_of_the_table_or_a_reason() -> None:
    found = differences(TEXTS)
    assert not found, "\n".join(["places.txt has to say, with names for what is new:", *found])


def test_every_name_of_the_table_stands_somewhere() -> None:
    used = {name for entries in KNOWN.values() for _, name in entries}
    assert used == {"", *TABLE, *RELAXED, *NONE}


def test_places_are_written_as_they_are_read() -> None:
    assert read("a.cc\n" + write("f", [("x.load", "step"), ("g", "")])) == {
        ("a.cc", "f"): [("x.load", "step"), ("g", "")]
    }


# ---- what it notices


def body(file: str, function: str) -> str:
    """From the first overload to the last."""
    some = [f for f in functions(code(TEXTS[file])) if f.name == function]
    return TEXTS[file][some[0].start : some[-1].end]


def exchanged(text: str, one: int, other: int) -> str:
    """With two of its orders in each other's place."""
    orders = list(re.finditer(r"memory_order_\w+", text))
    first, second = orders[one], orders[other]
    between = text[first.end() : second.start()]
    assert first[0] != second[0]
    return text[: first.start()] + second[0] + between + first[0] + text[second.end() :]


def moved(text: str, what: str, behind: str) -> str:
    """With the last `what` behind something that follows it."""
    before, _, rest = text.rpartition(what)
    return before + replaced(rest, behind, behind + what)


def replaced(text: str, what: str, by: str) -> str:
    assert what in text
    return text.replace(what, by, 1)


FENCE = "std::atomic_thread_fence(std::memory_order_{});"
MUTATIONS = {
    "a row is committed relaxed, and WRITING is released": (
        "core/rows.h",
        "Rows::write",
        lambda text: exchanged(text, 1, 4),
    ),
    "the fence of a writer stands behind the copying": (
        "core/rows.h",
        "Rows::write",
        lambda text: moved(text, FENCE.format("release"), "write_varied(slot, columns, at, room);"),
    ),
    "the fence of a reader stands before the copying": (
        "core/rows.h",
        "Rows::read",
        lambda text: replaced(
            replaced(text, FENCE.format("acquire"), ""), "{", "{" + FENCE.format("acquire")
        ),
    ),
    "the second look at a word is relaxed, and the first seq_cst": (
        "core/priorities.cc",
        "Priorities::refresh_leaf",
        lambda text: exchanged(text, 0, 2),
    ),
    "the second look at alpha is relaxed, and the first seq_cst": (
        "core/priorities.cc",
        "Priorities::refresh_leaf",
        lambda text: exchanged(text, 1, 3),
    ),
    "the second fence for many leaves stands behind the look at alpha": (
        "core/priorities.cc",
        "Priorities::refresh_leaves",
        lambda text: moved(text, FENCE.format("seq_cst"), "const bool same = alpha() == exponent;"),
    ),
    "the first fence for many leaves stands behind them": (
        "core/priorities.cc",
        "Priorities::refresh_leaves",
        lambda text: replaced(
            replaced(text, FENCE.format("seq_cst"), ""),
            FENCE.format("seq_cst"),
            2 * FENCE.format("seq_cst"),
        ),
    ),
    "what is given back is added relaxed": (
        "core/sample_queue.cc",
        "FifoSampler::give_back",
        lambda text: exchanged(text, 0, -1),
    ),
    "a word is loaded without a call": (
        "core/priorities.cc",
        "Priorities::exchange",
        lambda text: replaced(text, "do {", "seen = words_[slot]; do {"),
    ),
    "a word is stored without a call": (
        "core/priorities.cc",
        "Priorities::retire",
        lambda text: text + "words_[slot] = 0;",
    ),
    "an operation names no order": (
        "core/priorities.cc",
        "Priorities::alpha",
        lambda text: replaced(text, "std::memory_order_relaxed", ""),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_weakens_an_order_is_noticed(name: str) -> None:
    file, function, change = MUTATIONS[name]
    text = body(file, function)
    changed = {**TEXTS, file: replaced(TEXTS[file], text, change(text))}
    lines = differences(changed)
    assert lines[0] == file
    assert lines[1].startswith(f"  {function}: ")
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("file", "one", "other"),
    [
        ("core/priorities.cc", "Priorities::commit", "Priorities::retire"),
        ("core/sample_queue.cc", "FifoSampler::visit_given_back", "FifoSampler::word_of"),
    ],
)
def test_orders_of_two_functions_in_each_others_place_are_noticed(
    file: str, one: str, other: str
) -> None:
    texts_of = [body(file, function) for function in (one, other)]
    orders = [re.findall(r"memory_order_\w+", text) for text in texts_of]
    assert [len(some) for some in orders] == [1, 1]
    changed = TEXTS[file]
    for text, (old,), (new,) in zip(texts_of, orders, orders[::-1], strict=True):
        changed = replaced(changed, text, replaced(text, old, new))
    lines = differences({**TEXTS, file: changed})
    assert {line.strip().partition(": ")[0] for line in lines[1::2]} == {one, other}


# ---- the document


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text()
    rows = [
        f"| `{name}` | {named.order.value} | {named.where} | {named.meets} | "
        f"{'; '.join(dict.fromkeys(named.breaks))} |"
        for group in GROUPS
        for name, named in group.items()
    ]
    assert re.findall(r"^\| `\w+\.\w+` \|.*$", text, re.MULTILINE) == rows


@pytest.mark.parametrize("name", TABLE)
def test_what_an_order_meets_is_in_the_table(name: str) -> None:
    met = re.split("[,;] ", TABLE[name].meets)
    assert all(other == "itself" or other in TABLE for other in met)


# ---- the reader of the source


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a.load(std::memory_order_acquire);", ("a.load", "acquire")),
        ("ring_.x->blocks()[b].word.load();", ("blocks.word.load", "none")),
        (
            "x->f(1, [&] { return 2; }).w.store(\n 1, std::memory_order_release)",
            ("f.w.store", "release"),
        ),
        ("lap(std::memory_order_acquire) != y", ("lap", "acquire")),
        (
            "w.compare_exchange_strong(a, b, std::memory_order_acquire,\n"
            "  std::memory_order_relaxed)",
            ("w.compare_exchange_strong", "acquire relaxed"),
        ),
        (
            "std::atomic_thread_fence(std::memory_order_release);",
            ("atomic_thread_fence", "release"),
        ),
        ("__atomic_load_n(p, __ATOMIC_RELAXED)", ("__atomic_load_n", "none")),
        ("counter.fetch_add(n(1, 2));", ("counter.fetch_add", "none")),
    ],
)
def test_an_operation_is_found_however_it_is_written(text: str, wanted: tuple[str, str]) -> None:
    assert list(sites_in(code(text))) == [wanted]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("words_[0].load(relaxed); x = words_[0];", "words_[]"),
        ("words_[0].load(relaxed); words_[1] = x;", "words_[]"),
        ("words_[0].load(relaxed); f(words_[i + 1]);", "words_[]"),
        ("a->head.load(relaxed); if (a->head > 1) {}", "a.head"),
        ("a.head.load(relaxed); a.head++;", "a.head"),
        ("rows.word(1).store(2, relaxed); return rows.word(slot);", "rows.word()"),
        ("auto& w = word(1); w.store(2, release); w = 3;", "w"),
        ("const auto* w = word(1); w->load(release); x = *w;", "w"),
    ],
)
def test_an_operation_without_a_call_is_found(text: str, wanted: str) -> None:
    assert Site(wanted, "none") in sites_in(text, set())


@pytest.mark.parametrize(
    "text",
    [
        "words_[0].load(relaxed); os::prefetch(words_ + 1); auto* at = &words_[3];",
        "std::atomic<int>& w = word(1); w.load(relaxed); word(2).load(relaxed);",
        "std::atomic<int>* w = find(); if (w == nullptr) {} w->load(relaxed);",
    ],
)
def test_an_address_and_a_reference_are_no_operations(text: str) -> None:
    assert all(site.what.endswith("load") for site in sites_in(text, set()))


def test_what_is_no_operation_is_not_found() -> None:
    assert list(sites_in(code('// a.load()\nf("a.load()"); load(); download(x);'))) == []
    assert (
        list(sites_in("std::uint64_t word(std::memory_order order) { return w.load(order); }"))
        == []
    )
