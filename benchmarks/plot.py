"""The pictures of the document: how much of each bar is used, and how a case's times grow with its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure, Kind, Verdict
from benchmarks.measure import Samples, middle
from benchmarks.table import amount, bar

_GREEN, _BLUE, _RED, _YELLOW = "#2a9d8f", "#30638e", "#d1495b", "#edae49"
_COLOURS = {Verdict.HOLDS: _GREEN, Verdict.MISSED: _RED, Verdict.UNDECIDED: _YELLOW}


def growing(figures: Sequence[Figure]) -> list[Figure]:
    """Those figures of a case that tell of contenders at several sizes, the smallest first; or none."""
    sized = sorted((f for f in figures if f.kind is Kind.RATIO and f.units), key=lambda f: f.units)
    return sized if len({f.units for f in sized}) > 1 else []


def draw_growth(figures: Sequence[Figure], target: Path) -> None:
    """Write a PNG: seconds of each contender over the size, both axes logarithmic, with the spread of the rounds.

    On such axes a constant cost is level, and one in proportion to the size has the slope of the dotted line.
    """
    pyplot = _pyplot()
    canvas, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    ours = _lines((f.ours, f.units, f.our_samples) for f in figures)
    peers = _lines((f.peer, f.units, f.peer_samples) for f in figures)
    colours = [*islice(cycle((_GREEN, _BLUE)), len(ours)), *[_RED] * len(peers)]
    for (name, by_size), colour in zip({**ours, **peers}.items(), colours, strict=True):
        sizes, samples = [*by_size], [*by_size.values()]
        axes.plot(sizes, [middle(s) for s in samples], marker="o", color=colour, label=name.replace("`", ""))
        axes.vlines(sizes, *zip(*map(_range, samples), strict=True), color=colour, linewidth=1)
    compared = next(iter(peers.values()))
    sizes = [*compared]
    proportional = [middle(compared[sizes[0]]) * size / sizes[0] for size in sizes]
    axes.plot(sizes, proportional, ":", color="#333333", linewidth=1, label="in proportion")
    axes.set(xscale="log", yscale="log", xlabel=figures[0].case.replace("_", " ") + ": rows", ylabel="seconds")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    target.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(target, dpi=120)
    pyplot.close(canvas)


def _lines(points: Iterable[tuple[str, int, Samples]]) -> dict[str, dict[int, Samples]]:
    lines: dict[str, dict[int, Samples]] = {}
    for name, size, samples in points:
        lines.setdefault(name, {})[size] = samples
    return lines


def _range(samples: Samples) -> tuple[float, float]:
    return min(sample.wall for sample in samples), max(sample.wall for sample in samples)


def _pyplot() -> Any:
    import matplotlib as mpl  # here, so that measuring does not load it

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(figures: Sequence[Figure], target: Path) -> None:
    """Write a PNG: one line per figure that has a bar, 1.0 being the bar."""
    pyplot = _pyplot()
    judged = [f for f in figures if f.bar is not None and f.per_round][::-1]
    canvas, axes = pyplot.subplots(figsize=(9, 0.7 * len(judged) + 1.2), layout="constrained")
    for place, figure in enumerate(judged):
        used = figure.share_of_bar(figure.value)
        low, high = sorted(figure.share_of_bar(value) for value in figure.spread)
        axes.barh(place, used, color=_COLOURS[figure.verdict], height=0.55)
        axes.hlines(place, low, high, color="#333333", linewidth=1.5)
        axes.text(
            max(high, used, 1.0) + 0.03, place, f"{amount(figure.kind, figure.value)}  (bar {bar(figure)})", va="center"
        )
    axes.axvline(1.0, color="#333333", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(judged)), [f"{f.case}\n{f.what.replace('`', '')}" for f in judged], fontsize=8)
    axes.set_xlim(0, 1.5 * max([1.0, *(max(f.share_of_bar(v) for v in f.spread) for f in judged)]))
    axes.set_xlabel("share of the bar that is used; left of the dashed line it holds; the thin line is the spread")
    axes.spines[["top", "right"]].set_visible(False)
    target.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(target, dpi=120)
    pyplot.close(canvas)
