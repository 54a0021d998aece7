"""One picture of all workloads: a panel each, time on a logarithmic axis, a mark for each peer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from report import OWN, Result, best
from workload import Workload

MARKS = "osv^Dd<>ph"


def draw(workloads: Sequence[Workload], results: Result, path: Path) -> None:
    """Writes the picture to `path`; failed cells have no mark."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 2 if len(workloads) > 1 else 1
    lines = -(-len(workloads) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(7.5 * columns, 4.6 * lines), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(workloads) :]:
        axis.set_visible(False)
    labels = {}
    for axis, workload in zip(axes.flat, workloads, strict=False):
        result = results["workloads"][workload.name]
        names = [cell.name for cell in workload.cells]
        for i, (peer, found) in enumerate(result["peers"].items()):
            times = [best(result, peer, name) for name in names]
            own = peer == OWN
            marks = axis.plot(
                range(len(names)),
                [float("nan") if time is None else time for time in times],
                linestyle="",
                marker="*" if own else MARKS[i % len(MARKS)],
                markersize=15 if own else 7,
                color="black" if own else f"C{i % 10}",
                alpha=1.0 if own else 0.8,
            )
            labels[found["title"]] = marks[0]
        for i, name in enumerate(names):
            if low := result["ratios"][name].get("floor"):
                labels["floor"] = axis.hlines(low, i - 0.3, i + 0.3, color="grey", linewidth=2)
        axis.set_yscale("log")
        axis.set_title(result["title"])
        axis.set_ylabel("µs (best)")
        axis.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
        axis.grid(axis="y", alpha=0.3)
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
