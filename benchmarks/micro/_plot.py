"""Pictures of what was measured. Without matplotlib there are none, and the run says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.micro._measure import ROOT, Times

Series = dict[int, Times]
Line = Mapping[int, float]
FLOOR = "floor: "  # lines whose names begin so are dashed


@contextmanager
def picture(title: str, path: Path, panels: int = 1, height: float = 5) -> Iterator[Sequence[Any]]:
    """The axes to draw in, written to `path` at the end; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print(f"no {path.name}: matplotlib is not installed")
        yield ()
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (9 if panels == 1 else 4.5 * panels, height)
    figure, axes = pyplot.subplots(1, panels, figsize=size, layout="constrained", squeeze=False)
    if panels == 1:
        axes[0][0].set_title(title)
    else:
        figure.suptitle(title)
    yield axes[0]
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right upper")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"written to {path.relative_to(ROOT)}")


def lines(axis: Any, named: Mapping[str, Line], marker: str = "o") -> None:
    """A line for each name; a floor is dashed, in the colour of the line before it."""
    colour = None
    for name, line in named.items():
        if name.startswith(FLOOR):
            axis.plot(line.keys(), line.values(), "--", color=colour, label=name)
        else:
            (drawn,) = axis.plot(line.keys(), line.values(), marker=marker, label=name)
            colour = drawn.get_color()


def line_of(name: str, series: Series) -> Line:
    return {size: times[name]["best"] for size, times in series.items() if name in times}


def draw(title: str, series: Series, path: Path) -> None:
    """What calls cost over the number of rows: a line for each, with its floor where it has one."""
    names = dict.fromkeys(name for times in series.values() for name in times)
    named = {}
    for name in (name for name in names if not name.startswith("gather")):
        named[name] = line_of(name, series)
        if (floor := name.replace("sample", "gather")) != name and floor in names:
            named[FLOOR + floor] = line_of(floor, series)
    with picture(title, path) as axes:
        for axis in axes:
            lines(axis, named)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xlabel("rows")
            axis.set_ylabel("µs a call (best)")


def percentages(
    title: str, xlabel: str, named: Mapping[str, Line], limit: float, path: Path
) -> None:
    """Fractions over sizes, on logarithmic axes, with the limit they should stay below."""
    with picture(title, path) as axes:
        for axis in axes:
            few = max(map(len, named.values())) <= 20
            lines(axis, named, marker="o" if few else "")
            axis.axhline(limit, color="black", linewidth=1, linestyle=":", label=f"{limit:.0%}")
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
            axis.set_xlabel(xlabel)
            axis.set_ylabel("beyond the rows")


def percentiles(title: str, found: Mapping[str, tuple[float, float]], path: Path) -> None:
    """p50 and p99, in microseconds, of each operation: a line each."""
    with picture(title, path, height=1.5 + 0.2 * len(found)) as axes:
        for axis in axes:
            names = list(found)
            p50, p99 = zip(*found.values(), strict=True)
            axis.hlines(names, p50, p99, color="lightgrey", linewidth=3)
            axis.plot(p50, names, "o", label="p50")
            axis.plot(p99, names, "o", label="p99")
            axis.set_xscale("log")
            axis.invert_yaxis()
            axis.margins(y=0.01)
            axis.set_xlabel("µs")
