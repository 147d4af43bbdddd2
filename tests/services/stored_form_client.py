"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, an empty folder. Merges by a sealed key, and
moves a row to another partition while it is stored; prints what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "graph"))

from io_manager_support import Shop
from stored_forms import D1, D2, merged, moved, orders

from de_resources.spark import SparkEngine


def main(url: str, folder: Path) -> None:
    """Go through the cases, each in a lake of its own."""
    engine = SparkEngine(url=f"{url}/;token={os.environ['SPARK_CONNECT_AUTHENTICATE_TOKEN']}")
    found = merged(Shop(engine, folder / "merged"))
    outside = Shop(engine, folder / "outside").failure(orders(Shop(engine, folder), [(1, D2, 1.0, None)]), key=D1)
    elsewhere = Shop(engine, folder / "elsewhere").failure(moved(Shop(engine, folder)), key=D1)
    print(json.dumps({**found, "refused": [type(outside).__name__, type(elsewhere).__name__]}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
