"""Which function each place of a C++ file belongs to, by its braces: no compiler is asked.

A function is named with its classes and without its namespaces: "Rows::Heads::word". Lambdas and
local classes belong to the function around them; overloads share a name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OUTSIDE = re.compile(
    r"\b(?:alignas|decltype|requires|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)|\[\[.*?\]\]"
)
SCOPE = re.compile(r"\b(namespace|class|struct|enum|extern(?=\s*$))\b(?:\s+([\w:]+))?")
CALLED = re.compile(r"(operator\s*(?:\(\)|[^\s(]+)|[\w:~]+)\s*\(")


class Function(NamedTuple):
    name: str
    start: int  # of its declaration, so that the initializers of a constructor are inside
    end: int


def code(text: str) -> str:
    """Without comments, strings and directives, each character in its place."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', blank, text)
    text = re.sub(r"(?<!\w)'(?:\\.|[^'\\\n])+'", blank, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.MULTILINE)


def functions(text: str) -> list[Function]:
    """Those of `code`, in their order."""
    found: list[Function] = []
    scopes: list[str] = []  # around: the names of classes, "" for a namespace
    start = i = 0
    while i < len(text):
        match text[i]:
            case "(":
                i = closing(text, i)  # an argument may have braces as its default
            case ";":
                start = i + 1
            case "}":
                assert scopes, f"a brace too many at {i}"
                scopes.pop()
                start = i + 1
            case "{":
                header = OUTSIDE.sub("", text[start:i])
                scope = SCOPE.search(header)
                name = CALLED.search(header)
                if name is None and scope is not None and scope[1] != "enum":
                    scopes.append(scope[2] or "" if scope[1] in ("class", "struct") else "")
                    start = i + 1
                elif name is None or in_initializers(header):
                    i = closing(text, i)
                else:
                    end = closing(text, i)
                    found.append(Function("::".join([*filter(None, scopes), name[1]]), start, end))
                    i, start = end, end + 1
        i += 1
    assert not scopes, "a brace is missing"
    return found


def in_initializers(header: str) -> bool:
    """Whether the brace after it begins the value of a member, not the body of a constructor."""
    return re.search(r"\)\s*(?:noexcept\s*)?:\s*(?!:).*\w\s*$", header, re.DOTALL) is not None


def closing(text: str, opening: int) -> int:
    """Where what is opened here ends."""
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return len(text)


def opening_before(text: str, at: int) -> int:
    """The bracket that is open here."""
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (text[i] in ")]") - (text[i] in "([")
        if depth < 0:
            return i
    return -1
