"""How long a person waits for a page of the observatory: three hundred datasets with a year of history, in a real browser.

A new window of Chromium opens the page from the disk; the time ends when it is drawn. Measured are the index and the heaviest
page of a dataset, with a year of hours. For information: writing all pages of the site. Checked: the index lists all datasets.
Without Chromium nothing is measured.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.case import require_equal
from benchmarks.figure import Figure, Kind
from benchmarks.measure import alternate, timed
from benchmarks.observatory_world import large
from benchmarks.workbench import Workbench

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BAR = 2.0
INDEX, BY_HOUR, WRITING = "the index", "a year of hours", "writing the site"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def run(bench: Workbench) -> list[Figure]:
    """Seconds of both pages."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return []
    from playwright.sync_api import sync_playwright

    from de_resources.observatory.site import pages_of
    from de_resources.pages.files import publish_site

    world = large(bench.pick(small=20, full=300), columns=20, hourly=1)
    pages = pages_of(world)
    writing = timed(lambda: pages_of(world))
    place = bench.folder("home") / "observatory"
    publish_site(place, pages)
    heaviest = max((path for path in pages if path != "index.html"), key=lambda path: len(pages[path]))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        samples = alternate(
            {INDEX: partial(_seen, browser, place / "index.html"), BY_HOUR: partial(_seen, browser, place / heaviest)},
            verify=lambda: require_equal(
                "the index (lists all datasets)", len(world.datasets), _seen(browser, place / "index.html")
            ),
            rounds=bench.pick(small=2, full=9),
        )
        browser.close()
    notes = {INDEX: pages["index.html"], BY_HOUR: pages[heaviest]}
    return [
        *(
            Figure(
                "observatory",
                name,
                Kind.SECONDS,
                name,
                samples[name],
                bar=BAR,
                note=f"{len(notes[name]) / 1024:.0f} KiB",
            )
            for name in (INDEX, BY_HOUR)
        ),
        Figure("observatory", WRITING, Kind.SECONDS, WRITING, (writing,), note=f"{len(pages)} pages"),
    ]


def _seen(browser: Browser, page: Path) -> int:
    """Open it in a new window and wait until it is drawn; how many datasets it lists."""
    window = browser.new_page(viewport={"width": 1280, "height": 900})
    window.goto(page.as_uri())
    window.evaluate(_DRAWN)
    rows = window.locator("tr[data-verdict]").count()
    window.close()
    return rows
