"""Backups of topics that change meanwhile, and restores from backups that were changed.

Each changed manifest has a right checksum, as an attacker can make it.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from kit.disk.logs import segments
from kit.machine.processes import listing
from kit.scale import times
from quothd.datadir import backup as saving
from quothd.datadir import catalog, manifest
from quothd.datadir import restore as restoring
from quothlog import Log, LogOptions
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothwire.errors import Conflict, QuothError
from quothwire.pointer import POINTER_MAX
from quothwire.settings import TopicSettings

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**56, 2**56 - 1, 2**63, 2**64, 2**200, -(2**70), 1.5, math.nan, math.inf),
    *("", ".", "..", "../../outside", "/etc", "a/b", "x\0y", "\ud800", "x" * 10_000, "0" * 16),
    *("t~0000000000000001", "../t~0000000000000001", ".new~0000000000000001"),
    *([], {}, [1], {"bytes": 1}, {"": {}}),
)
CODES = {"damaged", "unsupported_version", "bad_setting", "topic_exists", "pointers_exhausted", "disk_low"}


Make = Callable[..., TopicFolder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make a topic in `data` with so many records, ten in a segment."""

    def make_it(name: str, records: int = 35) -> TopicFolder:
        (tmp_path / "data").mkdir(exist_ok=True)
        topic = TopicFile(name, sum(name.encode()), TopicSettings())
        path = catalog.make(tmp_path / "data", topic)
        options = LogOptions(count_limit=10)
        if records:
            with Log.open(path, log_id=topic.log_id, options=options, others=(topic_file.NAME,)) as log:
                for number in range(records):
                    log.append(b"%d" % number)
        return TopicFolder(path, topic)

    return make_it


@pytest.fixture
def backup(make: Make, tmp_path: Path) -> Path:
    """A backup of a topic with two segments and one without any."""
    run([make("full", 15), make("empty", 0)], tmp_path / "backup")
    shutil.rmtree(tmp_path / "data")
    return tmp_path / "backup"


def run(
    folders: list[TopicFolder], to: Path, advance: Callable[[int], None] = lambda _size: None
) -> list[str]:
    """Back up; returns the names of the topics that are in it."""
    outcomes = list(saving.backup(folders, to, POINTER_MAX, advance, exact=True))
    assert not any(outcome.problem or outcome.damages for outcome in outcomes)
    saved = [outcome.saved for outcome in outcomes if outcome.saved]
    written = manifest.load(to)
    assert written is not None
    assert [written[one.folder] for one in saved] == saved
    return [one.topic.name for one in saved]


def restored(backup: Path, to: Path) -> list[str]:
    """Restore all of it; returns the names of the topics that are there."""
    wanted = restoring.select(backup, (), None)
    restoring.check(backup, wanted, lambda _bytes: None)
    return [one.name for one in restoring.restore(backup, wanted, to, "", None, lambda _bytes: None)]


def outcome_of(backup: Path, to: Path) -> list[str] | str:
    """The same, or the code of the error."""
    try:
        return restored(backup, to)
    except QuothError as problem:
        return problem.code


def content_of(backup: Path) -> Any:
    return json.loads((backup / manifest.NAME).read_bytes().splitlines()[0])


def write(backup: Path, content: Any) -> None:
    write_line(backup, json.dumps(content).encode())


def write_line(backup: Path, line: bytes) -> None:
    """Replace the manifest by one with this first line and its checksum."""
    (backup / manifest.NAME).write_bytes(line + b"\n" + xxh3_64_hexdigest(line).encode() + b"\n")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values within a JSON value."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in rows:
        yield (*path, name)
        yield from places(inner, (*path, name))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path, or with none."""
    content = copy.deepcopy(content)
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    if value is LEFT_OUT:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


LEFT_OUT = object()


def test_a_manifest_with_any_change_is_refused_or_restored(
    backup: Path, tmp_path: Path, rng: random.Random
) -> None:
    """Nothing is written elsewhere, and nothing of a topic that is refused."""
    content = content_of(backup)
    changes = [(path, value) for path in places(content) for value in (LEFT_OUT, *VALUES)]
    rng.shuffle(changes)
    to, outcomes = tmp_path / "restored", set()
    for path, value in changes[: times(150, len(changes))]:
        write(backup, changed(content, path, value))
        before = listing(backup)
        outcome = outcome_of(backup, to)
        there = {folder.topic.name for folder in catalog.scan(to).folders} if to.exists() else set()
        if isinstance(outcome, str):
            assert (outcome in CODES, there) == (True, set()), (path, value, outcome)
        else:
            assert there == {*outcome}
        outcomes.add(type(outcome))
        assert {one.name for one in tmp_path.iterdir()} <= {"backup", "restored"}, (path, value)
        assert listing(backup) == before
        shutil.rmtree(to, ignore_errors=True)
    assert outcomes == {str, list}


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def link(path: Path) -> None:
    target = path.with_name("target")
    path.rename(target)
    path.symlink_to(target)


def fifo(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def folder(path: Path) -> None:
    remove(path)
    path.mkdir()


def endless(path: Path) -> None:
    os.truncate(path, 2**42)


@pytest.mark.parametrize("which", ["backup.json", "full~*", "*.seg", "*.idx"])
def test_a_backup_with_another_kind_of_file_is_refused(backup: Path, tmp_path: Path, which: str) -> None:
    for change in (link, fifo, folder, remove, endless):
        changed = tmp_path / change.__name__
        shutil.copytree(backup, changed)
        path = next(changed.rglob(which))
        if path.is_dir() and change is endless:
            continue
        change(path)
        with pytest.raises((QuothError, FileNotFoundError)) as caught:
            restored(changed, tmp_path / "restored")
        if isinstance(caught.value, QuothError):
            assert caught.value.code == "damaged"
        else:
            assert (change, which) == (remove, "backup.json")
        assert not (tmp_path / "restored").exists()


FORMS: list[tuple[object, str, str]] = [
    ([1, 2], "damaged", "'[1, 2]' stands where a map has to be"),
    ("version", "damaged", "'version' stands where a map has to be"),
    ({}, "damaged", "it lacks 'version'"),
    ({"version": 1}, "damaged", "it lacks 'topics'"),
    ({"version": 1, "topics": {}}, "damaged", "'{}' stands where a list has to be"),
    ({"version": "1", "topics": []}, "damaged", "version cannot be '1'"),
    ({"version": 1.0, "topics": []}, "damaged", "version cannot be '1.0'"),
    ({"version": True, "topics": []}, "damaged", "version cannot be 'True'"),
    ({"version": 2, "topics": {}}, "unsupported_version", "of version 2, this program knows version 1"),
    *(
        (line, "damaged", "is no manifest: its first line is no JSON")
        for line in (b"{", b"\xff", b"1" * 5_000)
    ),
    (b'{"version": 1, "topics": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "damaged", "is no JSON"),
]


def test_the_error_for_a_malformed_manifest_quotes_the_wrong_part(backup: Path) -> None:
    unordered = content_of(backup)
    for row in unordered["topics"]:
        row["segments"].reverse()
    for content, code, text in (*FORMS, (unordered, "damaged", "segments are not in order")):
        write_line(backup, content if isinstance(content, bytes) else json.dumps(content).encode())
        with pytest.raises(QuothError) as caught:
            manifest.load(backup)
        assert (caught.value.code, text in caught.value.text) == (code, True), caught.value.text


def test_topics_of_one_log_with_the_same_folder_are_refused(backup: Path, tmp_path: Path) -> None:
    """A folder has the log's id and the beginning of the name. These two names differ behind it."""
    content = content_of(backup)
    (empty,) = [row for row in content["topics"] if row["name"] == "empty"]
    content["topics"] = [
        {**empty, "name": "\u00e9" * 90 + end, "folder": f"{end}~{1:016x}"} for end in ("1", "2")
    ]
    for row in content["topics"]:
        (backup / row["folder"]).mkdir()
    write(backup, content)
    assert outcome_of(backup, tmp_path / "restored") == "topic_exists"
    assert catalog.scan(tmp_path / "restored").folders == []


# -- backups ------------------------------------------------------------------------------------------------


def held(to: Path) -> dict[str, int]:
    """The topics of a backup and how many records they have."""
    found = manifest.load(to)
    assert found is not None
    for one in found.values():
        for file in one.archive.files:
            file.check(to / one.folder)
    return {one.topic.name: one.archive.records for one in found.values()}


@pytest.mark.parametrize("when", ["before it is looked at", "while it is copied"])
def test_a_topic_that_is_deleted_during_the_first_backup_is_left_out(
    make: Make, tmp_path: Path, when: str
) -> None:
    orders, others, to = make("orders"), make("others"), tmp_path / "to"

    def delete(_size: int) -> None:
        if orders.path.exists():
            catalog.remove(catalog.retire(orders.path))

    if when == "before it is looked at":
        delete(0)
    assert run([orders, others], to, delete) == ["others"]
    assert held(to) == {"others": 35}


def test_a_topic_that_is_deleted_during_a_later_backup_keeps_its_earlier_copy(
    make: Make, tmp_path: Path
) -> None:
    orders, to = make("orders"), tmp_path / "to"
    assert run([orders], to) == ["orders"]
    assert run([orders], to, lambda _size: catalog.remove(orders.path)) == []
    assert held(to) == {"orders": 35}


def damage(path: Path) -> None:
    """Replace a segment by zeros."""
    path.write_bytes(bytes(200))


@pytest.mark.parametrize("spoil", [damage, Path.unlink], ids=["damaged", "lost"])
def test_a_topic_that_cannot_be_read_is_reported_and_keeps_its_earlier_copy(
    make: Make, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """The backup may be all that is left of a topic that has lost its segments. Others are backed up."""
    orders, others, to = make("orders"), make("others"), tmp_path / "to"
    run([orders, others], to)
    for path in segments(orders.path):
        spoil(path)
    first, second = saving.backup([orders, others], to, POINTER_MAX, lambda _size: None, exact=True)
    assert first.saved is None
    assert first.problem is not None
    assert first.problem.code == "damaged"
    assert second.saved is not None
    assert held(to) == {"orders": 35, "others": 35}


@pytest.mark.parametrize("name", ["orders", "ö" * 90], ids=["short", "long"])
def test_a_restore_leaves_an_existing_topic_alone(make: Make, tmp_path: Path, name: str) -> None:
    """Also one with damaged settings, whose folder has only the beginning of its name."""
    topic, to = make(name), tmp_path / "to"
    run([topic], to)
    (topic.path / topic_file.NAME).write_bytes(b"damaged")
    before = {path.name: path.read_bytes() for path in topic.path.iterdir()}
    selected = restoring.select(to, [], None)
    with pytest.raises(Conflict, match="already"):
        list(restoring.restore(to, selected, tmp_path / "data", "", None, lambda _size: None))
    assert {path.name: path.read_bytes() for path in topic.path.iterdir()} == before
