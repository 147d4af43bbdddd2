"""Where a landed line stands: its numbers in the file that held it."""

from __future__ import annotations

from pathlib import Path

from de_assets.sources.access_log.files import raw_lines


def line_numbers(file: Path, text: str) -> list[int]:
    """The lines of a landed file, compressed or not, that have this text; several where a line was landed more than once.

    None for a file that is not there any more. Broken bytes are compared as bronze keeps them: replaced.
    """
    if not file.is_file():
        return []
    return [line.number for line in raw_lines([file]) if line.raw.decode("utf-8", "replace") == text]
