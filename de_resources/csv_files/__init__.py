"""CSV for readers who know no tables: one file per day, whole at every moment, with a manifest beside it."""

from de_resources.csv_files.days import CsvFolders, DayFile, DayFiles, RowsOutside
from de_resources.csv_files.lake import CsvLake
from de_resources.csv_files.record import metadata_of
from de_resources.csv_files.table import DayTable

__all__ = ["CsvFolders", "CsvLake", "DayFile", "DayFiles", "DayTable", "RowsOutside", "metadata_of"]
