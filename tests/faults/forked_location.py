"""A code location to be copied and changed: it counts how often it is loaded, and its assets tell who computes them."""

import os
import random
import threading
import time
from pathlib import Path

import dagster as dg

HERE = Path(__file__).parent
VERSION = "first"
with (HERE / "loads").open("a") as loads:
    loads.write(f"{os.getpid()}\n")
SETTING = (HERE / "setting.txt").read_text() if (HERE / "setting.txt").exists() else ""
if (HERE / "threads").exists():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if (HERE / "broken").exists():
    raise ValueError("the location is broken on purpose")


@dg.asset
def identity(context: dg.AssetExecutionContext) -> None:
    print("words of the worker")
    facts = {"pid": os.getpid(), "parent": os.getppid(), "version": VERSION, "setting": SETTING}
    facts["random"] = random.random()  # noqa: S311 - not for cryptography
    context.add_output_metadata({**facts, "threads": os.environ.get("OPENBLAS_NUM_THREADS", "")})


@dg.asset
def patient() -> None:
    """Waits for a file, and says in another that it does."""
    (HERE / "waits").touch()
    while not (HERE / "go").exists():
        time.sleep(0.02)


defs = dg.Definitions([identity, patient], executor=dg.in_process_executor)
