"""A changed backup is restored as it says, or refused with an error.

Each changed manifest has a right checksum, as an attacker can make it.
"""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from kit.disk.logs import fill
from kit.machine.processes import listing
from kit.scale import times
from quothd.datadir import backup as saving
from quothd.datadir import catalog, manifest
from quothd.datadir import restore as restoring
from quothlog import Log
from quothlog.datadir.topic_file import TopicFile
from quothwire.errors import QuothError
from quothwire.settings import TopicSettings

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**56, 2**56 - 1, 2**63, 2**64, 2**200, -(2**70), 1.5, math.nan, math.inf),
    *("", ".", "..", "../../outside", "/etc", "a/b", "x\0y", "\ud800", "x" * 10_000, "0" * 16),
    *("t~0000000000000001", "../t~0000000000000001", ".new~0000000000000001"),
    *([], {}, [1], {"bytes": 1}, {"": {}}),
)
CODES = {"damaged", "unsupported_version", "bad_setting", "topic_exists", "pointers_exhausted", "disk_low"}


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a topic with two segments and one without any."""
    data, to = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    for number, name in enumerate(("full", "empty"), start=1):
        path = catalog.make(data, TopicFile(name, number, TopicSettings()))
        if name == "full":
            with Log.open(path, log_id=number, others=("topic.json",)) as log:
                fill(log, 2)
                log.roll()
                fill(log, 1)
    folders = catalog.scan(data).folders
    list(saving.backup(folders, to, 2**56 - 1, lambda _bytes: None, exact=False))
    shutil.rmtree(data)
    return to


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


@pytest.mark.parametrize("which", ["backup.json", "full~0000000000000001", "*.seg", "*.idx"])
def test_a_backup_with_another_kind_of_file_is_refused(backup: Path, tmp_path: Path, which: str) -> None:
    for harm in (link, fifo, folder, remove, endless):
        harmed = tmp_path / harm.__name__
        shutil.copytree(backup, harmed)
        path = next(harmed.rglob(which))
        if path.is_dir() and harm is endless:
            continue
        harm(path)
        with pytest.raises((QuothError, FileNotFoundError)) as caught:
            restored(harmed, tmp_path / "restored")
        if isinstance(caught.value, QuothError):
            assert caught.value.code == "damaged"
        else:
            assert (harm, which) == (remove, "backup.json")
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


def test_the_error_for_a_manifest_of_another_form_names_the_place(backup: Path) -> None:
    for content, code, text in FORMS:
        write_line(backup, content if isinstance(content, bytes) else json.dumps(content).encode())
        with pytest.raises(QuothError) as caught:
            manifest.load(backup)
        assert (caught.value.code, text in caught.value.text) == (code, True), caught.value.text


def test_topics_of_one_log_that_need_the_same_folder_are_refused(backup: Path, tmp_path: Path) -> None:
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
