"""Compares this package with its peers: `python benchmarks/compare/run.py`, or `make compare`.

Installs every peer in its own environment, then for each workload fills one buffer in each and lets
all of them, and the floors, take turns for several rounds in the same run, so that the machine's
moods meet all alike. Writes `compare.json`, `compare.md` and `compare.png` to `out/compare`. A peer
that cannot be installed or loaded is shown as failed, with the reason; the run goes on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import time
from typing import Any

import plot
import report
from install import InstallError, install
from turns import FLOOR, HERE, Turns
from workload import load

ROOT = HERE.parents[1]
BUILD = ROOT / "out" / "peers"
OUT = ROOT / "out" / "compare"
PEERS = (
    report.OWN,
    "cpprb",
    "rlox",
    "stable_baselines3",
    "tianshou",
    "torchrl",
    "flashbax",
    "reverb",
)


def options() -> argparse.Namespace:
    """The command line."""
    everything = load()
    parser = argparse.ArgumentParser(description="Compare replay buffers in one run.")
    parser.add_argument("--only", default=",".join(PEERS), help="peers, separated by commas")
    parser.add_argument("--workloads", default=",".join(everything), help="likewise")
    parser.add_argument("--rounds", type=int, default=0, help="turns of every peer (10)")
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: does it run?")
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    chosen.workloads = chosen.workloads.split(",")
    for given, known in ((chosen.only, PEERS), (chosen.workloads, everything)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen.workloads = [everything[name] for name in chosen.workloads]
    chosen.rounds = chosen.rounds or (2 if chosen.quick else 10)
    chosen.seconds, chosen.repeats = (0.01, 1) if chosen.quick else (0.03, 2)
    return chosen


def say(text: str) -> None:
    """Progress, at once."""
    print(text, flush=True)


def compile_gather() -> str:
    """The gather floor's program; empty when it cannot be compiled."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    if not compiler:
        return ""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = str(BUILD / "gather_floor")
    command = [compiler, "-O3", "-std=c++20", str(HERE / "gather_floor.cc"), "-o", program]
    return program if subprocess.run(command, check=False).returncode == 0 else ""


def install_all(adapters: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Interpreters of the peers that could be installed, and why the others could not."""
    pythons: dict[str, str] = {}
    failures: dict[str, str] = {}
    for name, adapter in adapters.items():
        say(f"environment of {name}")
        try:
            pythons[name] = install(adapter, BUILD / name, BUILD / "logs" / f"install-{name}.log")
        except (InstallError, subprocess.CalledProcessError) as error:
            failures[name] = str(error).replace(f"{ROOT}/", "")
            say(f"  failed: {failures[name]}")
    return pythons, failures


def main() -> None:
    """Install, compare, write."""
    chosen = options()
    start = time.monotonic()
    adapters = {name: importlib.import_module(f"peers.{name}") for name in (*chosen.only, FLOOR)}
    pythons, failures = install_all(adapters)
    times = {"rounds": chosen.rounds, "repeats": chosen.repeats, "seconds": chosen.seconds}
    turns = Turns(
        titles={name: adapters[name].TITLE for name in chosen.only},
        pythons=pythons,
        failures=failures,
        gather=compile_gather(),
        quick=chosen.quick,
        logs=BUILD / "logs",
        say=say,
        **times,
    )
    machine = {"machine": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    run = {**machine, "python": platform.python_version(), **times, "quick": chosen.quick}
    results: dict[str, Any] = {"run": run, "workloads": {}}
    noted = ((name, getattr(adapters[name], "NOTE", "")) for name in chosen.only)
    notes = [f"{adapters[name].TITLE}: {note}" for name, note in noted if note]
    text = ""
    OUT.mkdir(parents=True, exist_ok=True)
    for done, workload in enumerate(chosen.workloads, 1):
        results["workloads"][workload.name] = turns.compare(workload)
        (OUT / "compare.json").write_text(json.dumps(results, indent=1) + "\n")
        text = report.markdown(chosen.workloads[:done], results, notes)
        (OUT / "compare.md").write_text(text)
        plot.draw(chosen.workloads[:done], results, OUT / "compare.png")
    say(f"\n{text}")
    say(f"{time.monotonic() - start:.0f} s; written to {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
