"""The orders that stand in the C++, function by function: every place that names one, every atomic
operation that names none, and what stands between them where it matters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from model.orders.functions import closing, code, functions, opening_before

SOURCES = Path(__file__).parents[3] / "src" / "cpp"

NAMED = re.compile(r"\bmemory_order_(\w+)")
ATOMIC = re.compile(
    r"(?:\.|->)(?P<op>load|store|exchange|fetch_(?:add|sub|and|or|xor)|compare_exchange_\w+)\(|"
    r"\b__atomic_\w+\("
)
CALL = re.compile(r"(?<![\w:])(~?\w+)(?:<[\w:, ]*>)?\(")
# Of bytes that somebody else may be writing or reading.
COPIES = re.compile(r"(load|copy|clear|equal)_shared|(write|copy|gather|unpack)_\w+|gather|read")

DECLARED = re.compile(r"(?:[\w>][&*]?|[\w>]&&)\s+$")
NO_TYPE = re.compile(r"\b(?:return|else|co_return|case)\s+$")
ADDRESS_OR_REFERENCE = re.compile(r"(?<![\w>&])&$|[\w>]&\s+\w+\s*=\s*$")


class Site(NamedTuple):
    what: str  # "head.load": the last of what it is called on, and the call
    # "acquire relaxed" where success and failure have one each; "none" where an atomic, or what
    # looks like one, names none; "" for a copy or a call.
    order: str


Place = tuple[str, str]  # file and function; "": outside of all
Places = dict[Place, list[Site]]  # in the order of the source


def texts() -> dict[str, str]:
    return {
        str(path.relative_to(SOURCES)): path.read_text()
        for path in sorted(SOURCES.rglob("*"))
        if path.suffix in (".h", ".cc")
    }


def sites(sources: Mapping[str, str]) -> Places:
    """Of each function that has any. One whose orders are not all relaxed has the copies that it
    makes as well, and its calls of functions that have orders: an order stands between them."""
    bodies: dict[Place, list[str]] = {}
    members: dict[str, set[str]] = {}
    for file, source in sources.items():
        text = code(source)
        members.setdefault(stem(file), set()).update(filter(is_member, atomics(text)))
        outside = 0
        for function in functions(text):
            bodies.setdefault((file, ""), []).append(text[outside : function.start])
            bodies.setdefault((file, function.name), []).append(text[function.start : function.end])
            outside = function.end
        bodies.setdefault((file, ""), []).append(text[outside:])
    ordering = {
        last(name)
        for (_, name), parts in bodies.items()
        if any(site.order not in ("", "none") for part in parts for site in sites_in(part))
    }
    ordering.discard("count")  # what many others are called too
    found = {}
    for (file, name), parts in bodies.items():
        some = [site for part in parts for site in sites_in(part, members[stem(file)])]
        if any(site.order not in ("", "none", "relaxed") for site in some):
            calls = ordering - {last(name)}
            some = [s for part in parts for s in sites_in(part, members[stem(file)], calls)]
        if some:
            found[file, name] = some
    return found


def sites_in(
    text: str, members: set[str] | None = None, calls: set[str] | None = None
) -> Iterator[Site]:
    """Of text without comments, in its order; with `calls`, those of them, and copies."""
    found: dict[int, list[str]] = {}
    for match in NAMED.finditer(text):
        if (opening := opening_before(text, match.start())) >= 0:
            found.setdefault(opening, []).append(match[1])
    for match in ATOMIC.finditer(text):
        found.setdefault(match.end() - 1, [])
    named = set(found)
    if calls is not None:
        for match in CALL.finditer(text, text.find("{")):
            if match[1] in calls or COPIES.fullmatch(match[1]):
                found.setdefault(match.end() - 1, [])
    where = [
        (opening, Site(called(text, opening), " ".join(orders) or "none" * (opening in named)))
        for opening, orders in found.items()
        if orders
        or not re.search(r"\border\b", text[opening : closing(text, opening)])  # handed on
    ]
    if members is not None:
        where += [(at, Site(path, "none")) for at, path in bare(text, members | set(atomics(text)))]
    yield from (site for _, site in sorted(where))


def stem(file: str) -> str:
    return file.rpartition(".")[0]


def last(name: str) -> str:
    return name.rpartition("::")[2]


# ---- atomics without an operation


def is_member(path: str) -> bool:
    return "." in path or path.rstrip("[]()").endswith("_")


def atomics(text: str) -> Iterator[str]:
    """What has operations here: "words_[]", "block.word", "rows.word()"."""
    for match in ATOMIC.finditer(text):
        if match["op"] and (path := path_before(text, match.start())[1]):
            yield path


def bare(text: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Uses of these without an operation: `x = words_[0]`. A declaration, an address and what a
    reference is bound to are none."""
    words = {path.rstrip("[]()").rpartition(".")[2] for path in names}
    for match in re.finditer(r"\b\w+\b", text):
        if match[0] not in words:
            continue
        end = match.end()
        while end < len(text) and text[end] in "([":
            end = closing(text, end) + 1
        if re.match(r"\s*(?:\.|->|[=!]= nullptr)", text[end:]):
            continue
        start, path = path_before(text, end)
        before = text[max(0, start - 80) : start]
        declares = DECLARED.search(before) and not NO_TYPE.search(before)
        if path in names and not declares and not ADDRESS_OR_REFERENCE.search(before):
            yield match.start(), path


# ---- names


def path_before(text: str, end: int) -> tuple[int, str]:
    """Where what ends here begins, and its last two names, with how the last is used."""
    kind = ""
    if end and text[end - 1] in ")]":
        kind = "()" if text[end - 1] == ")" else "[]"
        end = opening_before(text, end - 1)
    start, names = chain(text, end)
    return start, ".".join(names[-2:]) + kind if names else ""


def called(text: str, opening: int) -> str:
    """The last three names of what is called, without what stands in brackets."""
    return ".".join(chain(text, opening)[1][-3:])


def chain(text: str, end: int) -> tuple[int, list[str]]:
    """Where `a.b(0)->c`, which ends here, begins, and its names."""
    names: list[str] = []
    i = end
    while i > 0:
        if text[i - 1] in ")]":
            i = opening_before(text, i - 1)
        elif match := re.search(r"(~?\w+)(?:<[\w:, ]*>)?$", text[max(0, i - 200) : i]):
            names.insert(0, match[1])
            i -= len(match[0])
            link = re.search(r"(\.|->)$", text[max(0, i - 2) : i])
            if link is None:
                break
            i -= len(link[0])
        else:
            break
    return i, names
