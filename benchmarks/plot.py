"""The picture of the document: how much of each bar is used, with the spread of the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Figure, Verdict
from benchmarks.table import amount, bar

_COLOURS = {Verdict.HOLDS: "#2a9d8f", Verdict.MISSED: "#d1495b"}


def draw(figures: Sequence[Figure], target: Path) -> None:
    """Write a PNG: one line per figure that has a bar, 1.0 being the bar."""
    import matplotlib as mpl  # here, so that measuring does not load it

    mpl.use("Agg")
    from matplotlib import pyplot

    judged = [f for f in figures if f.bar is not None][::-1]
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
