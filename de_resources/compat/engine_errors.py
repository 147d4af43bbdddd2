"""What PySpark's errors keep to themselves: the Java error that they were, and their text without decoration."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException

__all__ = ["java_origin", "plain_message"]


def java_origin(error: PySparkException) -> Any | None:
    """The Java error that a classic session has converted; None for one that no Java error was."""
    return getattr(error, "_origin", None)


def plain_message(error: PySparkException) -> str:
    """The message as it came, without the condition that `str` puts ahead of it."""
    return str(getattr(error, "_message", "") or "")
