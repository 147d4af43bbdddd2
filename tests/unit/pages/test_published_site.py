"""A site is put in its place in one step: whoever reads meanwhile has one state of it, and a death leaves the old one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from de_resources.pages import files
from de_resources.pages.files import NotPublished, publish, publish_site


def pages(state: int, count: int = 20) -> dict[str, str]:
    """Each page of a state says which state it is of."""
    return {"index.html": str(state), **{f"silver/t{n}.html": str(state) for n in range(count)}}


def shown(place: Path) -> set[str]:
    return {file.read_text() for file in place.rglob("*.html")}


def test_a_rerun_replaces_and_what_the_new_site_lacks_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "home" / "observatory"
    publish_site(place, {**pages(1), "gone.html": "1"})
    publish_site(place, pages(2))
    assert shown(place) == {"2"}
    assert not (place / "gone.html").exists()
    assert (place / "silver" / "t3.html").read_text() == "2"


def test_the_state_that_somebody_may_be_reading_stays_and_no_more(tmp_path: Path) -> None:
    place = tmp_path / "observatory"
    publish_site(place, pages(0))
    for state in range(1, 12):
        reading = place.resolve()
        publish_site(place, pages(state))
        assert shown(reading) == {str(state - 1)}
    assert len(list(tmp_path.iterdir())) == 4, "the link, the lock, the newest, and the one before"
    assert shown(place) == {"11"}


def test_a_reader_in_the_middle_has_the_old_site_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody reads all pages before and after each single step of the writer."""
    place = tmp_path / "observatory"
    publish_site(place, pages(1))
    seen: list[set[str]] = []

    def watched(name: str) -> None:
        step = getattr(Path, name)

        def look(*arguments: object, **options: object) -> object:
            seen.append(shown(place))
            done = step(*arguments, **options)
            seen.append(shown(place))
            return done

        monkeypatch.setattr(files.Path, name, look)

    for name in ("write_text", "mkdir", "symlink_to", "replace", "rename"):
        watched(name)
    publish_site(place, pages(2))
    assert len(seen) > 40
    assert [each for each in seen if each not in ({"1"}, {"2"})] == []
    assert seen[0] == {"1"}
    assert seen[-1] == {"2"}


@pytest.mark.parametrize("point", ["write_text", "symlink_to", "replace"])
def test_a_death_at_any_step_leaves_the_old_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    place = tmp_path / "observatory"
    publish_site(place, pages(1))

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.Path, point, die)
    with pytest.raises(KeyboardInterrupt):
        publish_site(place, pages(2))
    monkeypatch.undo()
    assert shown(place) == {"1"}
    publish_site(place, pages(3))
    assert shown(place) == {"3"}


def test_a_folder_of_somebody_else_is_moved_aside_and_not_removed(tmp_path: Path) -> None:
    place = tmp_path / "observatory"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    for state in range(1, 5):
        publish_site(place, pages(state))
        assert shown(place) == {str(state)}
    assert [file.read_text() for file in tmp_path.rglob("notes.txt")] == ["mine"]


def test_what_a_killed_writer_left_does_not_cost_the_site_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "observatory"
    publish_site(place, pages(1))
    reading = place.resolve()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        monkeypatch.setattr(files.Path, "symlink_to", die)
        with pytest.raises(KeyboardInterrupt):
            publish_site(place, pages(2))
        monkeypatch.undo()
    publish_site(place, pages(3))
    assert (shown(reading), shown(place)) == ({"1"}, {"3"})
    for state in range(4, 7):
        publish_site(place, pages(state))
    assert len(list(tmp_path.iterdir())) == 4, "and it is gone in the end"


def test_writers_at_once_leave_one_whole_site(tmp_path: Path) -> None:
    place = tmp_path / "observatory"
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda state: publish_site(place, pages(state)), range(40)))
    assert len(shown(place)) == 1
    assert len(list(tmp_path.iterdir())) == 4


def test_a_page_outside_of_the_site_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "observatory"
    publish_site(place, pages(1))
    with pytest.raises(NotPublished, match="is still there"):
        publish_site(place, {"../../evil.html": "x"})
    assert shown(place) == {"1"}
    assert not list(tmp_path.parent.rglob("evil.html"))


def test_a_disk_that_takes_nothing_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotPublished, match="could not be written"):
        publish_site(tmp_path / "file" / "observatory", pages(1))


def test_one_page_is_replaced_in_one_step(tmp_path: Path) -> None:
    page = tmp_path / "a" / "b.html"
    publish(page, "old")
    publish(page, "new")
    assert page.read_text() == "new"
    assert list(page.parent.iterdir()) == [page]
