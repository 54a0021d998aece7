"""Each peer in a virtual environment of its own, under `out/peers/NAME`.

Nothing is installed outside these folders. An environment that already holds what its adapter asks
for is kept. What cannot be installed raises `InstallError` with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# A plain torch brings gigabytes of GPU libraries; no later step may replace this one.
CONSTRAINTS = "torch==2.13.0\n"


class InstallError(Exception):
    """The peer's environment could not be made; the message is the reason."""


def candidates(version: str) -> Iterator[str]:
    """Interpreters that may be Python `version`: on the path, then those kept by pyenv."""
    if found := shutil.which(f"python{version}"):
        yield found
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for folder in sorted(root.glob(f"versions/{version}*"), reverse=True):
        yield str(folder / "bin" / "python")


def version_of(interpreter: str) -> str:
    """The version, as in "3.11"; empty if it does not run or cannot make environments."""
    show = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        ran = subprocess.run(
            [interpreter, "-c", show], capture_output=True, check=False, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.strip()


def interpreter_for(versions: tuple[str, ...]) -> str:
    """The running interpreter if it is among `versions` (or none is asked), else one found."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not versions or running in versions:
        return sys.executable
    for version in versions:
        for candidate in candidates(version):
            if version_of(candidate) == version:
                return candidate
    raise InstallError(f"needs Python {' or '.join(versions)}, none found")


def reason(log: Path) -> str:
    """The line of a log that tells most."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no output"])[0][:160]


def run(command: list[str], log: Path) -> None:
    """Runs a command, its output appended to the log."""
    with log.open("a") as output:
        ran = subprocess.run(command, check=False, stdout=output, stderr=subprocess.STDOUT)
    if ran.returncode:
        raise InstallError(reason(log))


def install(adapter: ModuleType, folder: Path, log: Path) -> str:
    """The path of the interpreter that has the adapter's library."""
    if not adapter.INSTALL:
        return sys.executable
    base = interpreter_for(getattr(adapter, "PYTHONS", ()))
    python = folder / "bin" / "python"
    stamp = folder / "installed.json"
    wanted = json.dumps([version_of(base), adapter.INSTALL])
    local = any(Path(item).exists() for step in adapter.INSTALL for item in step)
    if not local and stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    if not python.exists() or (stamp.exists() and not local):
        run([base, "-m", "venv", "--clear", str(folder)], log)
    constraints = folder.parent / "constraints.txt"
    constraints.write_text(CONSTRAINTS)
    for step in getattr(adapter, "steps", lambda: adapter.INSTALL)():
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
        run([*pip, "--constraint", str(constraints), *step], log)
    stamp.write_text(wanted)
    return str(python)
