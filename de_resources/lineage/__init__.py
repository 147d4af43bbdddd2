"""Column lineage read from Spark's own analysed plan, so that it cannot drift from the code (Fine-Grained Tracker).

`column_lineage` promises, for a frame that is about to be written, from which columns of which inputs each of its
columns comes and in which way, and which input columns decide about the rows. It starts no job, works on a classic
session and over Spark Connect, and never raises: a plan that it does not fully understand gives a `Lineage` with
`complete=False` and the reasons.

| module        | idea                                                                   |
|---------------|------------------------------------------------------------------------|
| `tracker`     | the entrance: a frame's analysed plan as text                          |
| `model`       | what is found: `Lineage`, `ColumnSource`, `Dependency`                 |
| `inputs`      | the names of inputs in a plan: keys of datasets                        |
| `reads`       | what a plan reads beside its named inputs                              |
| `tree`        | plan text to a tree of operators                                       |
| `expressions` | operator text to lists, named expressions and references to attributes |
| `attributes`  | references to the columns that an operator gets from its inputs        |
| `operators`   | one rule per operator: input columns to output columns                 |
| `resolver`    | the walk from the leaves to the root                                   |
| `column_view` | the form that the asset's column view shows                            |
| `record`      | what a materialisation tells about its columns                         |
| `recorded`    | what materialisations have told, read back                             |
| `impact`      | what depends on a column, or on a dataset                              |
"""

from __future__ import annotations

from de_resources.lineage.model import MARK, ColumnSource, Dependency, DependencyKind, Lineage, LineageKind, UnnamedRead
from de_resources.lineage.tracker import column_lineage

__all__ = [
    "MARK",
    "ColumnSource",
    "Dependency",
    "DependencyKind",
    "Lineage",
    "LineageKind",
    "UnnamedRead",
    "column_lineage",
]
