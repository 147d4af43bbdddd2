"""CSV for readers who know no tables: one file per day, whole at every moment, with a manifest beside it."""

from de_resources.csv_files.days import CsvFolders, DayFile, DayFiles, RowsOutside

__all__ = ["CsvFolders", "DayFile", "DayFiles", "RowsOutside"]
