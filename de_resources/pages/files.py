"""A page, or a whole site, put in its place in one step: who reads meanwhile has all of the old one or all of the new one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from de_resources.errors import PermanentError
from de_resources.pages.words import visible

LONGEST_WAIT_SECONDS = 60


class NotPublished(PermanentError):
    """A site that could not be written: a full disk, a folder that nobody may write."""

    def __init__(self, place: Path, error: OSError) -> None:
        self.place = place
        super().__init__(
            f"The pages of `{place}` could not be written ({type(error).__name__}: {error.strerror or error}). "
            "What was there before is still there. Make room, or let the folder be written, and try again."
        )


def publish(file: Path, text: str) -> None:
    """Write beside the place and move there, so that a reader has the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=file.parent) as drafts:
        draft = Path(drafts) / file.name
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)


def publish_site(place: Path, pages: Mapping[str, str]) -> None:
    """Put a site of several pages, by their path inside of it, in the place of the one before.

    `place` becomes a link to a folder beside it, `.<name>-<state>`, and the link is exchanged in one step; pages that the new
    site lacks are gone with the old one. Writers wait for each other, and the last one holds. A folder that somebody
    else has put there is moved aside first. Raises `NotPublished`, and then the old site is there.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f".{place.name}.lock"), timeout=LONGEST_WAIT_SECONDS):
            _publish_site(place, pages)
    except OSError as error:
        raise NotPublished(place, error) from error


def _publish_site(place: Path, pages: Mapping[str, str]) -> None:
    states = sorted(place.parent.glob(f".{place.name}-*-*"))
    number = max((_number(state) for state in states), default=0) + 1
    state = place.with_name(f".{place.name}-{number:06}-{uuid4().hex[:8]}")
    for path, text in pages.items():
        file = state / path
        if not file.resolve().is_relative_to(state.resolve()):
            raise FileNotFoundError(f"`{visible(path, 80)}` is no page inside of the site")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    before = place.readlink() if place.is_symlink() else None
    if before is None and place.exists():
        place.rename(place.with_name(f"{place.name}.aside-{uuid4().hex[:8]}"))
    link = place.with_name(f".{state.name}.link")
    link.symlink_to(state.name)
    link.replace(place)
    # The state before stays: somebody may be reading it.
    for old in states:
        if before is None or old.name != before.name:
            shutil.rmtree(old, ignore_errors=True)


def _number(state: Path) -> int:
    part = state.name.rsplit("-", 2)[-2]
    return int(part) if part.isdigit() else 0
