"""The orders of the model are those of the C++: none is missing, none is left over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from model.orders.places import NO_ATOMICS, ORDERED, REASONS, SPELLED, Places
from model.orders.sources import Site, sites, sites_in
from model.orders.table import GROUPS, TABLE

DOCUMENT = Path(__file__).parents[3] / "docs" / "internals" / "concurrency.md"


def listed(by_file: Places, order: str) -> Iterator[Site]:
    for file, calls in by_file.items():
        for call in calls.split(", "):
            what, _, times = call.partition(" x")
            yield from [Site(file, what, order)] * int(times or 1)


def compare(wanted: Iterable[Site], found: Iterable[Site]) -> None:
    known, there = Counter(wanted), Counter(found)
    differences = [
        f"{times} in the {side} only: {site.file}: {site.what} {site.order}"
        for side, only in (("source", there - known), ("model", known - there))
        for site, times in sorted(only.items())
    ]
    assert not differences, "\n".join(["see places.py", *differences])


def test_every_order_of_the_source_is_in_the_table() -> None:
    wanted = [
        site
        for name, named in TABLE.items()
        for site in listed(ORDERED[name], SPELLED.get(name, named.order.value))
    ]
    found = [site for site in sites() if site.order not in ("", "relaxed")]
    compare(wanted, found)


def test_every_relaxed_operation_of_the_source_has_a_reason() -> None:
    wanted = [site for by_file in REASONS for site in listed(by_file, "relaxed")]
    found = [site for site in sites() if site.order == "relaxed"]
    compare(wanted, found)


def test_every_atomic_operation_of_the_source_names_its_order() -> None:
    compare(listed(NO_ATOMICS, ""), [site for site in sites() if site.order == ""])


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
        ("ring_.x->blocks()[b].word.load();", ("blocks.word.load", "")),
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
        ("__atomic_load_n(p, __ATOMIC_RELAXED)", ("__atomic_load_n", "")),
        ("counter.fetch_add(n(1, 2));", ("counter.fetch_add", "")),
    ],
)
def test_an_operation_is_found_however_it_is_written(text: str, wanted: tuple[str, str]) -> None:
    assert list(sites_in(text)) == [wanted]


def test_what_is_no_operation_is_not_found() -> None:
    assert list(sites_in('// a.load()\nf("a.load()"); load(); download(x);')) == []
    assert (
        list(sites_in("std::uint64_t word(std::memory_order order) { return w.load(order); }"))
        == []
    )
