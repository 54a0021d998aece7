"""The documentation is true: its Python runs, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/guides").glob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    """The page's Python, each block at its own line of the page, so that tracebacks point there."""
    text = page.read_text(encoding="utf-8")
    return [
        "\n" * (text.count("\n", 0, found.start()) + 1) + found[2]
        for found in FENCE.finditer(text)
        if found[1] == "python"
    ]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, shm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of its buffers are its own: shared memory is a directory of the test."""
    assert not list(shm_dir.iterdir())
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(page)
    assert blocks, f"{name_of(page)} has no Python block"
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_of_a_page_is_closed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall("^```", text, re.MULTILINE)) == 2 * len(FENCE.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_to_files_of_the_repository(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [link.split("#")[0] for link in LINK.findall(text) if "://" not in link]
    missing = [t for t in targets if t and not (page.parent / t).exists()]
    assert not missing, f"{name_of(page)} links to {', '.join(missing)}"
