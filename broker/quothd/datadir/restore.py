"""Restores topics of a backup into a new data directory, or into that of a stopped broker.

All files of the wanted topics are compared with the manifest before the first write. A topic appears as a
whole or not at all. It keeps its log id and its pointers, so that cursors and producers go on; for its next
pointers see `quothlog.backup.restore`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from quothd.datadir import catalog, manifest
from quothd.datadir.manifest import SavedTopic
from quothlog import segment
from quothlog.backup import restore as restoration
from quothlog.backup.backup import Archive
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.file_format import LogPosition
from quothlog.groups.group_log import FOLDER, group_log_id
from quothlog.recovery.snapshot import DISK
from quothlog.recovery.verify import Advance
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.write_failure import need_room, report_full_disk
from quothwire import pointer as pointers
from quothwire.errors import QuothError, error
from quothwire.topic import check_topic


class Restored(NamedTuple):
    """A restored topic. last: the pointer of its last record, 0 if it has none."""

    name: str
    path: Path
    records: int
    last: int


def select(backup: Path, names: Sequence[str], until: int | None) -> list[SavedTopic]:
    """Return the topics of a backup by name or folder, all without names; of several of one name the newest.

    Raises FileNotFoundError if there is no backup, `NotFound` ``unknown_topic``, `RequestError`
    ``bad_pointer`` if it ends before `until`, `Damaged`.
    """
    found = manifest.load(backup)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, f"no finished backup, it has no {manifest.NAME}", str(backup))
    topics = [_find(found, backup, name) for name in names] if names else _newest(found)
    for one in topics:
        if until is not None and until > one.archive.until:
            end = f"{one.archive.until} ({pointers.to_text(one.archive.until)})"
            text = f"the backup of {one.topic.name!r} ends at {end}"
            raise error("bad_pointer", text, "restore up to an earlier time")
    return topics


def check(backup: Path, topics: Sequence[SavedTopic], advance: Advance) -> None:
    """Read every file of these topics. Raises `Damaged` for the first one that has changed."""
    for one in topics:
        folder = backup / one.folder
        if folder.is_symlink():
            raise error("damaged", f"{folder} is a symbolic link, and a backup holds none")
        for archive, where in _archives(one, folder):
            for file in archive.files:
                file.check(where)
                advance(file.bytes)
        log_ids = set()
        for kept in one.archive.segments:
            with contextlib.suppress(QuothError):
                log_ids.add(segment.read_block(DISK.open(folder / kept.segment.name)).log_id)
        if log_ids and one.topic.log_id not in log_ids:
            raise error("damaged", f"{folder} holds segments of another log than the manifest says")


def restore(
    backup: Path,
    topics: Sequence[SavedTopic],
    directory: Path,
    rename: str,
    until: int | None,
    advance: Advance,
) -> Iterator[Restored]:
    """Write checked topics to a data directory; yields each one when it is restored.

    rename: a new name for the only topic, "" for none. Raises `Conflict` ``locked`` or ``topic_exists`` and
    ``disk_low`` before the first write, or OSError.
    """
    DISK.make_directory(directory)
    lock = DirectoryLock(directory)
    try:
        if rename:
            topics = [replace(one, topic=replace(one.topic, name=rename)) for one in topics]
        _check_free(directory, [one.topic for one in topics])
        need_room(DISK, directory, sum(one.bytes for one in topics))
        for one in topics:
            with report_full_disk(DISK, directory, repr(one.topic.name), _AFTER_A_FULL_DISK):
                restored = _restore_one(backup / one.folder, one, directory, until, advance)
            yield restored
    finally:
        lock.release()


def _check_free(directory: Path, topics: Sequence[TopicFile]) -> None:
    """Raise `Conflict` ``topic_exists`` if the name or the folder of a topic is in use.

    Two topics of one log have the same folder if their long names differ at the end only.
    """
    names = {folder.topic.name for folder in catalog.scan(directory).folders}
    paths: set[Path] = set()
    for topic in topics:
        path = topic_folder.path_of(directory, topic)
        # A topic with damaged settings may have another name, so its folder is checked, too.
        if check_topic(topic.name) in names or path in paths or path.exists():
            text = f"there is a topic {topic.name!r} for {directory} already; nothing was restored"
            raise error("topic_exists", text, _AFTER_A_TAKEN_NAME)
        names.add(topic.name)
        paths.add(path)


def _restore_one(
    source: Path, one: SavedTopic, directory: Path, until: int | None, advance: Advance
) -> Restored:
    """Create the folder of one topic with its log."""
    end: LogPosition | None = None

    def fill(folder: Path) -> None:
        nonlocal end
        others = topic_file.OTHERS
        end = restoration.restore(
            source, one.archive, folder, one.topic.log_id, until=until, others=others, advance=advance
        )
        if one.groups is not None:
            DISK.make_directory(folder / FOLDER)
            own_id = group_log_id(one.topic.log_id)
            restoration.restore(source / FOLDER, one.groups, folder / FOLDER, own_id, advance=advance)

    path = catalog.make(directory, one.topic, fill=fill)
    if end is None or end.ordinal == one.archive.first_ordinal:
        return Restored(one.topic.name, path, 0, 0)
    return Restored(one.topic.name, path, end.ordinal - one.archive.first_ordinal, end.pointer)


def _archives(one: SavedTopic, folder: Path) -> list[tuple[Archive, Path]]:
    """Return the archives of a topic, each with the folder of its files. Raises `Damaged`."""
    archives = [(one.archive, folder)]
    if one.groups is not None:
        if (folder / FOLDER).is_symlink():
            raise error("damaged", f"{folder / FOLDER} is a symbolic link, and a backup holds none")
        archives.append((one.groups, folder / FOLDER))
    return archives


def _newest(found: Mapping[str, SavedTopic]) -> list[SavedTopic]:
    """Return the newest topic of each name, by name."""
    newest: dict[str, SavedTopic] = {}
    for one in sorted(found.values(), key=lambda one: one.archive.until):
        newest[one.topic.name] = one
    return [newest[name] for name in sorted(newest)]


def _find(found: Mapping[str, SavedTopic], backup: Path, name: str) -> SavedTopic:
    """Return a topic by its folder or its name. Raises `NotFound` ``unknown_topic``."""
    if name in found:
        return found[name]
    newest = _newest(found)
    for one in newest:
        if one.topic.name == name:
            return one
    names = ", ".join(repr(one.topic.name) for one in newest[:_NAMES_MAX])
    raise error("unknown_topic", f"{backup} holds no topic {name!r}", f"it holds {names or 'none'}")


_NAMES_MAX = 10
_AFTER_A_TAKEN_NAME = "give another name with --as, or choose others with --topic"
_AFTER_A_FULL_DISK = "the topics printed so far are restored, nothing of any other"
