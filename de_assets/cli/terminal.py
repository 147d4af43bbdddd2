"""The terminal of all commands: where they print, what they keep quiet, and one way to end on an error.

What is printed is printed as it is: nothing of a path or a message is read as markup (`log[abc].gz`) or as an emoji. What has
a colour is a `Text`.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

from de_resources.errors import PlatformError

# What is piped or logged has no width of its own; eighty columns would cut the tables.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
console = Console(soft_wrap=True, width=_WIDTH, markup=False, emoji=False)
_errors = Console(stderr=True, markup=False, emoji=False)


@contextmanager
def explained() -> Iterator[None]:
    """Turn the platform's own errors into one red sentence and exit status 1; others keep their traces."""
    try:
        yield
    except PlatformError as error:
        _errors.print(Text.assemble((type(error).__name__, "red"), f": {error}"), soft_wrap=True)
        raise typer.Exit(1) from None


def quiet() -> None:
    """Keep the framework's warnings about previews out of what people read, for the rest of the process."""
    warnings.filterwarnings("ignore", module="dagster")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
