"""One PostgreSQL table per week behind one view: what is cleaned is a table, and never its rows.

Pattern: Fast Metadata Cleaner. Readers use the view (`schema.name`); beside it lie

| relation              | what it is                                                                                |
|-----------------------|-------------------------------------------------------------------------------------------|
| `name_2024w41`        | the rows of one ISO week; a rerun replaces the table, whatever its size                     |
| `name_frozen`         | weeks that were closed and put together (`freeze`)                                          |
| `name_template`       | no rows: the columns that all of them have, in their order                                  |
| `name_weeks`          | which week lies in which table, how many rows it had, and which run loaded it               |

`write_week` replaces a week, `freeze` and `thaw` move weeks, `add_columns` widens all tables, `WeeklyTables` is the IO
manager.
"""

from de_resources.iso_week import NotAWeek, Week
from de_resources.postgres.view_swap import LockWait, ViewBusy
from de_resources.postgres.weekly.columns import ColumnsNotAdded, ColumnsNotOptional, ColumnTypeDiffers, add_columns
from de_resources.postgres.weekly.freezing import Moved, WeekFrozen, WeekNotFrozen, freeze, thaw
from de_resources.postgres.weekly.io_manager import NotWeekly, WeeklyTables
from de_resources.postgres.weekly.view import NotByWeek, WeeklyView
from de_resources.postgres.weekly.write import Replaced, RowsOutsideWeek, write_week

__all__ = [
    "ColumnTypeDiffers",
    "ColumnsNotAdded",
    "ColumnsNotOptional",
    "LockWait",
    "Moved",
    "NotAWeek",
    "NotByWeek",
    "NotWeekly",
    "Replaced",
    "RowsOutsideWeek",
    "ViewBusy",
    "Week",
    "WeekFrozen",
    "WeekNotFrozen",
    "WeeklyTables",
    "WeeklyView",
    "add_columns",
    "freeze",
    "thaw",
    "write_week",
]
