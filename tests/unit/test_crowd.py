"""The threads of tests: whatever becomes of a test, they end, and so does the process."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from replay_buffer.testing import crowd as module
from replay_buffer.testing.crowd import Crowd, together

ROOT = Path(__file__).parents[2]


def fail() -> None:
    raise ZeroDivisionError("of the thread")


def busy(crowd: Crowd) -> None:
    for _ in range(3):
        crowd.repeat(time.sleep, 0.001)


def test_threads_of_a_block_that_fails_are_stopped() -> None:
    def block() -> None:
        with Crowd() as crowd:
            busy(crowd)
            raise KeyError("of the block")

    before = threading.active_count()
    with pytest.raises(KeyError, match="of the block"):
        block()
    assert threading.active_count() == before


def wait_for_it(crowd: Crowd) -> None:
    crowd.over.wait()


def wait_for_more(crowd: Crowd) -> None:
    crowd.until(lambda: False)


@pytest.mark.parametrize("wait", [wait_for_it, wait_for_more, Crowd.join])
def test_a_block_raises_what_a_thread_raised_and_stops_the_others(
    wait: Callable[[Crowd], None],
) -> None:
    def block() -> None:
        with Crowd() as crowd:
            busy(crowd)
            crowd.start(fail)
            wait(crowd)

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="of the thread"):
        block()
    assert threading.active_count() == before


def test_what_one_of_several_raises_comes_out_of_all_together() -> None:
    with pytest.raises(ZeroDivisionError):
        together(fail, lambda: time.sleep(0.01))


def test_a_crowd_gives_the_results_of_its_threads() -> None:
    assert together(lambda: 1, lambda: 2) == [1, 2]
    with Crowd() as crowd:
        assert crowd.start(pow, 2, 10).result() == 1024


def test_the_switch_interval_is_short_in_a_crowd_and_restored_however_it_ends() -> None:
    def block() -> None:
        with Crowd() as crowd:
            assert crowd.start(sys.getswitchinterval).result() == pytest.approx(1e-5)
            raise KeyError

    before = sys.getswitchinterval()
    with pytest.raises(KeyError):
        block()
    assert sys.getswitchinterval() == before


HANGS = """
import threading
from replay_buffer.testing.crowd import Crowd

def test_it():
    with Crowd(patience=0.2) as crowd:
        crowd.start(threading.Event().wait)
"""

TIMES_OUT = """
import time
import pytest
from replay_buffer.testing.crowd import Crowd

@pytest.mark.timeout(1)
def test_it():
    with Crowd() as crowd:
        crowd.repeat(lambda: None)
        time.sleep(100)
"""


@pytest.mark.parametrize(
    ("script", "says"),
    [(HANGS, "1 of 1 threads did not end"), (TIMES_OUT, "Timeout")],
    ids=["hangs", "times out"],
)
def test_a_thread_that_does_not_end_fails_its_test_and_not_the_end_of_the_process(
    script: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "test_it.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert says in done.stdout


# ---- nobody else starts threads

STARTERS = {"Thread", "Timer", "ThreadPoolExecutor", "to_thread", "run_in_executor"}


def starts_threads(source: str) -> list[str]:
    """What in a test starts Python threads beside a crowd, or with turns that are not short."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            if name in STARTERS:
                found.append(name)
            elif ast.unparse(function) == "asyncio.run" and "short_turns" not in source:
                found.append("asyncio.run without short_turns")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a script
            script = node.value
            if "Thread(" in script and "import" in script and "setswitchinterval" not in script:
                found.append("a script with threads")
    return found


def test_tests_start_threads_by_crowds_only() -> None:
    sources = [*(ROOT / "tests").rglob("*.py"), *Path(module.__file__).parent.glob("*.py")]
    found = {
        str(path): starters
        for path in sources
        if path.name not in {"crowd.py", "test_crowd.py"}
        and (starters := starts_threads(path.read_text()))
    }
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "threading.Thread(target=f).start()",
        "Timer(1, f)",
        "ThreadPoolExecutor(2)",
        "asyncio.run(f())",
        "'import threading; threading.Thread(target=f).start()'",
    ],
)
def test_a_test_that_starts_a_thread_by_itself_is_noticed(line: str) -> None:
    assert starts_threads(line) != []
