"""The harness's side of a worker: start it, ask it for rounds, end it.

A worker that fails, dies or takes too long never ends the run: the reason is kept in `failed`,
and later rounds are answered with nothing.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Worker:
    """A process that answers each line of its input with one line of JSON."""

    def __init__(self, command: Sequence[str], log: Path, timeout: float) -> None:
        self.failed = ""
        self.lacks = ""
        self.ready: dict[str, Any] = {}
        self._timeout = timeout
        self._log = log
        self._lines: queue.Queue[str] = queue.Queue()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        threading.Thread(target=self._read, daemon=True).start()
        self.ready = self._next()
        self.failed = self.failed or self.ready.get("failed", "")
        self.lacks = self.ready.get("lacks", "")

    @property
    def alive(self) -> bool:
        """Whether rounds can be asked for."""
        return not (self.failed or self.lacks)

    def round(self, seconds: float, repeats: int) -> dict[str, Any]:
        """The numbers of one round, empty if the worker is gone."""
        if not self.alive:
            return {}
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{seconds} {repeats}\n")
            self._process.stdin.flush()
        except OSError:
            self.failed = self._death()
            return {}
        return self._next()

    def close(self) -> None:
        """End of input ends the worker; one that does not listen is killed."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _next(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            self._process.kill()
            self.failed = f"no answer within {self._timeout:.0f} s"
            return {}
        if not line:
            self.failed = self._death()
            return {}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> str:
        code = self._process.wait()
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        return f"ended with code {code}" + (f" ({lines[-1].strip()[:120]})" if lines else "")
