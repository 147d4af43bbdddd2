"""Run as a program by the tests: one process may not have a classic and a Connect session at once.

Arguments: `sc://` address with its token in SPARK_CONNECT_AUTHENTICATE_TOKEN, an empty folder. Provokes all refusals, each in
a lake of its own, and prints what was met by the refusal's name, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "graph"))

from io_manager_support import Shop
from refusals import REFUSALS, met

from de_resources.spark import SparkEngine


def main(url: str, folder: Path) -> None:
    """Go through the list."""
    engine = SparkEngine(url=f"{url}/;token={os.environ['SPARK_CONNECT_AUTHENTICATE_TOKEN']}")
    shops = {refusal: Shop(engine, folder / str(number)) for number, refusal in enumerate(REFUSALS)}
    print(json.dumps({refusal.name: met(shop, refusal) for refusal, shop in shops.items()}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
