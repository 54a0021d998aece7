"""A picture of what calls cost over the number of rows."""

from __future__ import annotations

from pathlib import Path

from benchmarks.micro._measure import ROOT, Times

Series = dict[int, Times]


def draw(title: str, series: Series, path: Path) -> None:
    """A line for each call, over the rows."""
    try:
        import matplotlib
    except ImportError:
        print(f"no {path.name}: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for name in dict.fromkeys(name for times in series.values() for name in times):
        sizes = [size for size in series if name in series[size]]
        best = [series[size][name]["best"] for size in sizes]
        style = "--" if name.startswith("gather") else "-"
        label = f"floor: {name}" if style == "--" else name
        axis.plot(sizes, best, style, marker="o", label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("rows")
    axis.set_ylabel("µs a call (best)")
    axis.set_title(title)
    axis.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"written to {path.relative_to(ROOT)}")
