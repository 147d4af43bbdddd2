"""Which files make a log, in which order, and how their bytes become lines."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from de_assets.sources.access_log.files import LONGEST_LINE, NoAccessLogError, access_log_files, raw_lines


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize(
    "ordered",
    [
        ["access.log.10.gz", "access.log.2.gz", "access.log.1", "access.log"],
        ["access.log-20150516.gz", "access.log-20150517", "access.log"],
        ["access.log.2024-01-31", "access.log.2024-02-01", "access.log.3", "access.log"],
        ["a_access.log.1", "a_access.log", "b_access.log.1", "b_access.log"],
    ],
    ids=["numbers", "dates", "dates and numbers", "two servers"],
)
def test_rotated_sets_are_read_oldest_first(tmp_path: Path, ordered: list[str]) -> None:
    _touch(tmp_path, *ordered, "error.log", ".access.log.swp")
    assert [file.name for file in access_log_files([tmp_path])] == ordered
    assert [file.name for file in access_log_files([f"{tmp_path}/*access.log*", tmp_path / ordered[0]])] == ordered


def test_a_folder_without_an_access_log_by_name_gives_all_its_files(tmp_path: Path) -> None:
    _touch(tmp_path, "blog.log", "blog.log.1")
    assert [file.name for file in access_log_files([tmp_path])] == ["blog.log.1", "blog.log"]


@pytest.mark.parametrize("path", ["absent.log", "*.nothing", "empty"])
def test_a_path_without_files_is_an_error_that_says_what_to_give(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoAccessLogError, match="give a file, a folder"):
        access_log_files([tmp_path / path])


def _zstd(data: bytes) -> bytes:
    compressed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return compressed


COMPRESSIONS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": _zstd}


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_compression_is_known_by_the_bytes_and_not_by_the_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "access.log").write_bytes(COMPRESSIONS[kind](b"a\nb\n"))
    (tmp_path / f"access.log.1.{kind}").write_bytes(b"c\n")
    assert [line.raw for line in raw_lines(access_log_files([tmp_path]))] == [b"c", b"a", b"b"]


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_compressed_file_that_breaks_off_keeps_what_could_be_read_and_says_where_it_ends(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"access.log.{kind}"
    # Of chance, so that it does not shrink to nothing; long enough for several blocks of every format.
    chance = Random(5)  # noqa: S311 - not a secret
    text = b"".join(b"%064x\n" % chance.getrandbits(256) for _ in range(16_000))
    file.write_bytes(COMPRESSIONS[kind](text)[:-2_000])
    lines = list(raw_lines([file]))
    assert lines[-1].damage == "the compressed file is damaged from here on"
    read = [line.raw for line in lines[:-1]]
    assert read == text.splitlines()[: len(read)]
    assert len(read) > 0


def test_an_error_of_the_disk_is_no_damage_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "access.log").write_bytes(gzip.compress(b"a\n"))
    monkeypatch.setattr(gzip._GzipReader, "_read_gzip_header", fail)  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="Input/output"):
        list(raw_lines([tmp_path / "access.log"]))


@pytest.mark.parametrize("length", [LONGEST_LINE - 1, LONGEST_LINE, LONGEST_LINE + 1, 1_000_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_that_is_too_long_is_cut_and_marked_and_the_next_is_whole(
    tmp_path: Path, length: int, end: bytes
) -> None:
    file = tmp_path / "access.log"
    file.write_bytes(b"x" * length + end + (b"next\n" if end else b""))
    lines = list(raw_lines([file]))
    assert [line.damage is not None for line in lines] == (
        [length > LONGEST_LINE, False] if end else [length > LONGEST_LINE]
    )
    assert len(lines[0].raw) == (4096 if length > LONGEST_LINE else length)


def test_progress_ends_at_the_bytes_on_disk(tmp_path: Path) -> None:
    (tmp_path / "access.log").write_bytes(b"line\n" * 12_000)
    (tmp_path / "access.log.1").write_bytes(gzip.compress(b"line\n" * 12_000))
    files = access_log_files([tmp_path])
    seen: list[tuple[int, int]] = []
    assert sum(1 for _ in raw_lines(files, lambda done, total: seen.append((done, total)))) == 24_000
    total = sum(file.stat().st_size for file in files)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
