"""Topics out of a backup, into the data directory of a broker that is not running, or of none yet.

Everything that is wanted of the backup is read and compared with its manifest before anything is written.
Each topic appears whole or not at all, under its log's id and with its pointers, so cursors and producers go
on with it; where it goes on itself, see `quothlog.backup.restore`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from quothd.datadir import catalog, manifest
from quothd.datadir.manifest import Manifest, SavedTopic
from quothlog import segment
from quothlog.backup import restore as restoration
from quothlog.datadir import topic_file, topic_folder
from quothlog.datadir.topic_file import TopicFile
from quothlog.file_format import Position
from quothlog.recovery.snapshot import DISK
from quothlog.recovery.verify import Advance
from quothlog.storage.dirlock import DirectoryLock
from quothlog.storage.disk_space import need_room, tell_if_full
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import pointer as pointers
from quothwire.errors import QuothError, error
from quothwire.topic import check_topic


class Restored(NamedTuple):
    """A topic that is there again. last: the pointer of its last record, 0 if it has none."""

    name: str
    path: Path
    records: int
    last: int


def chosen(backup: Path, names: Sequence[str], until: int | None) -> list[SavedTopic]:
    """The topics of a backup by name or folder, all if none is named; of several of one name the newest.

    Raises FileNotFoundError if there is no backup, `NotFound` ``unknown_topic``, `RequestError`
    ``bad_pointer`` if it ends before `until`, `Damaged`.
    """
    held = manifest.load(backup)
    if held is None:
        raise FileNotFoundError(errno.ENOENT, f"no finished backup, it has no {manifest.NAME}", str(backup))
    found = _by_name(held) if not names else [_named(held, backup, name) for name in names]
    for one in found:
        if until is not None and until > one.archive.until:
            end = f"{one.archive.until} ({pointers.to_text(one.archive.until)})"
            text = f"the backup of {one.topic.name!r} ends at {end}"
            raise error("bad_pointer", text, "restore up to a moment that it holds")
    return found


def check(backup: Path, topics: Sequence[SavedTopic], advance: Advance) -> None:
    """Read every file of these topics. Raises `Damaged` for the first that is not what it was."""
    for one in topics:
        if (backup / one.folder).is_symlink():
            raise error("damaged", f"{backup / one.folder} is a symbolic link, and a backup holds none")
        for file in one.archive.files:
            file.check(backup / one.folder)
            advance(file.bytes)
        _check_log(backup / one.folder, one)


def _check_log(folder: Path, one: SavedTopic) -> None:
    """Raise `Damaged` if the segments of a topic say that they are of another log than the manifest does."""
    said = set()
    for kept in one.archive.segments:
        with contextlib.suppress(QuothError):
            said.add(segment.read_block(DISK.open(folder / kept.segment.name)).log_id)
    if said and one.topic.log_id not in said:
        raise error("damaged", f"{folder} holds segments of another log than the manifest says")


def restore(
    backup: Path,
    topics: Sequence[SavedTopic],
    directory: Path,
    rename: str,
    until: int | None,
    advance: Advance,
) -> Iterator[Restored]:
    """Put checked topics into a data directory; tells each as it is there.

    rename: the name for the one topic, "" for those that they had. Raises `Conflict` ``locked`` or
    ``topic_exists`` and ``disk_low`` before anything is done, or OSError.
    """
    filesystem = PosixFileSystem()
    filesystem.make_directory(directory)
    lock = DirectoryLock(directory)
    try:
        _check_places(directory, [replace(one.topic, name=rename or one.topic.name) for one in topics])
        need_room(filesystem, directory, sum(one.archive.bytes for one in topics))
        for one in topics:
            topic = replace(one.topic, name=rename or one.topic.name)
            with tell_if_full(filesystem, directory, repr(topic.name), _AFTER_A_FULL_DISK):
                restored = _put(backup / one.folder, one, directory, topic, until, advance)
            yield restored
    finally:
        lock.release()


def _check_places(directory: Path, topics: Sequence[TopicFile]) -> None:
    """Raise `Conflict` ``topic_exists`` if a name, or the folder that belongs to it, is taken.

    Two topics of one log have the same folder if only the end of their long names differs.
    """
    names = {folder.topic.name for folder in catalog.scan(directory).folders}
    places: set[Path] = set()
    for topic in topics:
        place = topic_folder.path_of(directory, topic)
        taken = place in places or place.exists()  # a topic whose settings are damaged may have another name
        if check_topic(topic.name) in names or taken:
            text = f"there is a topic {topic.name!r} for {directory} already; nothing was restored"
            raise error("topic_exists", text, _AFTER_A_NAME_THAT_IS_TAKEN)
        names.add(topic.name)
        places.add(place)


def _put(
    source: Path, one: SavedTopic, directory: Path, topic: TopicFile, until: int | None, advance: Advance
) -> Restored:
    """Make the folder of one topic, with its log in it."""
    end: Position | None = None

    def fill(folder: Path) -> None:
        nonlocal end
        others = (topic_file.NAME,)
        end = restoration.restore(
            source, one.archive, folder, topic.log_id, until=until, others=others, advance=advance
        )

    path = catalog.make(directory, topic, fill=fill)
    if end is None or end.ordinal == one.archive.first_ordinal:
        return Restored(topic.name, path, 0, 0)
    return Restored(topic.name, path, end.ordinal - one.archive.first_ordinal, end.pointer)


def _by_name(held: Manifest) -> list[SavedTopic]:
    newest: dict[str, SavedTopic] = {}
    for one in sorted(held.topics.values(), key=lambda one: one.archive.until):
        newest[one.topic.name] = one
    return [newest[name] for name in sorted(newest)]


def _named(held: Manifest, backup: Path, name: str) -> SavedTopic:
    if name in held.topics:
        return held.topics[name]
    for one in _by_name(held):
        if one.topic.name == name:
            return one
    names = ", ".join(repr(one.topic.name) for one in _by_name(held)[:_NAMES_MAX])
    raise error("unknown_topic", f"{backup} holds no topic {name!r}", f"it holds {names or 'none'}")


_NAMES_MAX = 10
_AFTER_A_NAME_THAT_IS_TAKEN = "give another name with --as, or choose others with --topic"
_AFTER_A_FULL_DISK = "the topics that were told are there, nothing of any other"
