"""Services for all tests of a run that need some: started by the first of them, stopped at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from de_resources.local import LocalServices
from de_resources.settings import Settings

from .defects import PROJECT

HOME = "DE_TEST_SERVICES"
"""Environment variable by which the tests' fixtures find services that are kept between processes."""


@contextmanager
def kept_services() -> Iterator[dict[str, str]]:
    """The environment of tests that use them."""
    home = Path(tempfile.mkdtemp(prefix="de-sabotage-services-"))
    home.chmod(0o711)  # the account of the database has to pass
    jars = os.environ.get("DE_JARS", str(PROJECT / ".de" / "jars"))
    try:
        yield {HOME: str(home)}
    finally:
        LocalServices(Settings.from_environment({"DE_HOME": str(home), "DE_JARS": jars})).down()
        shutil.rmtree(home, ignore_errors=True)
