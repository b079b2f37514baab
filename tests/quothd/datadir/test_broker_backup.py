"""Backups of topics that are deleted, damaged or lost while they are copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.disk.logs import segments
from quothd.datadir import backup, catalog, manifest, restore
from quothlog import Log, LogOptions
from quothlog.datadir import topic_file
from quothlog.datadir.topic_file import TopicFile
from quothlog.datadir.topic_folder import TopicFolder
from quothwire.errors import Conflict
from quothwire.pointer import POINTER_MAX
from quothwire.settings import TopicSettings

Make = Callable[[str], TopicFolder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a topic of a few segments."""

    def make_it(name: str) -> TopicFolder:
        (tmp_path / "data").mkdir(exist_ok=True)
        topic = TopicFile(name, sum(name.encode()), TopicSettings())
        path = catalog.make(tmp_path / "data", topic)
        options = LogOptions(count_limit=10)
        with Log.open(path, log_id=topic.log_id, options=options, others=(topic_file.NAME,)) as log:
            for number in range(35):
                log.append(b"%d" % number)
        return TopicFolder(path, topic)

    return make_it


def run(
    folders: list[TopicFolder], to: Path, advance: Callable[[int], None] = lambda _size: None
) -> list[str]:
    """Back up; returns the names of the topics that are in it."""
    outcomes = list(backup.backup(folders, to, POINTER_MAX, advance, exact=True))
    assert not any(outcome.problem or outcome.damages for outcome in outcomes)
    saved = [outcome.saved for outcome in outcomes if outcome.saved]
    written = manifest.load(to)
    assert written is not None
    assert [written[one.folder] for one in saved] == saved
    return [one.topic.name for one in saved]


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


def test_a_topic_that_is_deleted_during_a_later_backup_stays_in_it_as_it_was(
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
def test_a_topic_that_cannot_be_read_is_reported_and_stays_as_it_was(
    make: Make, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """The backup may be all that is left of a topic that has lost its segments. Others are backed up."""
    orders, others, to = make("orders"), make("others"), tmp_path / "to"
    run([orders, others], to)
    for path in segments(orders.path):
        spoil(path)
    first, second = backup.backup([orders, others], to, POINTER_MAX, lambda _size: None, exact=True)
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
    selected = restore.select(to, [], None)
    with pytest.raises(Conflict, match="already"):
        list(restore.restore(to, selected, tmp_path / "data", "", None, lambda _size: None))
    assert {path.name: path.read_bytes() for path in topic.path.iterdir()} == before
